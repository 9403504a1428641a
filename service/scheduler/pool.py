"""Takes jobs in, gives them to the engine processes, and returns a future for each.

Lives in an event loop.  Jobs wait here, in the job queue's order, where a cancelled or late one costs
nothing; an engine holds what it can run now and a few more, so that it never waits for this process.  They also wait
for an engine that is replaced at once; when all replacements have to pause first, jobs are refused and not kept.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from service.call import ANYBODY, Call, Caller
from service.engine.wire import EngineSpec, Job, JobResult, SearchParams
from service.errors import DeadlineExceeded, DragomanError, InternalError, Unavailable
from service.processes.process import StartError, SupervisorConfig
from service.records import Priority
from service.scheduler.engine_handle import EngineHandle, EngineObserver, EngineSnapshot, Pending
from service.scheduler.job_queue import EngineLoad, JobQueue
from service.scheduler.packed_weights import PackedWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig(SupervisorConfig):
    """How many engine processes there are and how they are kept."""

    num_engines: int = 1
    lookahead_jobs: int = 8  # at most sent to an engine beyond what it can run, so that freed rows are taken at once
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

    def forecast(self, sources: Sequence[int], params: SearchParams, call: Call | None = None) -> tuple[float, float]:
        """Return what `JobQueue.forecast` says of sentences with so many source tokens each in this call."""
        caller, priority, _ = _terms_of(call)
        return self._queue.forecast(sources, params, caller=caller, priority=priority, loads=self._loads())

    def typical_forecast(self, params: SearchParams, call: Call) -> tuple[float, float]:
        """Return the forecast for one sentence in this call of the length that sentences have had lately."""
        return self.forecast((round(self._queue.typical_tokens),), params, call)

    def submit(self, job: Job, call: Call | None = None) -> "asyncio.Future[JobResult]":
        """Queue one sentence.

        Args:
            job: what the engine is to do, which gets its number, its times and its class here.
            call: the call that the sentence belongs to: whose share of the engines it takes, which work it goes before,
                and its deadline; None: interactive work of nobody in particular, without a deadline.

        Returns:
            A future that raises DeadlineExceeded (also when too little time is left to begin), Unavailable (engine
            lost, none there, or closing) or InternalError (the model produced no numbers); cancelling it cancels the
            job.
        """
        now, loop = time.monotonic(), asyncio.get_running_loop()
        caller, priority, deadline = _terms_of(call)
        is_batch = priority is Priority.BATCH
        job = job._replace(id=next(self._ids), deadline=deadline, submitted_at=now, is_batch=is_batch)
        pending = Pending(job, caller, priority, now, future=loop.create_future(), call=call)
        if refusal := self._refusal():
            pending.fail(refusal)
            return pending.future
        self._queue.add(pending)
        pending.future.add_done_callback(partial(self._settle, pending))
        if deadline is not None:
            pending.timer = loop.call_later(max(0.0, deadline - now), _expire, pending)
        self._schedule()
        return pending.future

    async def close(self) -> None:
        """Refuse new jobs, fail those without a result, end the engines; who wants results waits for them before."""
        self._is_closing = True
        error = Unavailable("the server stopped before the sentence was translated")
        self._fail_queue(error)
        for engine in self._engines:
            engine.fail_all(error)
        await self.stop()

    async def stop(self) -> None:
        """End the engines, for which nobody waits; `start` may follow."""
        try:
            await asyncio.gather(*(engine.stop() for engine in self._engines))
        finally:  # also when the server stops in the meantime
            self._packed.remove()

    def _schedule(self) -> None:
        """Hand out jobs after everything that happens now, so that the texts of a request cross in one frame."""
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
        """Loads of the engines that are up; where none is, of one that has nothing to do."""
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
        """Tidy up after a future that has a result, or that nobody waits for any more."""
        if pending.timer is not None:
            pending.timer.cancel()
        if pending.engine is None:
            self._queue.remove(pending)
        else:
            pending.engine.cancel(pending.item)
        if future.cancelled():  # a call takes its jobs back when its deadline has passed, and when its client goes
            is_late = pending.call is not None and pending.call.is_late(time.monotonic())
            reason = "deadline" if is_late else "cancelled"
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


def _terms_of(call: Call | None) -> tuple[Caller, Priority, float | None]:
    """Return whose work a call is, which class of work, and its deadline."""
    if call is None:
        return ANYBODY, Priority.INTERACTIVE, None
    return call.caller, call.priority or Priority.INTERACTIVE, call.deadline
