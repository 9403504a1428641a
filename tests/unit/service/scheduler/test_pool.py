"""The pool around engines that the test steps by hand: what they are given, and how each job's future ends."""

import asyncio
import time
import weakref
from dataclasses import replace

import pytest

from service.call import Caller
from service.engine.wire import FailureKind, Job, JobFailure, JobResult, Report, SchedulerConfig, StepStats
from service.errors import DeadlineExceeded, InternalError, OutOfMemory, Unavailable
from service.processes.supervisor import StartError
from service.records import Priority
from service.scheduler.packed_weights import PackedWeights
from tests.fakes.engine_pools import (
    CONFIG,
    LONG,
    NORMAL,
    PARAMS,
    SPEC,
    Counts,
    call_within,
    expected,
    hand_stepped,
    make_pool,
    settle,
    submit,
    work,
)

TWO = replace(CONFIG, num_engines=2)
ONE_AT_A_TIME = replace(SPEC, scheduler=SchedulerConfig(max_rows=2))
A, B = Caller(name="a"), Caller(name="b")
RESULT = JobResult(job_id=0, hypotheses=(), queue_s=0.0, encode_s=0.0, decode_s=0.1, num_steps=10)


def failure(kind: FailureKind) -> JobFailure:
    return JobFailure(job_id=0, kind=kind, message="why")


async def test_start_that_fails_ends_the_engines_that_had_started_and_removes_what_was_prepared(monkeypatch):
    pool, engines = make_pool(SPEC, TWO)
    removed: list[bool] = []

    async def fail() -> None:
        await settle()
        assert engines[0].process is not None
        raise StartError("no such graph")

    monkeypatch.setattr(engines[1], "start", fail)
    monkeypatch.setattr(PackedWeights, "remove", lambda _: removed.append(True))

    with pytest.raises(InternalError, match="the engine did not start: no such graph"):
        await pool.start()

    assert engines[0].process is None
    assert removed


class TestHandOut:
    async def test_engine_that_runs_less_for_want_of_memory_is_given_less(self):
        async with hand_stepped(SPEC, CONFIG) as (pool, engines):
            engines[0].report(Report((), StepStats(max_rows=4)))
            for _ in range(9):
                submit(pool, Job(NORMAL, PARAMS), call_within(3_600.0))
            await settle()

            assert pool.running_jobs == 3  # 4 rows of 2, and one to look ahead
            assert [engine.max_rows for engine in pool.snapshots(time.monotonic())] == [4]
            engines[0].die(is_delayed=False)  # another one has the memory that it is told to take
            assert [engine.max_rows for engine in pool.snapshots(time.monotonic())] == [8]

    async def test_callers_take_turns_and_interactive_work_goes_first(self):
        async with hand_stepped(ONE_AT_A_TIME, CONFIG) as (pool, engines):
            submit(pool, Job(NORMAL, PARAMS), call_within(60.0, A, Priority.BATCH))  # 0
            for caller in (A, A, B, B):  # 1 to 4
                submit(pool, Job(NORMAL, PARAMS), call_within(60.0, caller))
            last = submit(pool, Job(NORMAL, PARAMS), call_within(60.0, B, Priority.BATCH))
            await work(engines, last)

            assert engines[0].started_ids == [1, 3, 2, 4, 0, 5]


class TestEstimates:
    async def test_work_is_forecast_once_engines_have_reported_some(self):
        async with hand_stepped(ONE_AT_A_TIME, CONFIG) as (pool, engines):
            assert pool.forecast([10], PARAMS, call_within(3_600.0)) == (0.0, 0.0)
            jobs = [submit(pool, Job(NORMAL, PARAMS), call_within(3_600.0)) for _ in range(40)]
            await work(engines, *jobs[:8])

            assert pool.queued_work_s > 0.0
            ahead_s, finish_s = pool.forecast([10], PARAMS, call_within(3_600.0))
            assert finish_s > ahead_s > 0.0

    async def test_job_with_too_little_time_left_never_reaches_an_engine_unless_it_is_idle(self):
        counts = Counts()
        async with hand_stepped(ONE_AT_A_TIME, CONFIG, counts) as (pool, engines):
            for number in range(5):
                submit(pool, Job(NORMAL, PARAMS), call_within(3_600.0))
                await settle()
                slowly = JobResult(
                    job_id=number, hypotheses=(), queue_s=0.0, encode_s=0.0, decode_s=3_000.0, num_steps=3
                )
                engines[0].report(Report((slowly,)))

            tried = submit(pool, Job(NORMAL, PARAMS), call_within(600.0))
            await settle()
            late = submit(pool, Job(NORMAL, PARAMS), call_within(600.0))
            await settle()

            assert not tried.done()
            with pytest.raises(DeadlineExceeded, match="too little time was left"):
                await late
            assert (pool.queued_jobs, pool.queued_tokens) == (0, 0)
            assert counts.dropped == [("queue", "deadline")]


