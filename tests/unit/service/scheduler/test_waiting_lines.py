"""Lines in front of admission: order, wake-ups, and nobody forgotten."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from service.scheduler.waiting_lines import Waiter, WaitingLines


async def settle(rounds: int = 5) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0)


class Crowd:
    """Texts that wait for room in a budget."""

    def __init__(self, budget: int = 10) -> None:
        self.lines = WaitingLines()
        self.budget = budget
        self.inside: list[int] = []  # sizes
        self.order: list[int] = []  # in which they came in
        self.lines_of: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.num_tries = 0

    async def arrive(self, *lines: str, size: int = 1) -> None:
        for line in lines:
            self.tasks.append(asyncio.create_task(self._enter(len(self.tasks), size, line)))
            self.lines_of.append(line)
        await settle()

    async def leave(self, rounds: int = 5) -> None:
        if self.inside:
            self.inside.pop(0)
            self.lines.departed()
        await settle(rounds)

    async def _enter(self, number: int, size: int, line: str) -> None:
        must_queue = self.lines.has_line(line)
        with self.lines.queue(line) as waiter:
            while must_queue or not self._has_room(size):
                await waiter.turn()
                must_queue = False
            self.inside.append(size)
            self.order.append(number)
            waiter.enter()

    def _has_room(self, size: int) -> bool:
        self.num_tries += 1
        return sum(self.inside) + size <= self.budget

    def close(self) -> None:
        for task in self.tasks:
            task.cancel()


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    """With room for one text at a time."""
    crowd = Crowd(budget=1)
    yield crowd
    crowd.close()


async def test_departure_lets_the_first_in_line_in_and_each_the_line_that_waits_longest(crowd):
    await crowd.arrive("first", "greedy", "greedy", "modest")
    assert crowd.order == [0]

    for _ in range(3):
        await crowd.leave()

    assert crowd.order == [0, 1, 3, 2]
    assert not any(map(crowd.lines.has_line, ("greedy", "modest")))


async def test_thousand_lines_cost_a_departure_one_refusal(crowd):
    """What leaves makes room for one of them, and for no second one."""
    await crowd.arrive(*map(str, range(1_000)))
    tries = crowd.num_tries

    for _ in range(10):
        await crowd.leave()

    assert len(crowd.order) == 11
    assert crowd.num_tries - tries == 20


@pytest.mark.parametrize("num_lines", [1, 5])
async def test_everybody_gets_in_once_as_much_leaves_as_came(num_lines):
    """Random sizes, arrivals, departures and cancels against a budget: who is not cancelled gets in, in its order."""
    for seed in range(50):
        await require_everybody_in_order(num_lines, random.Random(seed), Crowd())


async def require_everybody_in_order(num_lines: int, seeded: random.Random, crowd: Crowd) -> None:
    for _ in range(60):
        match seeded.choice(["arrive", "arrive", "leave", "cancel"]):
            case "arrive":
                await crowd.arrive(f"{seeded.randrange(num_lines)}", size=seeded.randint(1, 10))
            case "leave":
                await crowd.leave()
            case "cancel" if crowd.tasks:
                seeded.choice(crowd.tasks).cancel()
                await settle()
    while crowd.inside:
        await crowd.leave()
    results = await asyncio.wait_for(asyncio.gather(*crowd.tasks, return_exceptions=True), 60)

    assert sorted(crowd.order) == [number for number, result in enumerate(results) if result is None]
    for line in set(crowd.lines_of):
        came_in = [number for number in crowd.order if crowd.lines_of[number] == line]
        assert came_in == sorted(came_in)


class TestWaiter:
    """One departure more, and what a text in the middle of its try must not miss."""

    async def waiting(self, waiter: Waiter) -> "asyncio.Task[None]":
        task = asyncio.create_task(waiter.turn())
        await settle()
        return task

    async def test_first_in_line_may_try_after_a_while_and_nobody_before_it(self):
        lines = WaitingLines()
        first, second = lines.queue("a"), lines.queue("a")
        second_turn = asyncio.create_task(second.turn(0.0))

        await asyncio.wait_for(first.turn(0.0), 60)
        await settle()

        assert not second_turn.done()
        second_turn.cancel()

    async def test_who_comes_back_stands_at_the_end(self):
        lines = WaitingLines()
        first, second = lines.queue("a"), lines.queue("a")
        lines.departed()
        first.enter()
        first.join()
        first.join()

        turns = [await self.waiting(first), await self.waiting(second)]

        assert [turn.done() for turn in turns] == [False, True]
        turns[0].cancel()
