"""How the work on the texts of a request asks the engines for what it needs, in as few batches as can be.

The work on a text is a coroutine: it awaits a search for each sentence, and knows neither where the engines run nor who
else waits.  What the works of one request ask for goes out as one batch as soon as all of them wait: a request is
admitted as a whole, and its sentences share their batches.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from service.engine.wire import Job, Settled

Result = TypeVar("Result")
SendJobs: TypeAlias = Callable[[Sequence[Job]], Awaitable[Sequence[Settled]]]  # returns what became of each, in order


class _Asked(NamedTuple):
    """What a work waits for."""

    jobs: Sequence[Job]
    results: "asyncio.Future[Sequence[Settled]]"
    work: "asyncio.Task[Any] | None"


class SearchBatcher:
    """The searches of one request; the works that ask for them run at the same time in one event loop."""

    def __init__(self, search: SendJobs, *, in_turns: bool = False) -> None:
        """Nothing is asked for yet.

        Args:
            search: has the engines do some jobs; an error of it ends the works that wait for them.
            in_turns: whether there is so much text that others have to get their turn after each piece of work.
        """
        self._send = search
        self._in_turns = in_turns
        self._working: set[asyncio.Task[Any] | None] = set()  # that wait neither for results nor for others
        self._asked: list[_Asked] = []  # and not sent
        self._sent: set[asyncio.Task[None]] = set()

    async def search(self, jobs: Sequence[Job]) -> Sequence[Settled]:
        """Return what became of each job."""
        me = asyncio.current_task()
        self._working.discard(me)
        if not self._working and not self._asked:
            results = await self._send(jobs)
            self._working.add(me)
            return results
        asked = _Asked(jobs, asyncio.get_running_loop().create_future(), me)
        self._asked.append(asked)
        self._send_if_all_wait()
        return await asked.results

    async def together(self, works: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
        """Return the results of works that run at the same time, in order; the first error ends them all."""
        if len(works) == 1:
            return [await works[0]]
        me, tasks, num_left = asyncio.current_task(), list[asyncio.Task[Result]](), len(works)
        self._working.add(me)

        def leave(task: "asyncio.Task[Result]") -> None:
            nonlocal num_left
            num_left -= 1
            if not num_left or task.cancelled() or task.exception() is not None:
                self._working.add(me)  # goes on
            self._working.discard(task)
            self._send_if_all_wait()

        try:
            for work in works:
                task = asyncio.create_task(work)
                task.add_done_callback(leave)
                self._working.add(task)
                tasks.append(task)
                if self._in_turns:
                    await asyncio.sleep(0)
            if num_left:
                self._working.discard(me)
                self._send_if_all_wait()
            return await asyncio.gather(*tasks)
        finally:
            for work in works[len(tasks) :]:
                work.close()
            await _end(tasks)
            self._working.add(me)

    async def close(self) -> None:
        """End what still runs."""
        await _end(self._sent)

    def _send_if_all_wait(self) -> None:
        if not self._working and any(not one.results.done() for one in self._asked):
            asked, self._asked = [one for one in self._asked if not one.results.done()], []
            sent = asyncio.create_task(self._answer(asked))
            self._sent.add(sent)
            sent.add_done_callback(self._sent.discard)

    async def _answer(self, asked: Sequence[_Asked]) -> None:
        """Give each work its results, or the error that all of them meet."""
        try:
            results = await self._send([job for one in asked for job in one.jobs])
        except Exception as error:  # noqa: BLE001  whoever waits raises it
            for one in asked:
                if not one.results.done():
                    one.results.set_exception(error)
            return
        self._working.update([one.work for one in asked if not one.results.done()])
        place = 0
        for one in asked:
            if not one.results.done():
                one.results.set_result(results[place : place + len(one.jobs)])
            place += len(one.jobs)
            if self._in_turns:
                await asyncio.sleep(0)


async def _end(tasks: "Iterable[asyncio.Task[Any]]") -> None:
    """Cancel those that still run, and return when they have ended."""
    if running := [task for task in tasks if not task.done()]:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