class TestDrops:
    """Jobs that are cancelled or late."""

    async def test_deadline_in_the_past_fails_at_once(self):
        async with hand_stepped(SPEC, CONFIG) as (pool, _):
            with pytest.raises(DeadlineExceeded):
                await submit(pool, Job(NORMAL, PARAMS), call_within(-1.0))

    @pytest.mark.promise("B3")
    @pytest.mark.parametrize(("num_blockers", "where", "words"), [(5, "queue", "queued"), (0, "decode", "decoding")])
    async def test_deadline_holds_in_the_queue_and_beside_an_engine_that_is_stuck(self, num_blockers, where, words):
        counts = Counts()
        async with hand_stepped(SPEC, CONFIG, counts) as (pool, _):
            for _ in range(num_blockers):
                submit(pool, Job(NORMAL, PARAMS), call_within(3_600.0))
            late = submit(pool, Job(NORMAL, PARAMS), call_within(0.5))

            with pytest.raises(DeadlineExceeded, match=words):
                await late
            await settle()
            assert counts.dropped == [(where, "deadline")]

    async def test_answered_job_is_not_kept_until_its_deadline(self):
        async with hand_stepped(SPEC, CONFIG) as (pool, engines):
            job = submit(pool, Job(NORMAL, PARAMS), call_within(3_600.0))
            await work(engines, job)
            await settle()
            kept = weakref.ref(job)
            del job

            assert kept() is None

    async def test_job_cancelled_as_its_turn_comes_never_reaches_the_engine(self):
        counts = Counts()
        async with hand_stepped(ONE_AT_A_TIME, CONFIG, counts) as (pool, engines):
            jobs = [submit(pool, Job(NORMAL, PARAMS), call_within(60.0, A, Priority.BATCH)) for _ in range(3)]
            await asyncio.sleep(0)
            for job in jobs[:2]:
                job.cancel()
            await work(engines, jobs[2])

            assert counts.dropped == [("queue", "cancelled")] * 2
            assert engines[0].started_ids == [2]
            assert pool.running_jobs == 0

    async def test_job_cancelled_while_decoding_frees_its_rows(self):
        counts = Counts()
        async with hand_stepped(SPEC, CONFIG, counts) as (pool, engines):
            jobs = [submit(pool, Job(NORMAL, LONG), call_within(3_600.0)) for _ in range(5)]
            await settle()
            engines[0].step()
            assert pool.live_rows == 8

            for job in jobs:
                job.cancel()
            await settle()
            stats = engines[0].step()

            assert (pool.running_jobs, pool.live_rows) == (0, 0)
            assert counts.dropped == [("decode", "cancelled")] * 5
            assert stats.wasted_steps > 0

    @pytest.mark.parametrize(("late_in_s", "reason"), [(-0.1, "deadline"), (3600.0, "cancelled")])
    async def test_job_that_its_call_takes_back_at_its_deadline_was_not_cancelled(self, late_in_s, reason):
        counts = Counts()
        async with hand_stepped(SPEC, CONFIG, counts) as (pool, _):
            job = submit(pool, Job(NORMAL, PARAMS), call_within(late_in_s))
            await asyncio.sleep(0)
            job.cancel()
            await settle()

            assert [why for _, why in counts.dropped] == [reason]


