"""From the one queue to the engine processes: credits, least loaded first, deadlines, death and replacement.

Lives in the front process's event loop.  Jobs wait here, in the backlog's order, where a cancelled or late one costs
nothing; an engine holds what it can run now and a few more, so that it never waits for this process.  They also wait
for an engine that is replaced at once; when all replacements have to pause first, the queue is refused and not kept.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Literal, Protocol

from service.engine.job import Job, JobResult, Outcome, SearchParams, StepStats
from service.engine.process import Cancel, Report, Start
from service.engine.spec import EngineSpec
from service.engines.engine_process import EngineStartError
from service.engines.handle import EngineHandle, EngineSnapshot, Pending
from service.engines.outcomes import drop_reason, fail
from service.engines.prepared_graphs import PreparedGraphs
from service.engines.supervisor import SupervisorConfig
from service.errors import DeadlineExceeded, DragomanError, InternalError, Unavailable
from service.queue.callers import ANYBODY, Caller, Priority
from service.queue.fair_queue import Entry
from service.queue.job_queue import EngineLoad, Forecast, JobQueue
from service.queue.placement import Room, Share, deal
from service.telemetry.calls import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchConfig(SupervisorConfig):
    """How many engine processes there are and how they are kept."""

    num_engines: int = 1
    lookahead_jobs: int = 8  # at most sent to an engine beyond what it can run, so that freed rows are taken at once
    batch_aging_s: float = 10.0  # batch work that has waited this long gets a quarter beside interactive work

    def __post_init__(self) -> None:
        for name in ("num_engines", "lookahead_jobs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, at least 1 is needed")


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSnapshot:
    """One dispatcher."""

    queued_jobs: int
    queued_tokens: int
    engines: tuple[EngineSnapshot, ...]


class EngineObserver(Protocol):
    """Who counts what happens here; called in the event loop's thread."""

    def step(self, stats: StepStats) -> None:
        """An engine's work since its last report."""
        ...

    def engine_lost(self) -> None:
        """An engine was lost."""
        ...

    def job_dropped(self, where: Literal["queue", "decode"], reason: str) -> None:
        """A job was cancelled, or late, before it had a result."""
        ...


