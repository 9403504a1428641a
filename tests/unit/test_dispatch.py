"""The dispatcher with real engine processes around a scripted model.

The token a source begins with says what the engine does with it: see tests/fakes/fake_runner.py.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pytest

from model.config import EOS_ID
from service.dispatch.dispatcher import DispatchConfig, Dispatcher
from service.engine.job import FailureKind, Job, JobFailure, JobResult, SearchParams, StepStats
from service.engine.loop import EngineLoop
from service.engine.process import Report
from service.engine.scheduler import SchedulerConfig
from service.engine.spec import EngineSpec
from service.errors import DeadlineExceeded, InternalError, Unavailable
from service.telemetry.calls import Progress, follow
from service.traffic.backlog import Load
from tests.fakes.fake_runner import (
    BROKEN_TOKEN,
    CRASH_TOKEN,
    NAN_TOKEN,
    POISON_TOKEN,
    SLOW_TOKEN,
    STUCK_TOKEN,
    FakeRunner,
)

SPEC = EngineSpec(
    bundle_dir=Path("no-bundle"),
    scheduler=SchedulerConfig(max_rows=8),
    heartbeat_interval_s=0.02,
    runner_factory="tests.fakes.fake_runner:create",
)
CONFIG = DispatchConfig(lookahead_jobs=1, restart_backoff_s=0.01, start_timeout_s=60.0)
PARAMS = SearchParams(beam_size=2, max_target_tokens=12)
LONG = replace(PARAMS, max_target_tokens=500)

NORMAL = (5, 6, EOS_ID)
SLOW = (SLOW_TOKEN, *range(5, 25), EOS_ID)  # so long that it needs a good second


@dataclass
class Counts:
    """An EngineObserver that remembers."""

    stats: list[StepStats] = field(default_factory=list)
    restarts: int = 0
    dropped: list[tuple[str, str]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def step(self, stats: StepStats) -> None:
        self.stats.append(stats)
        self.changed.set()

    def engine_restarted(self) -> None:
        self.restarts += 1
        self.changed.set()

    def job_dropped(self, where: Literal["queue", "decode"], reason: str) -> None:
        self.dropped.append((where, reason))
        self.changed.set()

    async def until(self, fact: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not fact():
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def running(
    spec: EngineSpec = SPEC, config: DispatchConfig = CONFIG, observer: Counts | None = None
) -> AsyncIterator[Dispatcher]:
    dispatcher = Dispatcher(spec, config, observer=observer)
    await dispatcher.start()
    try:
        yield dispatcher
    finally:
        await dispatcher.close()


def expected(source: tuple[int, ...], params: SearchParams = PARAMS) -> JobResult:
    """What an engine in this process makes of the sentence."""
    engine = EngineLoop(FakeRunner())
    engine.submit(Job(id=0, source_ids=source, params=params))
    while not engine.is_idle:
        for outcome in engine.step():
            assert isinstance(outcome, JobResult)
            return outcome
    raise AssertionError


async def test_results_are_the_engines_and_come_for_every_job():
    sources = [(5 + n % 20, 6, 7 + n % 9, EOS_ID) for n in range(40)]

    async with running() as dispatcher:
        assert dispatcher.is_ready
        results = await asyncio.gather(*(dispatcher.submit(source, PARAMS, None) for source in sources))
        assert (dispatcher.queued_jobs, dispatcher.queued_tokens, dispatcher.running_jobs) == (0, 0, 0)

    assert [result.hypotheses for result in results] == [expected(source).hypotheses for source in sources]
    assert all(result.queue_s >= 0 and result.num_steps > 0 for result in results)


async def test_queue_counts_what_the_engine_has_no_credit_for():
    async with running() as dispatcher:
        jobs = [dispatcher.submit(SLOW, PARAMS, None) for _ in range(9)]
        assert dispatcher.queued_jobs == 9

        await asyncio.sleep(0)  # the pump

        assert dispatcher.running_jobs == 5  # 8 rows of 2, and one to look ahead
        assert dispatcher.queued_jobs == 4
        assert dispatcher.queued_tokens == 4 * len(SLOW)
        for job in jobs:
            job.cancel()


async def test_engine_that_runs_less_for_want_of_memory_is_given_less():
    async with running() as dispatcher:
        jobs = [dispatcher.submit(SLOW, PARAMS, None) for _ in range(9)]
        dispatcher._slots[0].heard(Report((), StepStats(max_rows=4)))
        await asyncio.sleep(0)

        assert dispatcher.running_jobs == 3  # 4 rows of 2, and one to look ahead
        assert [engine.max_rows for engine in dispatcher.snapshot(time.monotonic()).engines] == [4]
        assert dispatcher._load() == Load(num_engines=1, rows=6, max_rows=4)
        for job in jobs:
            job.cancel()


async def test_jobs_go_to_the_engine_with_the_fewest_rows():
    async with running(config=replace(CONFIG, num_engines=2)) as dispatcher:
        assert len(set(dispatcher.engine_pids)) == 2
        jobs = [dispatcher.submit(SLOW, PARAMS, None) for _ in range(4)]
        await asyncio.sleep(0)

        assert [slot.rows for slot in dispatcher._slots] == [4, 4]
        for job in jobs:
            job.cancel()


async def test_snapshot_shows_what_waits_and_what_each_engine_holds():
    counts, progress = Counts(), [Progress() for _ in range(7)]
    async with running(observer=counts) as dispatcher:
        jobs = []
        for one in progress:
            follow(one)
            one.phase = "queue"
            jobs.append(dispatcher.submit(SLOW, PARAMS, None))
        await counts.until(lambda: any(stats.live_rows == 8 for stats in counts.stats))
        seen = dispatcher.snapshot(time.monotonic())
        (pid,) = dispatcher.engine_pids
        for job in jobs:
            job.cancel()

    assert (seen.queued_jobs, seen.queued_tokens) == (2, 2 * len(SLOW))
    (engine,) = seen.engines
    assert (engine.pid, engine.state, engine.jobs, engine.rows, engine.max_rows) == (pid, "up", 5, 8, 8)
    assert engine.restarts == 0
    assert engine.silent_s < 60.0
    assert [one.phase for one in progress] == ["decode"] * 5 + ["queue"] * 2


async def test_snapshot_tells_of_an_engine_that_was_lost():
    counts = Counts()
    async with running(observer=counts) as dispatcher:
        (pid,) = dispatcher.engine_pids
        os.kill(pid, signal.SIGKILL)
        await counts.until(lambda: counts.restarts == 1)
        (lost,) = dispatcher.snapshot(time.monotonic()).engines

    assert (lost.pid, lost.state, lost.restarts, lost.rows) == (None, "starting", 1, 0)


async def test_killed_engine_fails_its_jobs_and_its_replacement_serves_the_queue_and_the_next():
    counts = Counts()
    async with running(observer=counts) as dispatcher:
        (pid,) = dispatcher.engine_pids
        jobs = [dispatcher.submit(SLOW, PARAMS, None) for _ in range(7)]
        await counts.until(lambda: any(stats.steps for stats in counts.stats))

        os.kill(pid, signal.SIGKILL)
        results = await asyncio.gather(*jobs, return_exceptions=True)

        assert [type(result) for result in results] == [Unavailable] * 5 + [JobResult] * 2
        assert "SIGKILL" in str(results[0])
        assert (await dispatcher.submit(NORMAL, PARAMS, None)).hypotheses == expected(NORMAL).hypotheses
        assert dispatcher.engine_pids != [pid]
        assert counts.restarts == 1


async def test_engine_that_crashes_costs_its_own_jobs_only():
    async with running() as dispatcher:
        with pytest.raises(Unavailable, match="exit status 7"):
            await dispatcher.submit((CRASH_TOKEN, EOS_ID), PARAMS, None)
        assert not dispatcher.is_ready

        assert (await dispatcher.submit(NORMAL, PARAMS, None)).hypotheses == expected(NORMAL).hypotheses


async def test_engine_that_fails_in_the_decoder_says_so_on_standard_error(capfd):
    async with running() as dispatcher:
        with pytest.raises(Unavailable, match="exit status 1"):
            await dispatcher.submit((BROKEN_TOKEN, EOS_ID), PARAMS, None)

    assert "RuntimeError: broken decoder" in capfd.readouterr().err


@pytest.mark.parametrize("how", ["stopped", "endless operation"])
async def test_engine_that_stops_answering_is_killed_and_replaced(how):
    async with running(config=replace(CONFIG, heartbeat_timeout_s=2.0)) as dispatcher:
        (pid,) = dispatcher.engine_pids
        if how == "stopped":
            os.kill(pid, signal.SIGSTOP)

        with pytest.raises(Unavailable, match="stopped answering"):
            await dispatcher.submit((STUCK_TOKEN, EOS_ID), PARAMS, None)

        assert (await dispatcher.submit(NORMAL, PARAMS, None)).hypotheses == expected(NORMAL).hypotheses


async def test_busy_engine_gives_signs_of_life_between_its_steps():
    counts = Counts()
    async with running(observer=counts) as dispatcher:
        await dispatcher.submit(SLOW, LONG, None)  # a good second

        assert sum(stats.live_rows > 0 for stats in counts.stats) >= 3


async def test_nobody_waits_for_engines_that_do_not_come_back(tmp_path):
    counts = Counts()
    switch = tmp_path / "starts"
    switch.touch()
    spec = replace(SPEC, bundle_dir=switch, runner_factory="tests.fakes.fake_runner:create_if_there")
    async with running(spec, replace(CONFIG, restart_backoff_s=0.2), observer=counts) as dispatcher:
        jobs = [dispatcher.submit(SLOW, LONG, None) for _ in range(7)]
        await asyncio.sleep(0)
        switch.unlink()

        os.kill(dispatcher.engine_pids[0], signal.SIGKILL)
        async with asyncio.timeout(60):
            results = await asyncio.gather(*jobs, return_exceptions=True)

        assert [type(result) for result in results] == [Unavailable] * 7
        assert "no engine process is running" in str(results[-1])
        with pytest.raises(Unavailable, match="no engine process is running"):
            await dispatcher.submit(NORMAL, PARAMS, None)
        assert dispatcher.queued_jobs == 0
        switch.touch()
        assert (await first_answer(dispatcher)).hypotheses == expected(NORMAL).hypotheses


async def first_answer(dispatcher: Dispatcher) -> JobResult:
    async with asyncio.timeout(60):
        while True:
            try:
                return await dispatcher.submit(NORMAL, PARAMS, None)
            except Unavailable:
                await asyncio.sleep(0.05)


async def test_queue_is_kept_while_another_engine_is_up():
    async with running(config=replace(CONFIG, num_engines=2)) as dispatcher:
        dispatcher._slots[0].delayed(30.0)

        assert (await dispatcher.submit(NORMAL, PARAMS, None)).hypotheses == expected(NORMAL).hypotheses


async def test_outcome_of_a_job_that_was_failed_meanwhile_is_ignored():
    async with running() as dispatcher:
        (slot,) = dispatcher._slots
        job = dispatcher.submit(SLOW, LONG, None)
        await asyncio.sleep(0)
        (job_id,) = slot.jobs
        slot.fail_all(Unavailable("the grace is over"))

        slot.heard(Report((JobFailure(job_id=job_id, kind=FailureKind.INTERNAL, message="late"),)))

        assert (slot.rows, dispatcher.running_jobs) == (0, 0)
        with pytest.raises(Unavailable, match="grace"):
            await job


async def test_deadline_is_kept_while_the_engine_is_stuck():
    async with running() as dispatcher:
        with pytest.raises(DeadlineExceeded, match="decoding"):
            await dispatcher.submit((STUCK_TOKEN, EOS_ID), PARAMS, time.monotonic() + 0.05)


async def test_job_cancelled_in_the_queue_never_reaches_the_engine():
    counts = Counts()
    async with running(observer=counts) as dispatcher:
        blockers = [dispatcher.submit(SLOW, PARAMS, None) for _ in range(5)]
        waiting = dispatcher.submit(NORMAL, PARAMS, None)
        await asyncio.sleep(0)
        assert dispatcher.queued_jobs == 1

        waiting.cancel()
        await asyncio.sleep(0)

        assert (dispatcher.queued_jobs, dispatcher.queued_tokens) == (0, 0)
        assert counts.dropped == [("queue", "cancelled")]
        for job in blockers:
            job.cancel()
        await dispatcher.submit(NORMAL, PARAMS, None)
    assert sum(stats.encoded_sentences for stats in counts.stats) <= 6


async def test_job_cancelled_while_decoding_frees_its_rows():
    counts = Counts()
    async with running(observer=counts) as dispatcher:
        blockers = [dispatcher.submit(SLOW, LONG, None) for _ in range(5)]
        await counts.until(lambda: any(stats.live_rows == 8 for stats in counts.stats))
        assert dispatcher.live_rows == 8

        for job in blockers:
            job.cancel()
        await counts.until(lambda: counts.stats[-1].live_rows == 0)

        assert (dispatcher.running_jobs, dispatcher.live_rows) == (0, 0)
        assert counts.dropped == [("decode", "cancelled")] * 5
        assert sum(stats.wasted_steps for stats in counts.stats) > 0


@pytest.mark.parametrize(("late_in_s", "reason"), [(-0.1, "deadline"), (3600.0, "cancelled")])
async def test_job_that_its_call_takes_back_at_its_deadline_was_not_cancelled(late_in_s, reason):
    counts = Counts()
    async with running(observer=counts) as dispatcher:
        follow(Progress(late_from=time.monotonic() + late_in_s))
        job = dispatcher.submit(SLOW, PARAMS, time.monotonic() + 3600.0)
        await asyncio.sleep(0)

        job.cancel()
        await asyncio.sleep(0)

    assert [why for _, why in counts.dropped] == [reason]


async def test_deadline_passes_in_the_queue():
    counts = Counts()
    async with running(observer=counts) as dispatcher:
        blockers = [dispatcher.submit(SLOW, LONG, None) for _ in range(5)]
        late = dispatcher.submit(NORMAL, PARAMS, time.monotonic() + 0.02)

        with pytest.raises(DeadlineExceeded, match="queued"):
            await late
        await asyncio.sleep(0)

        assert counts.dropped == [("queue", "deadline")]
        for job in blockers:
            job.cancel()


async def test_deadline_in_the_past_fails_at_once():
    async with running() as dispatcher:
        with pytest.raises(DeadlineExceeded):
            await dispatcher.submit(NORMAL, PARAMS, time.monotonic() - 1)


@pytest.mark.parametrize(("token", "message"), [(NAN_TOKEN, "non-finite"), (POISON_TOKEN, "encoder")])
async def test_sentence_the_model_cannot_do_fails_alone(token, message):
    async with running() as dispatcher:
        bad = dispatcher.submit((token, EOS_ID), PARAMS, None)
        good = dispatcher.submit(NORMAL, PARAMS, None)

        with pytest.raises(InternalError, match=message):
            await bad
        assert (await good).hypotheses == expected(NORMAL).hypotheses


async def test_statistics_add_up():
    counts = Counts()
    async with running(observer=counts) as dispatcher:
        results = await asyncio.gather(*(dispatcher.submit(NORMAL, PARAMS, None) for _ in range(3)))
        await counts.until(lambda: sum(stats.encoded_sentences for stats in counts.stats) == 3)

    assert sum(stats.rows for stats in counts.stats) == sum(2 * result.num_steps for result in results)
    assert sum(stats.source_tokens for stats in counts.stats) == 3 * len(NORMAL)
    assert all(len(stats.step_rows) == stats.steps for stats in counts.stats)


async def test_engine_that_cannot_start_says_why():
    spec = replace(SPEC, runner_factory="tests.fakes.fake_runner:create_nothing")

    with pytest.raises(InternalError, match="ValueError: no-bundle has no graphs"):
        await Dispatcher(spec, CONFIG).start()


async def test_engine_that_is_not_ready_in_time_is_an_error():
    with pytest.raises(InternalError, match=r"not ready within 0\.001 s"):
        await Dispatcher(SPEC, replace(CONFIG, start_timeout_s=0.001)).start()


async def test_closed_dispatcher_refuses():
    async with running() as dispatcher:
        closing = asyncio.create_task(dispatcher.close())
        await asyncio.sleep(0)

        with pytest.raises(Unavailable, match="stopping"):
            await dispatcher.submit(NORMAL, PARAMS, None)
        await closing
        assert not dispatcher.is_ready


async def test_close_fails_what_is_not_done_and_ends_the_processes():
    async with running() as dispatcher:
        (pid,) = dispatcher.engine_pids
        jobs = [dispatcher.submit(SLOW, LONG, None) for _ in range(7)]
        await asyncio.sleep(0)

        await dispatcher.close()

        results = await asyncio.gather(*jobs, return_exceptions=True)
        assert [type(result) for result in results] == [Unavailable] * 7
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="waits on a pidfd")
async def test_engine_ends_with_the_process_that_started_it():
    program = (
        "import asyncio, sys\n"
        "from tests.unit.test_dispatch import SPEC, CONFIG, Dispatcher\n"
        "async def main():\n"
        "    dispatcher = Dispatcher(SPEC, CONFIG)\n"
        "    await dispatcher.start()\n"
        "    print(*dispatcher.engine_pids, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout
    engine = int(await parent.stdout.readline())

    has_ended = asyncio.Event()
    descriptor = os.pidfd_open(engine)
    asyncio.get_running_loop().add_reader(descriptor, has_ended.set)
    parent.kill()
    await parent.wait()

    async with asyncio.timeout(60):
        await has_ended.wait()
    asyncio.get_running_loop().remove_reader(descriptor)
    os.close(descriptor)


async def test_engine_leaves_signals_to_the_front_process():
    async with running() as dispatcher:
        (pid,) = dispatcher.engine_pids
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)

        assert (await dispatcher.submit(NORMAL, PARAMS, None)).hypotheses == expected(NORMAL).hypotheses
        assert dispatcher.engine_pids == [pid]


@pytest.mark.parametrize("name", ["num_engines", "lookahead_jobs"])
def test_wrong_settings_name_themselves_and_their_range(name):
    with pytest.raises(ValueError, match=f"{name} is 0, at least 1"):
        DispatchConfig(**{name: 0})