class TestLosses:
    async def test_lost_engine_fails_its_jobs_and_its_replacement_serves_the_queue(self):
        counts = Counts()
        async with hand_stepped(SPEC, CONFIG, counts) as (pool, engines):
            jobs = [submit(pool, Job(NORMAL, PARAMS), call_within(3_600.0)) for _ in range(7)]
            await settle()
            engines[0].step()
            engines[0].die(is_delayed=False)
            await settle()

            assert [job.done() for job in jobs] == [True] * 5 + [False] * 2
            with pytest.raises(Unavailable, match="killed by the test"):
                await jobs[0]
            assert (pool.is_ready, pool.queued_jobs, counts.losses) == (False, 2, 1)
            (lost,) = pool.snapshots(time.monotonic())
            assert (lost.pid, lost.state, lost.restarts, lost.rows) == (None, "starting", 1, 0)
            engines[0].come_back()
            await work(engines, *jobs)
            assert jobs[-1].result().hypotheses == expected(NORMAL).hypotheses

    async def test_nobody_waits_while_all_replacements_pause(self):
        async with hand_stepped(SPEC, TWO) as (pool, engines):
            jobs = [submit(pool, Job(NORMAL, PARAMS), call_within(3_600.0)) for _ in range(12)]
            await settle()
            engines[0].die(is_delayed=True)
            await settle()
            assert [job.done() for job in jobs[10:]] == [False] * 2  # another engine is up

            engines[1].die(is_delayed=True)
            await settle()
            for job in (jobs[-1], submit(pool, Job(NORMAL, PARAMS), call_within(3_600.0))):
                with pytest.raises(Unavailable, match=r"no engine process is running; the next start.*0\.5 s away"):
                    await job
            assert [engine.state for engine in pool.snapshots(time.monotonic())] == ["waiting"] * 2
            assert (pool.engines, pool.missing_engines) == (0, 2)

            engines[0].retry_in_s = None  # the attempt has begun
            with pytest.raises(Unavailable, match="no engine process is running; one is being started"):
                await submit(pool, Job(NORMAL, PARAMS), call_within(3_600.0))
            engines[0].come_back()
            await work(engines, answered := submit(pool, Job(NORMAL, PARAMS), call_within(3_600.0)))
            assert answered.result().hypotheses == expected(NORMAL).hypotheses

    async def test_closed_pool_refuses_and_fails_what_is_not_done(self):
        async with hand_stepped(SPEC, CONFIG) as (pool, _):
            jobs = [submit(pool, Job(NORMAL, PARAMS), call_within(3_600.0)) for _ in range(7)]
            await settle()

            await pool.close()

            results = await asyncio.gather(*jobs, return_exceptions=True)
            assert [type(result) for result in results] == [Unavailable] * 7
            with pytest.raises(Unavailable, match="stopping"):
                await submit(pool, Job(NORMAL, PARAMS), call_within(3_600.0))
            assert (pool.is_ready, pool.missing_engines) == (False, 0)


class TestFaults:
    @pytest.mark.parametrize(
        ("between", "is_unhealthy"),
        [(None, True), (Report((RESULT,)), False), ("loss", False)],
        ids=["in a row", "a result between them", "another process between them"],
    )
    async def test_engine_that_gives_64_sentences_in_a_row_non_finite_scores_is_unhealthy(self, between, is_unhealthy):
        async with hand_stepped(SPEC, CONFIG) as (_, (engine,)):
            engine.report(Report((failure(FailureKind.NON_FINITE),) * 63))
            if between == "loss":
                engine.die(is_delayed=False)
                engine.come_back()
            elif between is not None:
                engine.report(between)
            engine.report(Report((failure(FailureKind.NON_FINITE),) * (1 if is_unhealthy else 63)))

            assert ("64 sentences in a row" in engine.fault) == is_unhealthy

    @pytest.mark.parametrize(
        ("kind", "error"),
        [
            (FailureKind.DEADLINE, DeadlineExceeded),
            (FailureKind.OUT_OF_MEMORY, OutOfMemory),
            (FailureKind.NON_FINITE, InternalError),
            (FailureKind.INTERNAL, InternalError),
        ],
    )
    async def test_failure_of_a_job_is_an_error_of_its_kind(self, kind, error):
        async with hand_stepped(SPEC, CONFIG) as (pool, (engine,)):
            call = call_within(60.0)
            job = submit(pool, Job(NORMAL, PARAMS), call)
            await settle()
            engine.report(Report((failure(kind), RESULT)))  # the second outcome is too late: nothing happens

            with pytest.raises(error, match="why"):
                await job
            assert call.target_tokens == 0
