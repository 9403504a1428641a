"""One engine and the jobs it holds, from when they are given to it until it has answered, or is lost."""

import asyncio
import time
from dataclasses import dataclass
from typing import Literal, Protocol

from service.engine.job import FailureKind, Job, JobResult, Outcome
from service.engine.process import Report
from service.engine.spec import EngineSpec
from service.engines.held import Held
from service.engines.outcomes import fail, resolve
from service.engines.supervisor import EngineSupervisor, SupervisorConfig
from service.errors import DragomanError, Unavailable
from service.queue.fair_queue import Entry
from service.telemetry.calls import Call

_MOST_NON_FINITE = 64  # sentences in a row: then it is the engine, and not a sentence

EngineState = Literal["up", "starting", "waiting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSnapshot:
    """One place for an engine process."""

    pid: int | None  # None: no process takes work now
    state: EngineState  # waiting: for another attempt to start one
    jobs: int  # sentences it holds
    rows: int  # hypotheses it decodes, as it last reported
    max_rows: int  # up to which it starts jobs, likewise; less than configured where memory is short
    restarts: int  # processes lost in this place
    silent_s: float  # since its last sign of life


class SlotOwner(Protocol):
    """Who is told what happens to an engine."""

    def job_answered(self, job: Job, outcome: Outcome) -> None:
        """An engine is done with it."""
        ...

    def engine_reported(self, report: Report) -> None:
        """Its outcomes are with their futures; rows may be free."""
        ...

    def engine_lost(self) -> None:
        """Its jobs have failed."""
        ...

    def engine_delayed(self) -> None:
        """It is not replaced yet."""
        ...

    def schedule(self) -> None:
        """It may take jobs again."""
        ...


@dataclass(slots=True, eq=False)
class Pending:
    """A job somebody waits for."""

    job: Job
    future: "asyncio.Future[JobResult]"
    slot: "EngineHandle | None" = None  # None: not given to an engine
    entry: "Entry[Pending] | None" = None  # its place in the queue
    call: Call | None = None  # that it belongs to; None: to none, such as a self-test
    timer: asyncio.TimerHandle | None = None


class EngineHandle:
    """One engine and the jobs it holds; an `EngineListener`."""

    def __init__(self, owner: SlotOwner, spec: EngineSpec, config: SupervisorConfig) -> None:
        self.keeper = EngineSupervisor(spec, config, self)
        self.jobs: dict[int, Pending] = {}  # until the engine has answered, cancelled or not
        self.held = Held.none_of(spec.scheduler)
        self.live_rows = 0  # that were decoding at its last report
        self.is_delayed = False  # its replacement: from the first pause until one has started
        self.retry_in_s: float | None = None  # the pause before the next start, while it lasts
        self.num_losses = 0
        self._num_non_finite = 0  # sentences in a row
        self.heard_at = time.monotonic()
        self._owner = owner
        self._given = spec.scheduler

    def add(self, pending: Pending) -> None:
        pending.slot = self
        if pending.call is not None:
            pending.call.phase = "decode"
        self.jobs[pending.job.id] = pending
        self.held.add(pending.job)

    def take_back(self, pending: Pending) -> None:
        """Before the engine is told of it."""
        del self.jobs[pending.job.id]
        self.held.remove(pending.job)

    def fail_all(self, error: DragomanError) -> None:
        for pending in self.jobs.values():
            fail(pending.future, error)
        self.jobs.clear()
        self.held.clear()

    def heard(self, report: Report) -> None:
        self.heard_at = time.monotonic()
        for outcome in report.outcomes:
            pending = self.jobs.pop(outcome.job_id, None)
            self._judge(outcome)
            if pending is not None:  # not failed meanwhile
                self.held.remove(pending.job)
                self._owner.job_answered(pending.job, outcome)
                resolve(pending.future, outcome)
        if report.stats:
            self.live_rows = report.stats.live_rows
            self._has_budgets(report.stats.max_rows, report.stats.max_source_tokens)
        self._owner.engine_reported(report)

    def _judge(self, outcome: Outcome) -> None:
        if isinstance(outcome, JobResult):
            self._num_non_finite = 0
        elif outcome.kind is FailureKind.NON_FINITE:
            self._num_non_finite += 1
            if self._num_non_finite == _MOST_NON_FINITE:
                self.keeper.condemn(f"gave {_MOST_NON_FINITE} sentences in a row non-finite scores")

    def lost(self, reason: str) -> None:
        self._num_non_finite = 0
        self.live_rows = 0
        self._has_budgets(0, 0)
        self.num_losses += 1
        self.fail_all(Unavailable(f"the engine process was lost ({reason}); try again"))
        self._owner.engine_lost()

    def snapshot(self, now: float) -> EngineSnapshot:
        waiting: EngineState = "starting" if self.retry_in_s is None else "waiting"
        return EngineSnapshot(
            pid=self.keeper.pid,
            state="up" if self.keeper.is_up else waiting,
            jobs=len(self.jobs),
            rows=self.live_rows,
            max_rows=self.held.max_rows,
            restarts=self.num_losses,
            silent_s=now - self.heard_at,
        )

    def delayed(self, retry_in_s: float) -> None:
        self.is_delayed = True
        self.retry_in_s = retry_in_s
        self._owner.engine_delayed()

    def starting(self) -> None:
        self.retry_in_s = None

    def restarted(self) -> None:
        self.is_delayed = False
        self._owner.schedule()

    def _has_budgets(self, max_rows: int, max_source_tokens: int) -> None:
        """It runs so much now, less than it was given while it is short of memory; 0: what it was given."""
        self.held.max_rows = max_rows or self._given.max_rows
        self.held.max_source_tokens = max_source_tokens or self._given.max_source_tokens
