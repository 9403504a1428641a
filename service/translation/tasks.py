"""What texts need from the engine, in rounds: a text asks, everybody's questions run together, each gets its replies.

A part of the work is a generator: it yields the tasks that it needs done next, is sent one reply for each, and returns
its result.  So the work on a text knows neither asyncio nor where the engine runs, and a server and a process that
translates for itself drive the same code.
"""

from collections.abc import Generator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from service.engine.job import JobResult, SearchParams
from service.errors import InternalError

Result = TypeVar("Result")


class Task(NamedTuple):
    """A sentence to translate, or a translation of it to score."""

    source_ids: tuple[int, ...]  # ends with end-of-sentence
    params: SearchParams
    prefix_ids: tuple[int, ...] = ()
    scored_ids: tuple[int, ...] | None = None


class Reply(NamedTuple):
    """What became of a task."""

    result: JobResult | InternalError
    beam_size: int  # of the search
    num_alternatives: int = 1  # searches with a beam each

    @property
    def row_steps(self) -> int:
        """Hypotheses x decoder steps of the search."""
        if isinstance(self.result, InternalError):
            return 0
        return self.beam_size * self.num_alternatives * self.result.num_steps


Rounds: TypeAlias = Generator[list[Task], list[Reply], Result]  # never yields an empty list


def together(works: Sequence[Rounds[Result]]) -> Rounds[list[Result]]:
    """Run several works in the same rounds, and return their results in order."""
    if len(works) == 1:
        return [(yield from works[0])]
    results: dict[int, Result] = {}
    asking: list[tuple[int, int]] = []  # index of a work, number of its tasks
    tasks: list[Task] = []
    for index, work in enumerate(works):
        try:
            asked = next(work)
        except StopIteration as stop:
            results[index] = stop.value
        else:
            asking.append((index, len(asked)))
            tasks += asked
    while asking:
        replies = yield tasks
        asked_before, asking, tasks, place = asking, [], [], 0
        for index, num_tasks in asked_before:
            try:
                asked = works[index].send(replies[place : place + num_tasks])
            except StopIteration as stop:
                results[index] = stop.value
            else:
                asking.append((index, len(asked)))
                tasks += asked
            place += num_tasks
    return [results[index] for index in range(len(works))]
