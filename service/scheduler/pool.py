"""Takes jobs in, gives them to the engine processes, and returns a future for each job.

The pool lives in an event loop.  Jobs wait here in the order of the job queue, where a cancelled or late job costs
nothing.  An engine holds the jobs that it can run now and a few more, so that it never waits for this process.  Jobs
also wait for an engine that is replaced at once.  When all replacements have to pause first, jobs are refused.

    EngineHandle    one engine: its process, the jobs that it holds, and how their futures end
    EnginePool      the jobs that wait, and all engines of a model
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Literal, Protocol

from service.call import Call
from service.engine.wire import (
    CancelJob,
    Command,
    EngineSpec,
    FailureKind,
    Job,
    JobResult,
    Outcome,
    Report,
    SearchParams,
    StepStats,
)
from service.engine.worker import command_line
from service.errors import DeadlineExceeded, DragomanError, InternalError, OutOfMemory, Unavailable
from service.processes.process import Program, StartError, Supervisor, SupervisorConfig
from service.records import Priority
from service.scheduler.cost import CostModel
from service.scheduler.fair_queue import Entry
from service.scheduler.job_queue import EngineLoad, JobQueue
from service.scheduler.packed_weights import PackedWeights

_MOST_NON_FINITE = 64  # sentences in a row: then it is the engine, and not a sentence
_RETRY_AFTER_MEMORY_S = 1.0  # an engine that had too little memory runs less at once by then

EngineState = Literal["up", "starting", "waiting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSnapshot:
    """One engine at one moment."""

    pid: int | None  # None: no process takes work now
    state: EngineState  # waiting: for another attempt to start one
    jobs: int  # sentences it holds
    rows: int  # hypotheses it decodes, as it last reported
    max_rows: int  # up to which it starts jobs, as it last reported; less than configured where memory is short
    restarts: int  # processes that were lost
    silent_s: float  # since its last sign of life


class EngineObserver(Protocol):
    """Counts what happens to engines and jobs; called in the event loop's thread."""

    def step(self, stats: StepStats) -> None:
        """Count an engine's work since its last report."""
        ...

    def engine_lost(self) -> None:
        """Count an engine that was lost."""
        ...

    def job_dropped(self, where: Literal["queue", "decode"], reason: str) -> None:
        """Count a job that was cancelled, or late, before it had a result."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class Pending(Entry[Job]):
    """A job that somebody waits for, in the queue or in an engine."""

    future: "asyncio.Future[JobResult]"
    call: Call  # that it belongs to
    engine: "EngineHandle | None" = None  # None: not given to an engine
    timer: asyncio.TimerHandle | None = None

    def fail(self, error: DragomanError) -> None:
        """Raise an error where somebody still waits."""
        if not self.future.done():
            self.future.set_exception(error)

    def resolve(self, outcome: Outcome) -> None:
        """Give an engine's outcome to whoever still waits."""
        if isinstance(outcome, JobResult):
            if not self.future.done():
                self.future.set_result(outcome)
        elif outcome.kind is FailureKind.DEADLINE:
            self.fail(DeadlineExceeded(outcome.message))
        elif outcome.kind is FailureKind.OUT_OF_MEMORY:
            self.fail(OutOfMemory(outcome.message, retry_after_s=_RETRY_AFTER_MEMORY_S))
        else:
            self.fail(InternalError(outcome.message))


