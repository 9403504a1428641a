"""One engine of a model as the scheduler process sees it: the jobs that it holds, and how each of them ends.

JobGroup       the jobs that one call waits for, and what became of them
EngineHandle   an engine's process, the jobs that it holds, its load
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from service.call import Call
from service.engine.wire import CancelJob, EngineSpec, FailureKind, Job, JobResult, Outcome, Report, Settled, StepStats
from service.engine.worker import command_line
from service.errors import DeadlineExceeded, DragomanError, InternalError, OutOfMemory, Unavailable
from service.processes.supervisor import Program, Supervisor, SupervisorConfig
from service.scheduler.cost import CostModel
from service.scheduler.fair_queue import Entry
from service.scheduler.job_queue import EngineLoad

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


class JobGroup:
    """The jobs that one call waits for; the group ends with the last of them, or with the first error of all."""

    def __init__(self, call: Call, num_jobs: int) -> None:
        self.call = call
        self.jobs: set[Pending] = set()  # that have no outcome
        self.results: asyncio.Future[list[Settled]] = asyncio.get_running_loop().create_future()
        self._found: list[Settled | None] = [None] * num_jobs

    def settle(self, pending: "Pending", result: Settled) -> None:
        """Take the result of a job, or an error that concerns this job alone."""
        self.jobs.discard(pending)
        if self.results.done():
            return
        if isinstance(result, JobResult):
            self.call.job_finished(result)
        self._found[pending.place] = result
        if not self.jobs:
            self.results.set_result(cast("list[Settled]", self._found))  # none is missing

    def fail(self, error: DragomanError) -> None:
        """Raise an error where somebody still waits for the group."""
        if not self.results.done():
            self.results.set_exception(error)
            self.results.exception()  # who waits may be gone: asyncio would log an error that nobody asked for


@dataclass(slots=True, eq=False, kw_only=True)
class Pending(Entry[Job]):
    """A job that somebody waits for, in the queue or in an engine."""

    group: JobGroup
    place: int  # in its group
    engine: "EngineHandle | None" = None  # None: not given to an engine

    def fail(self, error: DragomanError) -> None:
        """End the job without a result."""
        if not isinstance(error, DeadlineExceeded):  # a job that is late counts as dropped
            self.group.jobs.discard(self)
        self.group.fail(error)

    def resolve(self, outcome: Outcome) -> None:
        """End the job with an engine's outcome."""
        if isinstance(outcome, JobResult):
            self.group.settle(self, outcome)
        elif outcome.kind is FailureKind.DEADLINE:
            self.fail(DeadlineExceeded(outcome.message))
        elif outcome.kind is FailureKind.OUT_OF_MEMORY:
            self.fail(OutOfMemory(outcome.message, retry_after_s=_RETRY_AFTER_MEMORY_S))
        else:
            self.group.settle(self, InternalError(outcome.message))


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
        """Give jobs to the engine in one frame; its load counts them already."""
        for pending in jobs:
            pending.engine = self
            pending.group.call.phase = "decode"
            self.jobs[pending.item.id] = pending
        if self.supervisor.process is not None:
            self.supervisor.process.send(tuple([pending.item for pending in jobs]))

    def cancel(self, job: Job) -> None:
        """Have the engine drop a job, if it has not answered yet; it counts until it has."""
        if job.id in self.jobs and self.supervisor.process is not None:
            self.supervisor.process.send((CancelJob(job.id),))

    def fail_all(self, error: DragomanError) -> None:
        """Fail all jobs that the engine holds."""
        for pending in self.jobs.values():
            pending.fail(error)
        self._forget_jobs()

    async def stop(self) -> None:
        """End the process; what it holds is of no use to anybody."""
        self._forget_jobs()
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

    def _take_report(self, report: Report) -> None:
        self._heard_at = time.monotonic()
        for outcome in report.outcomes:
            if isinstance(outcome, JobResult):
                self._num_non_finite = 0
            elif outcome.kind is FailureKind.NON_FINITE:
                self._note_non_finite()
            pending = self.jobs.pop(outcome.job_id, None)
            if pending is None:  # failed meanwhile
                continue
            self.load.add(pending.item, -1)
            if isinstance(outcome, JobResult) and outcome.scores is None:  # the model learns how long searches take
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

    def _note_non_finite(self) -> None:
        """End an engine that has given nothing but non-finite scores for too long."""
        self._num_non_finite += 1
        if self._num_non_finite == _MOST_NON_FINITE and self.supervisor.process is not None:
            self.supervisor.process.mark_unhealthy(f"gave {_MOST_NON_FINITE} sentences in a row non-finite scores")

    def _lose_jobs(self, reason: str) -> None:
        self._num_non_finite = 0
        self._set_budgets(0, 0)
        self._num_losses += 1
        self.fail_all(Unavailable(f"the engine process was lost ({reason}); try again"))
        if self._observer:
            self._observer.engine_lost()

    def _forget_jobs(self) -> None:
        self.jobs.clear()
        self.load.clear()
        self.live_rows = 0

    def _set_budgets(self, max_rows: int, max_source_tokens: int) -> None:
        """Note what the engine runs now, which is less than it was told where memory is short; 0: what it was told."""
        self.load.max_rows = max_rows or self._budgets.max_rows
        self.load.max_source_tokens = max_source_tokens or self._budgets.max_source_tokens
