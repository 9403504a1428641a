"""What the core does for a call: its texts go in as token ids, and hypotheses come out.

room for the tokens -> in time? -> a job for each text -> results
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from service.config import LimitsConfig
from service.engine.job import JobResult, SearchParams
from service.engines.dispatcher import Dispatcher
from service.errors import DeadlineExceeded, InternalError
from service.queue.admission import Permit
from service.records import Call
from service.registry.model_info import smaller_beam

Settled: TypeAlias = JobResult | InternalError  # an error that concerns this text only
OnRoom: TypeAlias = Callable[[], None] | None  # called once there is room for the texts, before they go to an engine


class Work(NamedTuple):
    """The texts of one call that need the model, and how it is to search."""

    sources: tuple[tuple[int, ...], ...]  # ids with end-of-sentence; none is empty
    params: SearchParams
    allow_smaller_beam: bool = False  # where much work waits


class WorkDone(NamedTuple):
    """What became of a call's texts."""

    results: list[Settled]  # in the order of the sources
    beam_size: int  # of the search


async def run_work(
    work: Work, call: Call, permit: Permit, dispatcher: Dispatcher, limits: LimitsConfig, on_room: OnRoom = None
) -> WorkDone:
    """Have the engines translate all texts of a call; a text for which the model gave no numbers has its own error.

    Raises:
        Overloaded: the texts do not fit in the queue, would wait too long or be too late.
        DeadlineExceeded, Unavailable: the call has no answer; jobs that still run are cancelled.
    """
    params = work.params
    if work.allow_smaller_beam:
        waiting_s, threshold_s = dispatcher.queued_work_s, limits.brownout_seconds
        params = smaller_beam(params, waiting_s=waiting_s, threshold_s=threshold_s)
    lengths = [len(source) for source in work.sources]
    permit.take_tokens(sum(lengths))
    check_time(lengths, params, call, permit, dispatcher)
    if on_room is not None:
        on_room()
    call.phase = "queue"
    if len(lengths) == 1:
        results = [await _run_one(work.sources[0], params, call, dispatcher)]
    else:
        results = await _run_all(work.sources, params, call, dispatcher)
    return WorkDone(results, params.beam_size)


def check_time(
    lengths: Sequence[int], params: SearchParams, call: Call, permit: Permit, dispatcher: Dispatcher
) -> None:
    """Refuse texts with so many source tokens each if they would wait too long or be too late."""
    ahead_s, finish_s = dispatcher.forecast(lengths, params, call)
    permit.check(ahead_s, finish_s, now=time.monotonic(), deadline=call.deadline)


async def _run_one(source: tuple[int, ...], params: SearchParams, call: Call, dispatcher: Dispatcher) -> Settled:
    try:
        result = await dispatcher.submit(source, params, call)
    except InternalError as error:
        call.finished_texts += 1
        return error
    call.job_finished(result)
    return result


async def _run_all(
    sources: Sequence[tuple[int, ...]], params: SearchParams, call: Call, dispatcher: Dispatcher
) -> list[Settled]:
    """Return the results in order; raise the first error that concerns more than its own text."""
    jobs: dict[int, asyncio.Future[JobResult]] = {}
    # The longest first: they take the most steps, and the call is answered when its last text is.
    for index in sorted(range(len(sources)), key=lambda index: -len(sources[index])):
        jobs[index] = dispatcher.submit(sources[index], params, call)
        jobs[index].add_done_callback(partial(_count, call))
    pending = set(jobs.values())
    try:
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
            for job in done:
                if (error := job.exception()) and not isinstance(error, InternalError):
                    raise error
    except DeadlineExceeded as error:
        for job in pending:
            if not job.done():
                job.set_exception(error)  # as late as the call: nobody has cancelled it
        raise
    finally:
        for job in pending:
            job.cancel()  # does nothing to those that are done
    return [_settled(jobs[index]) for index in range(len(sources))]


def _settled(job: "asyncio.Future[JobResult]") -> Settled:
    error = job.exception()
    return error if isinstance(error, InternalError) else job.result()


def _count(call: Call, job: "asyncio.Future[JobResult]") -> None:
    """Note in the call that a job has settled."""
    if job.cancelled():
        return
    error = job.exception()
    if error is None:
        call.job_finished(job.result())
    elif isinstance(error, InternalError):
        call.finished_texts += 1
