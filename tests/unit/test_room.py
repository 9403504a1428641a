"""Lines in front of admission: order, wake-ups, and nobody forgotten."""

import asyncio
import random

import pytest

from service.traffic.room import Place, Room


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def waiting(place: Place) -> "asyncio.Task[None]":
    task = asyncio.create_task(place.turn())
    await settle()
    return task


async def test_first_in_line_tries_when_something_has_left():
    room = Room()
    first, second = room.queue("a"), room.queue("a")
    turns = [await waiting(first), await waiting(second)]
    assert not any(turn.done() for turn in turns)

    room.departed()
    await settle()

    assert [turn.done() for turn in turns] == [True, False]
    turns[1].cancel()


async def test_one_departure_is_one_turn():
    room = Room()
    place = room.queue("a")
    room.departed()
    await place.turn()

    turn = await waiting(place)
    assert not turn.done()
    turn.cancel()


async def test_departure_during_a_try_is_not_lost():
    room = Room()
    place = room.queue("a")
    room.departed()
    await place.turn()
    room.departed()  # while the place tries

    assert (await waiting(place)).done()


async def test_next_tries_when_the_first_is_in():
    room = Room()
    first, second = room.queue("a"), room.queue("a")
    turn = await waiting(second)

    first.leave()
    await settle()

    assert turn.done()


async def test_who_leaves_from_the_middle_wakes_nobody():
    room = Room()
    places = [room.queue("a") for _ in range(3)]
    turns = [await waiting(places[0]), await waiting(places[2])]

    places[1].leave()
    await settle()

    assert not any(turn.done() for turn in turns)
    for turn in turns:
        turn.cancel()


async def test_each_client_has_a_line():
    room = Room()
    turns = [await waiting(room.queue(client)) for client in ("greedy", "greedy", "modest")]

    room.departed()
    await settle()

    assert [turn.done() for turn in turns] == [True, False, True]
    turns[1].cancel()


async def test_line_is_gone_with_its_last_place():
    room = Room()
    with room.queue("a") as place:
        assert room.has_line("a")
        place.leave()
        assert not room.has_line("a")
    assert not room.has_line("a")
    room.departed()


@pytest.mark.parametrize("seed", range(100))
async def test_everybody_gets_in_once_as_much_leaves_as_came(seed):
    """Random sizes, arrivals, departures and cancels against a budget: who is not cancelled gets in, in order."""
    seeded, crowd = random.Random(seed), Crowd()
    for _ in range(60):
        match seeded.choice(["arrive", "arrive", "leave", "cancel"]):
            case "arrive":
                crowd.arrive(seeded.randint(1, 10))
            case "leave":
                crowd.leave()
            case "cancel" if crowd.tasks:
                seeded.choice(crowd.tasks).cancel()
        await settle()
    while crowd.inside:
        crowd.leave()
        await settle()
    results = await asyncio.wait_for(asyncio.gather(*crowd.tasks, return_exceptions=True), 5)

    assert crowd.order == [number for number, result in enumerate(results) if result is None]


class Crowd:
    """Waits for room in a budget of ten."""

    def __init__(self) -> None:
        self.room = Room()
        self.inside: list[int] = []  # sizes
        self.order: list[int] = []  # in which they came in
        self.tasks: list[asyncio.Task[None]] = []

    def arrive(self, size: int) -> None:
        self.tasks.append(asyncio.create_task(self._enter(len(self.tasks), size)))

    def leave(self) -> None:
        if self.inside:
            self.inside.pop(0)
            self.room.departed()

    async def _enter(self, number: int, size: int) -> None:
        must_queue = self.room.has_line("a")
        with self.room.queue("a") as place:
            while must_queue or sum(self.inside) + size > 10:
                await place.turn()
                must_queue = False
            self.inside.append(size)
            self.order.append(number)
            place.leave()


async def test_first_in_line_may_try_after_a_while_and_nobody_before_it():
    room = Room()
    first, second = room.queue("a"), room.queue("a")
    second_turn = asyncio.create_task(second.turn(0.0))

    await asyncio.wait_for(first.turn(0.0), 5)
    await settle()

    assert not second_turn.done()
    second_turn.cancel()


async def test_who_comes_back_stands_at_the_end():
    room = Room()
    first, second = room.queue("a"), room.queue("a")
    room.departed()
    first.leave()
    first.join()
    first.join()

    turns = [await waiting(first), await waiting(second)]

    assert [turn.done() for turn in turns] == [False, True]
    turns[0].cancel()
