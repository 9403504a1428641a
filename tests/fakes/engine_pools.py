"""Engine pools: with real engine processes, with engines that the test steps by hand, and with no engine at all."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from model.config import EOS_ID
from service.call import ANYBODY, Call, Caller
from service.engine.loop import EngineLoop
from service.engine.wire import (
    CancelJob,
    Command,
    EngineSpec,
    FinishReason,
    Hypothesis,
    Job,
    JobResult,
    Outcome,
    Report,
    SchedulerConfig,
    SearchParams,
    StepStats,
)
from service.errors import InternalError
from service.processes.supervisor import Program, SupervisorConfig
from service.records import Priority
from service.scheduler.engine_handle import EngineObserver
from service.scheduler.pool import EnginePool, PoolConfig
from tests.fakes.engine_runs import run
from tests.fakes.fake_runner import FakeRunner, create


class EchoPool:
    def __init__(self, score: float = -0.5, error: Exception | None = None) -> None:
        self.score = score
        self.error = error  # of the next start and of every sentence
        self.asked: list[SearchParams] = []
        self.state = "new"

    async def start(self, most: int | None = None) -> None:
        if self.error:
            raise self.error
        self.state = "started"

    async def run(self, jobs: Sequence[Job], call: object = None) -> list[JobResult]:
        self.asked += [job.params for job in jobs]
        if self.error:
            raise self.error
        best = [Hypothesis(job.source_ids[:-1], self.score, FinishReason.END_OF_SENTENCE) for job in jobs]
        return [JobResult(0, (one,), queue_s=0.0, encode_s=0.0, decode_s=0.0, num_steps=1) for one in best]

    async def stop(self) -> None:
        self.state = "stopped"

    async def close(self) -> None:
        self.state = "closed"


def call_within(seconds: float, caller: Caller = ANYBODY, priority: Priority = Priority.INTERACTIVE) -> Call:
    """A call that has so long."""
    now = time.monotonic()
    return Call(method="m", caller=caller, priority=priority, started=now, deadline=now + seconds, limit_s=60.0)


SPEC = EngineSpec(
    bundle_dir=Path("no-bundle"),
    scheduler=SchedulerConfig(max_rows=8),
    heartbeat_interval_s=0.02,
    runner_factory="tests.fakes.fake_runner:create",
)
CONFIG = PoolConfig(lookahead_jobs=1, restart_backoff_s=0.01, start_timeout_s=60.0)
PARAMS = SearchParams(beam_size=2, max_target_tokens=12)
LONG = PARAMS._replace(max_target_tokens=500)
NORMAL = (5, 6, EOS_ID)


@dataclass
class Counts:
    """An EngineObserver that remembers."""

    stats: list[StepStats] = field(default_factory=list)
    losses: int = 0
    dropped: list[tuple[str, str]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def step(self, stats: StepStats) -> None:
        self.stats.append(stats)
        self.changed.set()

    def engine_lost(self) -> None:
        self.losses += 1
        self.changed.set()

    def job_dropped(self, where: Literal["queue", "decode"], reason: str) -> None:
        self.dropped.append((where, reason))
        self.changed.set()

    async def until(self, fact: Callable[[], bool]) -> None:
        """Return once it is so; looks whenever something was observed."""
        async with asyncio.timeout(60):
            while not fact():
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def running(
    spec: EngineSpec = SPEC, config: PoolConfig = CONFIG, observer: Counts | None = None
) -> AsyncIterator[EnginePool]:
    """One whose engines are up, closed at the end."""
    pool = EnginePool(spec, config, observer=observer)
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()


def expected(source: tuple[int, ...], params: SearchParams = PARAMS) -> JobResult:
    """What an engine in this process makes of the sentence."""
    outcome = run(EngineLoop(FakeRunner()), [Job(id=0, source_ids=source, params=params)])[0]
    assert isinstance(outcome, JobResult)
    return outcome


class HandSteppedEngine:
    """In place of `Supervisor`: the engine loop itself around a scripted model."""

    def __init__(
        self,
        spec: EngineSpec,
        *,
        on_record: Callable[[Report], None],
        on_lost: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        self.report, self.on_lost, self.on_change = on_record, on_lost, on_change
        self.started_ids: list[int] = []
        self.most_rows = 0
        self.is_started = False
        self.is_delayed = False
        self.retry_in_s: float | None = None
        self.fault = ""
        self.pid = 1
        self.is_unhealthy = False
        self._spec = spec
        self._loop: EngineLoop | None = None
        self._without_answer: set[int] = set()

    def _new_loop(self) -> EngineLoop:
        return EngineLoop(create(self._spec), self._spec.scheduler, clock=lambda: time.monotonic())  # noqa: PLW0108  patched

    @property
    def process(self) -> "HandSteppedEngine | None":
        return self if self._loop is not None else None

    @property
    def is_missing(self) -> bool:
        return self._loop is None

    async def start(self) -> None:
        self._loop, self.is_started = self._new_loop(), True

    async def stop(self) -> None:
        self._loop, self.is_started = None, False

    def mark_unhealthy(self, fault: str) -> None:
        self.fault = fault

    def send(self, commands: Sequence[Command]) -> None:
        if self._loop is None:
            return
        for command in commands:
            match command:
                case Job():
                    self.started_ids.append(command.id)
                    self._without_answer.add(command.id)
                    self._loop.submit(command)
                case CancelJob(job_id):
                    self._loop.cancel(job_id)

    def step(self) -> StepStats:
        if self._loop is None:
            return StepStats()
        outcomes: tuple[Outcome, ...] = tuple(self._loop.step())
        stats = self._loop.take_stats()
        self.most_rows = max(self.most_rows, stats.live_rows)
        for outcome in outcomes:
            self._without_answer.remove(outcome.job_id)  # fails when it is answered twice
        self.report(Report(outcomes, stats))
        return stats

    def die(self, *, is_delayed: bool) -> None:
        """Be lost with everything it holds; with a pause before the next attempt, or not."""
        if self._loop is not None:
            self._loop = None
            self._without_answer.clear()
            self.on_lost("killed by the test")
            if is_delayed:
                self.is_delayed, self.retry_in_s = True, 0.5
                self.on_change()

    def come_back(self) -> None:
        if self._loop is None:
            self.is_delayed, self.retry_in_s = False, None
            self._loop = self._new_loop()
            self.on_change()


def make_pool(
    spec: EngineSpec, config: PoolConfig, observer: EngineObserver | None = None
) -> tuple[EnginePool, list[HandSteppedEngine]]:
    """A pool that is not started, and its engines."""
    engines: list[HandSteppedEngine] = []

    def make(program: Program, config: SupervisorConfig, **events: Callable[..., None]) -> HandSteppedEngine:
        engines.append(HandSteppedEngine(spec, **events))
        return engines[-1]

    with mock.patch("service.scheduler.engine_handle.Supervisor", make):
        return EnginePool(spec, config, observer=observer), engines


def submit(pool: EnginePool, job: Job, call: Call) -> "asyncio.Task[JobResult]":
    """Return the task that queues one job as soon as the loop turns, and waits for its result or its own error."""

    async def wait() -> JobResult:
        (result,) = await pool.run([job], call)
        if isinstance(result, InternalError):
            raise result
        return result

    task = asyncio.create_task(wait())
    task.add_done_callback(lambda task: task.cancelled() or task.exception())  # not every test asks for it
    return task


@asynccontextmanager
async def hand_stepped(
    spec: EngineSpec, config: PoolConfig, observer: EngineObserver | None = None
) -> AsyncIterator[tuple[EnginePool, list[HandSteppedEngine]]]:
    """A pool whose engines are up, closed at the end."""
    pool, engines = make_pool(spec, config, observer)
    await pool.start()
    try:
        yield pool, engines
    finally:
        await pool.close()
        await settle()


async def settle() -> None:
    """Let everything happen that follows without time passing."""
    for _ in range(12):
        await asyncio.sleep(0)


async def work(engines: Sequence[HandSteppedEngine], *jobs: "asyncio.Future[Any]") -> None:
    """Step all engines until these jobs are done."""
    for _ in range(2_000):
        if all(job.done() for job in jobs):
            return
        for engine in engines:
            engine.step()
        await settle()
    raise AssertionError("a job was lost")
