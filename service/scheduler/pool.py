"""Takes jobs in, gives them to the engine processes, and returns what becomes of them.

The pool lives in an event loop.  Jobs wait here in the order of the job queue, where a cancelled or late job costs
nothing.  An engine holds the jobs that it can run now and a few more, so that it never waits for this process.  Jobs
also wait for an engine that is replaced at once.  When all replacements have to pause first, jobs are refused.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from service.call import Call
from service.engine.wire import EngineSpec, Job, SearchParams, Settled
from service.errors import DeadlineExceeded, DragomanError, InternalError, Unavailable
from service.processes.supervisor import StartError, SupervisorConfig
from service.records import Priority
from service.scheduler.engine_handle import (
    EngineHandle,
    EngineObserver,
    EngineSnapshot,
    JobGroup,
    Pending,
)
from service.scheduler.job_queue import EngineLoad, JobQueue
from service.scheduler.packed_weights import PackedWeights

_TIMER_PERIOD_S = 0.005  # between two looks for late jobs, at least
_TIMER_ROUNDING_S = 0.002  # uvloop's clock counts milliseconds: its timers may go off that much early


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
    """Jobs in, what became of them out."""

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
        self._groups: set[JobGroup] = set()  # that somebody waits for
        self._timer: asyncio.TimerHandle | None = None  # for the deadline that comes next ...
        self._timer_at = 0.0  # ... which is at this time
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
        idle = [engine for engine in self._engines if engine.is_up and not engine.load.jobs]
        if idle and self.engines > 1:
            await idle[-1].stop()

    def forecast(self, sources: Sequence[int], params: SearchParams, call: Call) -> tuple[float, float]:
        """Return what `JobQueue.forecast` says of sentences with so many source tokens each in this call."""
        priority = call.priority or Priority.INTERACTIVE
        return self._queue.forecast(sources, params, caller=call.caller, priority=priority, loads=self._loads())

    def typical_forecast(self, params: SearchParams, call: Call) -> tuple[float, float]:
        """Return the forecast for one sentence in this call of the length that sentences have had lately."""
        return self.forecast((round(self._queue.typical_tokens),), params, call)

    async def run(self, jobs: Sequence[Job], call: Call) -> list[Settled]:
        """Return what becomes of jobs, in order; one for which the model gave no numbers has its own error.

        Args:
            jobs: what the engines are to do; each gets its number, its times and its class here.
            call: the call that they belong to: whose share of the engines they take, which work they go before, and
                their deadline.

        Raises:
            DeadlineExceeded: the deadline has passed, or too little time is left to begin.
            OutOfMemory: an engine had too little memory for them.
            Unavailable: the engine is lost, there is none, or the pool closes.
        """
        if refusal := self._refusal(self._up()):
            raise refusal
        group = self._add(jobs, call)
        try:
            return await group.results
        finally:
            self._groups.discard(group)
            if group.jobs:
                self._drop(group)
            del group  # it leads to the error that is raised, whose frames lead here

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
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            await asyncio.gather(*(engine.stop() for engine in self._engines))
        finally:  # also when the server stops in the meantime
            self._packed.remove()

    def _add(self, jobs: Sequence[Job], call: Call) -> JobGroup:
        """Put the jobs of a call into the queue."""
        now, priority, group = time.monotonic(), call.priority or Priority.INTERACTIVE, JobGroup(call, len(jobs))
        # The longest first: they take the most steps, and the call is answered when its last text is.
        for place in sorted(range(len(jobs)), key=lambda place: -jobs[place].num_tokens):
            job = jobs[place]._replace(
                id=next(self._ids), deadline=call.deadline, submitted_at=now, is_batch=priority is Priority.BATCH
            )
            pending = Pending(job, call.caller, priority, now, group=group, place=place)
            group.jobs.add(pending)
            self._queue.add(pending)
        self._schedule()
        self._groups.add(group)
        if self._timer is None or call.deadline < self._timer_at:
            self._set_timer(call.deadline, now)
        return group

    def _schedule(self) -> None:
        """Hand out the jobs that wait at the end of this turn of the loop, when all that has come is there."""
        if not self._is_scheduled and self._queue:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._hand_out)

    def _hand_out(self) -> None:
        """Give the jobs whose turn it is to the engines that have room, or refuse all if no engine comes back soon."""
        self._is_scheduled = False
        engines = self._up()
        if refusal := self._refusal(engines):
            self._fail_queue(refusal)
            return
        batches: dict[int, list[Pending]] = {}
        for pending, number in self._queue.hand_out([engine.load for engine in engines], time.monotonic()):
            if number is None:
                pending.fail(DeadlineExceeded("too little time was left when the sentence's turn came"))
            elif pending.group.results.done():  # nobody waits for it any more
                engines[number].load.add(pending.item, -1)
                self._schedule()
            else:
                batches.setdefault(number, []).append(pending)
        for number, batch in batches.items():
            engines[number].start_jobs(batch)

    def _loads(self) -> list[EngineLoad]:
        """Return the loads of the engines that are up; if none is up, that of an idle one."""
        return [engine.load for engine in self._up() or self._engines[:1]]

    def _up(self) -> list[EngineHandle]:
        return [engine for engine in self._engines if engine.is_up]

    def _refusal(self, up: Sequence[EngineHandle]) -> Unavailable | None:
        """Return why a job cannot be taken now, while these engines are up."""
        if self._is_closing:
            return Unavailable("the server is stopping")
        if up:
            return None
        engines = [engine for engine in self._engines if engine.supervisor.is_started] or self._engines
        if not all(engine.supervisor.is_delayed for engine in engines):
            return None  # one comes back at once
        pauses = [engine.supervisor.retry_in_s for engine in engines]
        if None in pauses:
            return Unavailable("no engine process is running; one is being started")
        next_s = min(pause_s for pause_s in pauses if pause_s is not None)
        return Unavailable(f"no engine process is running; the next start is at most {next_s:g} s away")

    def _drop(self, group: JobGroup) -> None:
        """Take back the jobs of a group that has ended without them."""
        ended = group.results
        is_late = (
            group.call.is_late(time.monotonic())
            if ended.cancelled()
            else isinstance(ended.exception(), DeadlineExceeded)
        )
        for pending in group.jobs:
            if pending.engine is None:
                self._queue.remove(pending)
            else:
                pending.engine.cancel(pending.item)
            if self._observer:
                self._observer.job_dropped(
                    "queue" if pending.engine is None else "decode", "deadline" if is_late else "cancelled"
                )
        group.jobs.clear()

    def _set_timer(self, at: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - now), self._expire)

    def _expire(self) -> None:
        """Fail the groups whose deadlines have passed, and look again at the next deadline."""
        now, self._timer = time.monotonic(), None
        left = [group for group in self._groups if not group.results.done()]
        for group in left:
            if group.call.deadline <= now + _TIMER_ROUNDING_S:
                where = "queued" if any(pending.engine is None for pending in group.jobs) else "decoding"
                group.fail(DeadlineExceeded(f"the deadline passed while the sentence was {where}"))
        if deadlines := [group.call.deadline for group in left if not group.results.done()]:
            self._set_timer(max(min(deadlines), now + _TIMER_PERIOD_S), now)

    def _fail_queue(self, error: DragomanError) -> None:
        for pending in list(self._queue):
            self._queue.remove(pending)
            pending.fail(error)