class Dispatcher:
    """Jobs in, futures out."""

    def __init__(self, spec: EngineSpec, config: DispatchConfig, *, observer: EngineObserver | None = None) -> None:
        self._config = config
        self._observer = observer
        self._graphs = PreparedGraphs(spec)
        self._slots = [EngineHandle(self, self._graphs.spec, config) for _ in range(config.num_engines)]
        self._backlog: JobQueue[Pending] = JobQueue(
            aging_s=config.batch_aging_s, max_lookahead_jobs=config.lookahead_jobs
        )
        self._queued_tokens = 0
        self._ids = count()
        self._is_closing = False
        self._is_scheduled = False
        self._pause: asyncio.TimerHandle | None = None

    @property
    def is_ready(self) -> bool:
        """Whether an engine can take jobs now."""
        return not self._is_closing and any(slot.keeper.is_up for slot in self._slots)

    @property
    def engines(self) -> int:
        """Engines that take jobs."""
        return sum(slot.keeper.is_up for slot in self._slots)

    @property
    def missing_engines(self) -> int:
        """Engines that were lost and are not replaced yet; none of those that begin or end with this dispatcher."""
        return 0 if self._is_closing else sum(slot.keeper.is_missing for slot in self._slots)

    @property
    def queued_jobs(self) -> int:
        """Jobs not yet given to an engine."""
        return len(self._backlog)

    @property
    def queued_tokens(self) -> int:
        """Source tokens of those."""
        return self._queued_tokens

    @property
    def queued_work_s(self) -> float:
        """Seconds of work that waits, as estimated; 0 before that can be told."""
        return self._backlog.waiting_s(self._load())

    @property
    def running_jobs(self) -> int:
        """Jobs the engines hold."""
        return sum(len(slot.jobs) for slot in self._slots)

    @property
    def live_rows(self) -> int:
        """Hypotheses being decoded, as the engines last reported."""
        return sum(slot.live_rows for slot in self._slots)

    @property
    def engine_pids(self) -> list[int]:
        """Process ids of the engines that are up."""
        return [slot.keeper.pid for slot in self._slots if slot.keeper.pid is not None]

    def snapshot(self, now: float) -> DispatchSnapshot:
        """What waits and what each engine does.

        Args:
            now: time.monotonic().
        """
        engines = tuple(slot.snapshot(now) for slot in self._slots)
        return DispatchSnapshot(queued_jobs=self.queued_jobs, queued_tokens=self.queued_tokens, engines=engines)

    async def start(self) -> None:
        """Return when all engines are warm.

        Raises:
            InternalError: one does not start; the message says why.
        """
        starts: list[asyncio.Task[None]] = []
        try:
            await self._graphs.prepare(self._config.start_timeout_s)
            starts = [asyncio.create_task(slot.keeper.start()) for slot in self._slots]
            await asyncio.gather(*starts)
        except BaseException as error:
            if not isinstance(
                error, asyncio.CancelledError
            ):  # which has reached them; twice would stop them tidying up
                for start in starts:
                    start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await self._stop_engines()
            if isinstance(error, EngineStartError):
                raise InternalError(f"the engine did not start: {error}") from error
            raise
        self.schedule()

    def forecast(
        self,
        sources: Sequence[int],
        params: SearchParams,
        *,
        caller: Caller = ANYBODY,
        priority: Priority = Priority.INTERACTIVE,
    ) -> Forecast:
        """When sentences with so many source tokens each would be done if they were submitted now."""
        return self._backlog.forecast(sources, params, caller=caller, priority=priority, load=self._load())

    def submit(
        self,
        source_ids: Sequence[int],
        params: SearchParams,
        deadline: float | None,
        *,
        caller: Caller = ANYBODY,
        priority: Priority = Priority.INTERACTIVE,
        call: Call | None = None,
    ) -> "asyncio.Future[JobResult]":
        """Queue one sentence.

        Args:
            source_ids: with end-of-sentence, not empty.
            deadline: on time.monotonic().
            client: whose share of the engines it takes.
            priority: which work it goes before.
            call: the call that the sentence belongs to.

        Returns:
            A future that raises DeadlineExceeded (also when too little time is left to begin), Unavailable (engine
            lost, none there, or closing) or InternalError (the model produced no numbers); cancelling it cancels the
            job.
        """
        now = time.monotonic()
        loop = asyncio.get_running_loop()
        job = Job(id=next(self._ids), source_ids=tuple(source_ids), params=params, deadline=deadline, submitted_at=now)
        pending = Pending(job, loop.create_future(), call=call)
        if refusal := self._refusal():
            fail(pending.future, refusal)
            return pending.future
        pending.entry = self._backlog.add(
            pending, len(job.source_ids), params, caller=caller, priority=priority, now=now
        )
        self._queued_tokens += len(job.source_ids)
        pending.future.add_done_callback(partial(self._settle, pending))
        if deadline is not None:
            pending.timer = loop.call_later(max(0.0, deadline - now), _expire, pending)
        self.schedule()
        return pending.future

    async def close(self) -> None:
        """Refuse new jobs, fail those without a result, end the engines; who wants results waits for them before."""
        self._is_closing = True
        if self._pause is not None:
            self._pause.cancel()
        error = Unavailable("the server stopped before the sentence was translated")
        self._fail_queue(error)
        for slot in self._slots:
            slot.fail_all(error)
        await self._stop_engines()

    def schedule(self) -> None:
        """Hand out jobs after everything that happens now, so that the texts of a request cross in one frame."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._hand_out)

    def job_answered(self, job: Job, outcome: Outcome) -> None:
        """An engine is done with it."""
        if isinstance(outcome, JobResult):
            self._backlog.finished(len(job.source_ids), job.params, outcome)

    def engine_reported(self, report: Report) -> None:
        """Its outcomes are with their futures; rows may be free."""
        if report.outcomes:
            self.schedule()
        if report.stats:
            self._backlog.reported(report.stats)
        if report.stats and self._observer:
            self._observer.step(report.stats)

    def engine_lost(self) -> None:
        """Its jobs have failed; those in the queue wait for another engine."""
        if self._observer:
            self._observer.engine_lost()

    def engine_delayed(self) -> None:
        """It is not replaced yet; nobody waits for the last one to come back."""
        if refusal := self._refusal():
            self._fail_queue(refusal)

    def _hand_out(self) -> None:
        """Give the jobs whose turn it is to the engines, as far as their credits reach."""
        self._is_scheduled = False
        now = time.monotonic()
        rooms = {slot: slot.held.room for slot in self._slots if slot.keeper.is_up}
        given: dict[Pending, EngineHandle] = {}
        while (entry := self._first(now)) is not None:
            pending, job = entry.item, entry.item.job
            slot = self._choose_slot(job, now)
            if slot is None:
                self._backlog.ran_full(now)
                break
            if (pause_s := self._backlog.pause_s(now, self._load())) > 0.0:
                self._schedule_after(pause_s)
                break
            self._backlog.serve(entry, job.params.beam_size)
            pending.entry = None  # which leads back to it: only the garbage collector would find the two
            self._queued_tokens -= len(job.source_ids)
            slot.add(pending)
            given[pending] = slot
        for pending, slot in _dealt_by_length(list(given), rooms).items():
            given[pending].take_back(pending)
            slot.add(pending)
            given[pending] = slot
        batches: dict[EngineHandle, list[Start]] = {}
        for pending, slot in given.items():
            batches.setdefault(slot, []).append(Start(pending.job))
        for slot, starts in batches.items():
            slot.keeper.send(starts)

    def _first(self, now: float) -> "Entry[Pending] | None":
        """The job whose turn it is, when those that nobody waits for and those that are too late have gone."""
        load = self._load()
        while (entry := self._backlog.peek(now)) is not None:
            pending, job = entry.item, entry.item.job
            is_late = self._backlog.is_hopeless(len(job.source_ids), job.params, job.deadline, now=now, load=load)
            if not (is_late or pending.future.done()):
                return entry
            self._leave_queue(pending)
            fail(pending.future, DeadlineExceeded("too little time was left when the sentence's turn came"))
        return None

    def _schedule_after(self, seconds: float) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._pause = asyncio.get_running_loop().call_later(seconds, self.schedule)

    def _load(self) -> EngineLoad:
        """Of the engines that are up; of none, as of one with nothing to do."""
        slots = [slot for slot in self._slots if slot.keeper.is_up] or self._slots[:1]
        return EngineLoad(
            len(slots), sum(slot.held.rows for slot in slots), sum(slot.held.runnable_rows for slot in slots)
        )

    def _refusal(self) -> Unavailable | None:
        """Why a job cannot be taken now."""
        if self._is_closing:
            return Unavailable("the server is stopping")
        if not all(slot.is_delayed for slot in self._slots):
            return None  # one is up, or comes back at once
        pauses = [slot.retry_in_s for slot in self._slots if slot.retry_in_s is not None]
        if len(pauses) < len(self._slots):
            return Unavailable("no engine process is running; one is being started")
        return Unavailable(f"no engine process is running; the next start is at most {min(pauses):g} s away")

    def _choose_slot(self, job: Job, now: float) -> EngineHandle | None:
        lookahead_jobs = self._backlog.lookahead_jobs(now)
        slots = [slot for slot in self._slots if slot.keeper.is_up and slot.held.has_room(job, lookahead_jobs)]
        return min(slots, key=lambda slot: (slot.held.share, slot.held.work), default=None)

    def _leave_queue(self, pending: Pending) -> None:
        if pending.entry is not None and self._backlog.remove(pending.entry):
            self._queued_tokens -= len(pending.job.source_ids)
        pending.entry = None

    def _settle(self, pending: Pending, future: "asyncio.Future[JobResult]") -> None:
        """The future has a result, or nobody wants one any more."""
        if pending.timer is not None:
            pending.timer.cancel()
        reason = drop_reason(future, is_late=pending.call is not None and pending.call.is_late(time.monotonic()))
        if pending.slot is None:
            self._leave_queue(pending)
        elif pending.job.id in pending.slot.jobs:  # without an answer yet
            pending.slot.keeper.send([Cancel(pending.job.id)])
        if reason and self._observer:
            self._observer.job_dropped("decode" if pending.slot else "queue", reason)

    def _fail_queue(self, error: DragomanError) -> None:
        for pending in list(self._backlog):
            fail(pending.future, error)

    async def _stop_engines(self) -> None:
        await asyncio.gather(*(slot.keeper.stop() for slot in self._slots))
        self._graphs.remove()


def _expire(pending: Pending) -> None:
    where = "queued" if pending.slot is None else "decoding"
    fail(pending.future, DeadlineExceeded(f"the deadline passed while the sentence was {where}"))


def _dealt_by_length(given: Sequence[Pending], rooms: Mapping[EngineHandle, Room]) -> dict[Pending, EngineHandle]:
    """Another engine for each job, if several engines have room for several jobs: neighbours in length to each."""
    if min(len(given), len(rooms)) < 2:
        return {}
    slots = list(rooms)
    dealt = deal([Share.of(pending.job) for pending in given], list(rooms.values()))
    return {pending: slots[number] for pending, number in zip(given, dealt or (), strict=bool(dealt))}