class EngineHandle:
    """One engine and the jobs that it has not answered yet."""

    def __init__(
        self,
        spec: EngineSpec,
        config: SupervisorConfig,
        cost_model: CostModel,
        *,
        observer: EngineObserver | None,
        on_change: Callable[[], None],
    ) -> None:
        """Start nothing yet.

        Args:
            spec: what the engine process is told.
            config: how patient to be with it.
            cost_model: learns from its jobs and steps.
            observer: counts what happens.
            on_change: called when the engine may have room, and when its replacement has to wait.
        """
        self.supervisor = Supervisor(
            Program(name="engine", command_line=command_line, spec=lambda: spec),
            config,
            on_record=self._take_report,
            on_lost=self._lose_jobs,
            on_change=on_change,
        )
        self.jobs: dict[int, Pending] = {}  # until the engine has answered, cancelled or not
        self.load = EngineLoad(spec.scheduler.max_rows, spec.scheduler.max_source_tokens)
        self.live_rows = 0  # that were decoding at its last report
        self._budgets = spec.scheduler
        self._cost_model = cost_model
        self._observer = observer
        self._on_change = on_change
        self._num_losses = 0
        self._num_non_finite = 0  # sentences in a row
        self._heard_at = time.monotonic()

    @property
    def is_up(self) -> bool:
        """Whether the engine takes jobs; one that is being ended does not."""
        process = self.supervisor.process
        return process is not None and not process.is_unhealthy

    def start_jobs(self, jobs: Sequence[Pending]) -> None:
        """Give jobs to the engine, whose load counts them already."""
        for pending in jobs:
            pending.engine = self
            pending.call.phase = "decode"
            self.jobs[pending.item.id] = pending
        self._send([pending.item for pending in jobs])

    def cancel(self, job: Job) -> None:
        """Have the engine drop a job, if it has not answered yet; it counts until it has."""
        if job.id in self.jobs:
            self._send([CancelJob(job.id)])

    def fail_all(self, error: DragomanError) -> None:
        """Fail all jobs that the engine holds."""
        for pending in self.jobs.values():
            pending.fail(error)
        self.jobs.clear()
        self.load.clear()

    async def stop(self) -> None:
        """End the process; what it holds is of no use to anybody."""
        self.jobs.clear()
        self.load.clear()
        self.live_rows = 0
        await self.supervisor.stop()

    def snapshot(self, now: float) -> EngineSnapshot:
        """Describe the engine at this moment."""
        process = self.supervisor.process
        waiting: EngineState = "starting" if self.supervisor.retry_in_s is None else "waiting"
        return EngineSnapshot(
            pid=process.pid if process else None,
            state="up" if self.is_up else waiting,
            jobs=len(self.jobs),
            rows=self.live_rows,
            max_rows=self.load.max_rows,
            restarts=self._num_losses,
            silent_s=now - self._heard_at,
        )

    def _send(self, commands: Sequence[Command]) -> None:
        if self.supervisor.process is not None:
            self.supervisor.process.send(tuple(commands))

    def _take_report(self, report: Report) -> None:
        self._heard_at = time.monotonic()
        for outcome in report.outcomes:
            self._note_non_finite(outcome)
            pending = self.jobs.pop(outcome.job_id, None)
            if pending is None:  # failed meanwhile
                continue
            self.load.remove(pending.item)
            if isinstance(outcome, JobResult) and outcome.forced is None:  # the model learns how long searches take
                self._cost_model.finished(pending.item, outcome)
            pending.resolve(outcome)
        if stats := report.stats:
            self.live_rows = stats.live_rows
            self._set_budgets(stats.max_rows, stats.max_source_tokens)
            self._cost_model.reported(stats)
            if self._observer:
                self._observer.step(stats)
        if report.outcomes:
            self._on_change()

    def _note_non_finite(self, outcome: Outcome) -> None:
        """End an engine that has given nothing but non-finite scores for too long."""
        if isinstance(outcome, JobResult):
            self._num_non_finite = 0
        elif outcome.kind is FailureKind.NON_FINITE:
            self._num_non_finite += 1
            if self._num_non_finite == _MOST_NON_FINITE and self.supervisor.process is not None:
                self.supervisor.process.mark_unhealthy(f"gave {_MOST_NON_FINITE} sentences in a row non-finite scores")

    def _lose_jobs(self, reason: str) -> None:
        self._num_non_finite = 0
        self.live_rows = 0
        self._set_budgets(0, 0)
        self._num_losses += 1
        self.fail_all(Unavailable(f"the engine process was lost ({reason}); try again"))
        if self._observer:
            self._observer.engine_lost()

    def _set_budgets(self, max_rows: int, max_source_tokens: int) -> None:
        """Note what the engine runs now, which is less than it was told where memory is short; 0: what it was told."""
        self.load.max_rows = max_rows or self._budgets.max_rows
        self.load.max_source_tokens = max_source_tokens or self._budgets.max_source_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig(SupervisorConfig):
    """How many engine processes there are and how they are kept."""

    num_engines: int = 1
    # At most sent to an engine beyond what it can run; usually as much as it does in two steps, on a GPU dozens.
    lookahead_jobs: int = 256
    batch_aging_s: float = 10.0  # batch work that has waited this long gets a quarter beside interactive work

    def __post_init__(self) -> None:
        for name in ("num_engines", "lookahead_jobs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, at least 1 is needed")


