"""Lines in front of admission: order, wake-ups, and nobody forgotten."""

import asyncio
import random

import pytest

from service.queue.waiting_lines import Waiter, WaitingLines


async def settle(rounds: int = 5) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0)


async def waiting(place: Waiter) -> "asyncio.Task[None]":
    task = asyncio.create_task(place.turn())
    await settle()
    return task


async def test_first_in_line_tries_when_something_has_left():
    lines = WaitingLines()
    first, second = lines.queue("a"), lines.queue("a")
    turns = [await waiting(first), await waiting(second)]
    assert not any(turn.done() for turn in turns)

    lines.departed()
    await settle()

    assert [turn.done() for turn in turns] == [True, False]
    turns[1].cancel()


async def test_one_departure_is_one_turn():
    lines = WaitingLines()
    place = lines.queue("a")
    lines.departed()
    await place.turn()

    turn = await waiting(place)
    assert not turn.done()
    turn.cancel()


async def test_departure_during_a_try_is_not_lost():
    lines = WaitingLines()
    place = lines.queue("a")
    lines.departed()
    await place.turn()
    lines.departed()  # while the place tries

    assert (await waiting(place)).done()


async def test_next_tries_when_the_first_is_in():
    lines = WaitingLines()
    first, second = lines.queue("a"), lines.queue("a")
    turn = await waiting(second)

    first.enter()
    await settle()

    assert turn.done()


async def test_who_leaves_from_the_middle_wakes_nobody():
    lines = WaitingLines()
    places = [lines.queue("a") for _ in range(3)]
    turns = [await waiting(places[0]), await waiting(places[2])]

    places[1].leave()
    await settle()

    assert not any(turn.done() for turn in turns)
    for turn in turns:
        turn.cancel()


async def test_each_departure_is_the_turn_of_another_line():
    lines = WaitingLines()
    turns = [await waiting(lines.queue(caller)) for caller in ("greedy", "greedy", "modest")]
    done = []

    for _ in range(2):
        lines.departed()
        await settle()
        done.append([turn.done() for turn in turns])

    assert done == [[True, False, False], [True, False, True]]
    turns[1].cancel()


async def test_who_is_refused_passes_the_turn_on_until_every_line_has_had_it():
    lines = WaitingLines()
    places = [lines.queue(name) for name in "abc"]
    turns = [await waiting(place) for place in places]
    lines.departed()

    tried = []
    for place in places:
        await settle()
        tried.append([turn.done() for turn in turns[:3]])
        turns.append(await waiting(place))  # it was refused
    await settle()

    assert tried == [[True, False, False], [True, True, False], [True, True, True]]
    assert not any(turn.done() for turn in turns[3:])
    for turn in turns[3:]:
        turn.cancel()


async def test_who_gives_up_with_a_turn_passes_it_on():
    lines = WaitingLines()
    leaving, other = lines.queue("a"), lines.queue("b")
    turn = await waiting(other)
    lines.departed()

    leaving.leave()
    await settle()

    assert turn.done()


async def test_thousand_lines_cost_a_departure_one_refusal():
    """A budget of one, a client for each line: what leaves makes room for one of them, and for no second one."""
    crowd = Crowd(budget=1)
    for number in range(1_000):
        crowd.arrive(1, line=f"{number}")
    await settle()
    tries = crowd.num_tries

    for _ in range(10):
        crowd.leave()
        await settle()

    assert len(crowd.order) == 11
    assert crowd.num_tries - tries == 20
    for task in crowd.tasks:
        task.cancel()


async def test_large_departure_lets_in_as_many_as_there_is_room_for():
    crowd = Crowd()
    crowd.arrive(10, line="a")
    await settle()
    for number in range(20):
        crowd.arrive(1, line=f"{number}")
    await settle()

    crowd.leave()
    await settle(rounds=50)

    assert crowd.inside == [1] * 10
    for task in crowd.tasks:
        task.cancel()


async def test_line_is_gone_with_its_last_place():
    lines = WaitingLines()
    with lines.queue("a") as place:
        assert lines.has_line("a")
        place.enter()
        assert not lines.has_line("a")
    assert not lines.has_line("a")
    lines.departed()


@pytest.mark.parametrize("num_lines", [1, 5])
@pytest.mark.parametrize("seed", range(100))
async def test_everybody_gets_in_once_as_much_leaves_as_came(seed, num_lines):
    """Random sizes, arrivals, departures and cancels against a budget: who is not cancelled gets in, in its order."""
    seeded, crowd = random.Random(seed), Crowd()
    for _ in range(60):
        match seeded.choice(["arrive", "arrive", "leave", "cancel"]):
            case "arrive":
                crowd.arrive(seeded.randint(1, 10), line=f"{seeded.randrange(num_lines)}")
            case "leave":
                crowd.leave()
            case "cancel" if crowd.tasks:
                seeded.choice(crowd.tasks).cancel()
        await settle()
    while crowd.inside:
        crowd.leave()
        await settle()
    results = await asyncio.wait_for(asyncio.gather(*crowd.tasks, return_exceptions=True), 5)

    came_in = [number for number, result in enumerate(results) if result is None]
    assert sorted(crowd.order) == came_in
    for line in set(crowd.lines_of):
        assert crowd.order_of(line) == sorted(crowd.order_of(line))


class Crowd:
    """Waits for room in a budget."""

    def __init__(self, budget: int = 10) -> None:
        self.lines = WaitingLines()
        self.budget = budget
        self.inside: list[int] = []  # sizes
        self.order: list[int] = []  # in which they came in
        self.lines_of: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.num_tries = 0

    def arrive(self, size: int, line: str = "a") -> None:
        self.tasks.append(asyncio.create_task(self._enter(len(self.tasks), size, line)))
        self.lines_of.append(line)

    def leave(self) -> None:
        if self.inside:
            self.inside.pop(0)
            self.lines.departed()

    def order_of(self, line: str) -> list[int]:
        return [number for number in self.order if self.lines_of[number] == line]

    async def _enter(self, number: int, size: int, line: str) -> None:
        must_queue = self.lines.has_line(line)
        with self.lines.queue(line) as place:
            while must_queue or not self._has_room(size):
                await place.turn()
                must_queue = False
            self.inside.append(size)
            self.order.append(number)
            place.enter()

    def _has_room(self, size: int) -> bool:
        self.num_tries += 1
        return sum(self.inside) + size <= self.budget


async def test_first_in_line_may_try_after_a_while_and_nobody_before_it():
    lines = WaitingLines()
    first, second = lines.queue("a"), lines.queue("a")
    second_turn = asyncio.create_task(second.turn(0.0))

    await asyncio.wait_for(first.turn(0.0), 5)
    await settle()

    assert not second_turn.done()
    second_turn.cancel()


async def test_who_comes_back_stands_at_the_end():
    lines = WaitingLines()
    first, second = lines.queue("a"), lines.queue("a")
    lines.departed()
    first.enter()
    first.join()
    first.join()

    turns = [await waiting(first), await waiting(second)]

    assert [turn.done() for turn in turns] == [False, True]
    turns[0].cancel()
