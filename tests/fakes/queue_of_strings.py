"""A fair queue of strings, at a moment that the test sets."""

import pytest

from service.queue.callers import Caller, Priority
from service.queue.fair_queue import Entry, FairQueue

INTERACTIVE, BATCH = Priority.INTERACTIVE, Priority.BATCH
AGING_S = 10.0


class Line:
    """The queue, and the entry of everything that was put into it."""

    def __init__(self) -> None:
        self.queue: FairQueue[str] = FairQueue(aging_s=AGING_S)
        self.now = 0.0
        self.entries: dict[str, Entry[str]] = {}

    def push(
        self, item: str, caller: str = "a", *, cost: float = 1.0, priority: Priority = INTERACTIVE, weight: float = 1.0
    ) -> None:
        who = Caller(name=caller, weight=weight)
        self.entries[item] = self.queue.push(item, caller=who, priority=priority, cost=cost, now=self.now)

    def push_many(self, caller: str, number: int, **options: float) -> None:
        for index in range(number):
            self.push(f"{caller}{index}", caller, **options)  # type: ignore[arg-type]

    def pop(self) -> str:
        entry = self.queue.peek(self.now)
        assert entry is not None
        self.queue.serve(entry)
        return entry.item

    def pop_all(self) -> list[str]:
        return [self.pop() for _ in range(len(self.queue))]


@pytest.fixture
def line() -> Line:
    return Line()