class EnginePool:
    """Jobs in, futures out."""

    def __init__(self, spec: EngineSpec, config: PoolConfig, *, observer: EngineObserver | None = None) -> None:
        self._observer = observer
        self._queue: JobQueue[Pending] = JobQueue(
            aging_s=config.batch_aging_s, max_lookahead_jobs=config.lookahead_jobs
        )
        self._packed = PackedWeights(spec)
        self._engines = [
            EngineHandle(self._packed.spec, config, self._queue.cost_model, observer=observer, on_change=self._schedule)
            for _ in range(config.num_engines)
        ]
        self._start_timeout_s = config.start_timeout_s
        self._ids = count()
        self._is_closing = False
        self._is_scheduled = False

    @property
    def is_ready(self) -> bool:
        """Whether an engine can take jobs now."""
        return not self._is_closing and self.engines > 0

    @property
    def engines(self) -> int:
        """Number of engines that take jobs."""
        return sum(engine.is_up for engine in self._engines)

    @property
    def can_grow(self) -> bool:
        """Whether there are engines that `start` left out."""
        return not all(engine.supervisor.is_started for engine in self._engines)

    @property
    def missing_engines(self) -> int:
        """Number of engines that were lost and not replaced yet; not those that start or end with this pool."""
        return 0 if self._is_closing else sum(engine.supervisor.is_missing for engine in self._engines)

    @property
    def queued_jobs(self) -> int:
        """Number of jobs that wait in the queue."""
        return len(self._queue)

    @property
    def queued_tokens(self) -> int:
        """Number of source tokens that wait in the queue."""
        return self._queue.source_tokens

    @property
    def queued_work_s(self) -> float:
        """Estimated seconds of work that waits; 0 before enough was measured."""
        return self._queue.waiting_s(self._loads())

    @property
    def running_jobs(self) -> int:
        """Number of jobs that the engines hold."""
        return sum(len(engine.jobs) for engine in self._engines)

    @property
    def live_rows(self) -> int:
        """Number of hypotheses that are decoded, as the engines last reported."""
        return sum(engine.live_rows for engine in self._engines)

    def snapshots(self, now: float) -> list[EngineSnapshot]:
        """Describe each engine.

        Args:
            now: time.monotonic().
        """
        return [engine.snapshot(now) for engine in self._engines]

    async def start(self, most: int | None = None) -> None:
        """Return when all engines, or at most so many, are warm.

        Raises:
            InternalError: one does not start; the message says why.
        """
        try:
            await self._packed.prepare(self._start_timeout_s)
            async with asyncio.TaskGroup() as starts:
                for engine in self._engines[:most]:
                    starts.create_task(engine.supervisor.start())
        except BaseException as error:
            await self.stop()
            reason = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
            if isinstance(reason, StartError):
                raise InternalError(f"the engine did not start: {reason}") from reason
            raise
        self._schedule()

    async def add_engine(self) -> None:
        """Start one more of the engines that `start` left out; raises StartError."""
        await next(engine for engine in self._engines if not engine.supervisor.is_started).supervisor.start()
        self._schedule()

    async def remove_engine(self) -> None:
        """End an engine that has no jobs, if there is one beside another."""
        idle = [engine for engine in self._engines if engine.is_up and not engine.jobs]
        if idle and self.engines > 1:
            await idle[-1].stop()

    def forecast(self, sources: Sequence[int], params: SearchParams, call: Call) -> tuple[float, float]:
        """Return what `JobQueue.forecast` says of sentences with so many source tokens each in this call."""
        priority = call.priority or Priority.INTERACTIVE
        return self._queue.forecast(sources, params, caller=call.caller, priority=priority, loads=self._loads())

    def typical_forecast(self, params: SearchParams, call: Call) -> tuple[float, float]:
        """Return the forecast for one sentence in this call of the length that sentences have had lately."""
        return self.forecast((round(self._queue.typical_tokens),), params, call)

    def submit(self, job: Job, call: Call) -> "asyncio.Future[JobResult]":
        """Queue one sentence.

        Args:
            job: what the engine is to do, which gets its number, its times and its class here.
            call: the call that the sentence belongs to: whose share of the engines it takes, which work it goes before,
                and its deadline.

        Returns:
            A future that raises DeadlineExceeded (also when too little time is left to begin), Unavailable (engine
            lost, none there, or closing) or InternalError (the model produced no numbers); cancelling it cancels the
            job.
        """
        now, loop = time.monotonic(), asyncio.get_running_loop()
        priority = call.priority or Priority.INTERACTIVE
        is_batch = priority is Priority.BATCH
        job = job._replace(id=next(self._ids), deadline=call.deadline, submitted_at=now, is_batch=is_batch)
        pending = Pending(job, call.caller, priority, now, future=loop.create_future(), call=call)
        if refusal := self._refusal():
            pending.fail(refusal)
            return pending.future
        self._queue.add(pending)
        pending.future.add_done_callback(partial(self._settle, pending))
        pending.timer = loop.call_later(max(0.0, call.deadline - now), _expire, pending)
        self._schedule()
        return pending.future

    async def close(self) -> None:
        """Refuse new jobs, fail those without a result, and end the engines; who wants results awaits them before."""
        self._is_closing = True
        error = Unavailable("the server stopped before the sentence was translated")
        self._fail_queue(error)
        for engine in self._engines:
            engine.fail_all(error)
        await self.stop()

    async def stop(self) -> None:
        """End the engines, which have no work; `start` may follow."""
        try:
            await asyncio.gather(*(engine.stop() for engine in self._engines))
        finally:  # also when the server stops in the meantime
            self._packed.remove()

    def _schedule(self) -> None:
        """Hand out jobs at the end of this turn of the loop, so that the texts of a request cross in one frame."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._hand_out)

    def _hand_out(self) -> None:
        """Give the jobs whose turn it is to the engines that have room, or refuse all if no engine comes back soon."""
        self._is_scheduled = False
        if refusal := self._refusal():
            self._fail_queue(refusal)
            return
        engines = [engine for engine in self._engines if engine.is_up]
        batches: dict[int, list[Pending]] = {}
        for pending, number in self._queue.hand_out([engine.load for engine in engines], time.monotonic()):
            if number is None:
                pending.fail(DeadlineExceeded("too little time was left when the sentence's turn came"))
            elif pending.future.done():  # it was cancelled a moment ago: `_settle` comes next
                engines[number].load.remove(pending.item)
                self._schedule()
            else:
                batches.setdefault(number, []).append(pending)
        for number, batch in batches.items():
            engines[number].start_jobs(batch)

    def _loads(self) -> list[EngineLoad]:
        """Return the loads of the engines that are up; if none is up, that of an idle one."""
        engines = [engine for engine in self._engines if engine.is_up] or self._engines[:1]
        return [engine.load for engine in engines]

    def _refusal(self) -> Unavailable | None:
        """Why a job cannot be taken now."""
        if self._is_closing:
            return Unavailable("the server is stopping")
        engines = [engine for engine in self._engines if engine.supervisor.is_started] or self._engines
        if not all(engine.supervisor.is_delayed for engine in engines):
            return None  # one is up, or comes back at once
        pauses = [engine.supervisor.retry_in_s for engine in engines]
        if None in pauses:
            return Unavailable("no engine process is running; one is being started")
        next_s = min(pause_s for pause_s in pauses if pause_s is not None)
        return Unavailable(f"no engine process is running; the next start is at most {next_s:g} s away")

    def _settle(self, pending: Pending, future: "asyncio.Future[JobResult]") -> None:
        """Tidy up after a job that has a result, or whose caller is gone."""
        if pending.timer is not None:
            pending.timer.cancel()
        if pending.engine is None:
            self._queue.remove(pending)
        else:
            pending.engine.cancel(pending.item)
        if future.cancelled():  # a call takes its jobs back when its deadline has passed, and when its client goes
            reason = "deadline" if pending.call.is_late(time.monotonic()) else "cancelled"
        elif isinstance(future.exception(), DeadlineExceeded):
            reason = "deadline"
        else:
            return
        if self._observer:
            self._observer.job_dropped("decode" if pending.engine else "queue", reason)

    def _fail_queue(self, error: DragomanError) -> None:
        for pending in self._queue:
            pending.fail(error)


def _expire(pending: Pending) -> None:
    where = "queued" if pending.engine is None else "decoding"
    pending.fail(DeadlineExceeded(f"the deadline passed while the sentence was {where}"))
