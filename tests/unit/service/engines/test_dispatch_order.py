"""Which job the dispatcher gives to an engine next, and which never; with real engine processes."""

import asyncio
import time
from dataclasses import replace
from functools import partial

import pytest

from service.engine.job import JobResult, StepStats
from service.engine.scheduler import SchedulerConfig
from service.errors import DeadlineExceeded
from service.queue.callers import Caller, Priority
from service.queue.job_queue import Forecast
from tests.fakes.running_dispatcher import CONFIG, LONG, NORMAL, PARAMS, SLOW, SPEC, Counts, running

ONE_AT_A_TIME = replace(SPEC, scheduler=SchedulerConfig(max_rows=2))
A, B = Caller(name="a"), Caller(name="b")


def _note(answered: list[str], name: str, _: object) -> None:
    answered.append(name)


async def order_of(jobs: "dict[str, asyncio.Future[JobResult]]") -> list[str]:
    """Names of the jobs as they were answered."""
    answered: list[str] = []
    for name, job in jobs.items():
        job.add_done_callback(partial(_note, answered, name))
    async with asyncio.timeout(60):
        await asyncio.gather(*jobs.values())
    await asyncio.sleep(0)
    return answered


async def test_clients_take_turns():
    async with running(ONE_AT_A_TIME) as dispatcher:
        jobs = {f"a{n}": dispatcher.submit(NORMAL, PARAMS, None, caller=A) for n in range(3)}
        jobs |= {f"b{n}": dispatcher.submit(NORMAL, PARAMS, None, caller=B) for n in range(3)}

        assert await order_of(jobs) == ["a0", "b0", "a1", "b1", "a2", "b2"]


async def test_interactive_work_goes_first():
    async with running(ONE_AT_A_TIME) as dispatcher:
        jobs = {f"batch{n}": dispatcher.submit(NORMAL, PARAMS, None, priority=Priority.BATCH) for n in range(2)}
        jobs |= {f"interactive{n}": dispatcher.submit(NORMAL, PARAMS, None) for n in range(2)}

        assert await order_of(jobs) == ["interactive0", "interactive1", "batch0", "batch1"]


async def test_batch_work_ages():
    async with running(ONE_AT_A_TIME, replace(CONFIG, batch_aging_s=1e-9)) as dispatcher:
        jobs = {f"batch{n}": dispatcher.submit(NORMAL, PARAMS, None, priority=Priority.BATCH) for n in range(2)}
        jobs |= {f"interactive{n}": dispatcher.submit(NORMAL, PARAMS, None) for n in range(2)}

        assert await order_of(jobs) == ["interactive0", "batch0", "interactive1", "batch1"]


async def test_of_engines_with_as_many_rows_the_one_with_fewer_source_tokens_is_next():
    async with running(ONE_AT_A_TIME, replace(CONFIG, num_engines=2)) as dispatcher:
        jobs = {"long": dispatcher.submit(SLOW, LONG, None)}
        jobs |= {f"short{n}": dispatcher.submit(NORMAL, PARAMS, None) for n in range(3)}

        assert await order_of(jobs) == ["short0", "short1", "long", "short2"]


async def test_work_is_forecast_once_engines_have_reported_some():
    counts = Counts()
    async with running(ONE_AT_A_TIME, observer=counts) as dispatcher:
        assert dispatcher.forecast([10], PARAMS) == Forecast()
        jobs = [dispatcher.submit(SLOW, PARAMS, None) for _ in range(40)]
        await asyncio.gather(*jobs[:8])
        await counts.until(lambda: any(stats.waiting_jobs and stats.rows for stats in counts.stats))
        await jobs[9]

        assert dispatcher.queued_work_s > 0.0
        assert dispatcher.forecast([10], PARAMS).finish_s > dispatcher.forecast([10], PARAMS).ahead_s > 0.0
        for job in jobs:
            job.cancel()
        await asyncio.sleep(0)
        assert dispatcher.queued_jobs == 0


async def test_job_with_too_little_time_left_never_reaches_an_engine():
    counts = Counts()
    async with running(ONE_AT_A_TIME, observer=counts) as dispatcher:
        slowly = JobResult(job_id=0, hypotheses=(), queue_s=0.0, encode_s=0.0, decode_s=3_000.0, num_steps=3)
        for _ in range(40):
            dispatcher._backlog.finished(len(NORMAL), PARAMS, slowly)  # a thousand seconds a step
        blockers = [dispatcher.submit(SLOW, LONG, None) for _ in range(2)]
        await asyncio.sleep(0)
        late = dispatcher.submit(NORMAL, PARAMS, time.monotonic() + 600.0)
        await asyncio.sleep(0)
        blockers[1].cancel()
        dispatcher.schedule()

        with pytest.raises(DeadlineExceeded, match="too little time was left"):
            await asyncio.wait_for(late, 60)
        await asyncio.sleep(0)

        assert ("queue", "deadline") in counts.dropped
        assert (dispatcher.queued_jobs, dispatcher.queued_tokens) == (0, 0)
        blockers[0].cancel()


async def test_idle_engine_tries_whatever_was_measured():
    async with running(ONE_AT_A_TIME) as dispatcher:
        slowly = JobResult(job_id=0, hypotheses=(), queue_s=0.0, encode_s=0.0, decode_s=3_000.0, num_steps=3)
        for _ in range(40):
            dispatcher._backlog.finished(len(NORMAL), PARAMS, slowly)
        dispatcher._backlog.reported(StepStats(steps=1, rows=1, busy_s=1_000.0, waiting_jobs=1))

        await dispatcher.submit(NORMAL, PARAMS, time.monotonic() + 60.0)


async def test_starts_that_are_spread_come_without_another_event():
    """Two clients, a full engine, and nothing that happens but time."""
    async with running(ONE_AT_A_TIME) as dispatcher:
        jobs = {f"a{n}": dispatcher.submit(NORMAL, PARAMS, None, caller=A) for n in range(20)}
        jobs |= {f"b{n}": dispatcher.submit(NORMAL, PARAMS, None, caller=B) for n in range(20)}

        assert len(await order_of(jobs)) == 40
