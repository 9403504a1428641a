"""Lets calls in and has the engines do their jobs: where the calls of all protocols meet the scheduler.

    room for the characters -> answered before? -> room for the tokens -> in time? -> a job for each segment -> results

A request that finds no room is refused.  A text of a stream waits in line until there is some, and holds nothing
meanwhile.
"""

import time
from asyncio import Event
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from service.call import Call, Caller
from service.config import LimitsConfig
from service.engine.wire import Job, JobResult, SearchParams, Settled
from service.errors import DeadlineExceeded, OutOfMemory, Overloaded, Wait
from service.models.catalogue import Catalogue, ServedModel
from service.models.translation_cache import Key, TranslationCache
from service.scheduler.admission import MIN_RETRY_S, Admission, Kind, Reservation
from service.scheduler.pool import EnginePool
from service.scheduler.waiting_lines import WaitingLines

_Result = TypeVar("_Result")


class Work(NamedTuple):
    """The jobs that one call has for the engines at once."""

    jobs: Sequence[Job]  # of a call that was not let in before: all with the same search, or all to be scored
    allow_smaller_beam: bool = False  # the scheduler may make beams smaller where much work waits
    may_use_cache: bool = True  # sentences may get the answers that an engine gave before
    is_continuation: bool = False  # of a call that was let in: it is no longer refused for lack of room or time
    characters: int = 0  # of the texts, unless it is a continuation


class CallScheduler:
    """The scheduler of all models, in the scheduler process; a frontend in another process has a `RemoteScheduler`."""

    def __init__(self, catalogue: Catalogue, limits: LimitsConfig, cache: TranslationCache | None = None) -> None:
        """Let calls in that find their models in `catalogue`; without a cache, every sentence goes to an engine."""
        self.catalogue = catalogue
        self.lines = WaitingLines()
        self._limits = limits
        self._cache = cache
        self._empty = Event()
        self.admission = Admission(limits, on_empty=self._empty.set, on_leave=self.lines.departed)

    async def open_stream(self, caller: Caller) -> Reservation:
        """Return a reservation for a stream; raises as `Admission.admit_stream`."""
        return self.admission.admit_stream(caller)

    async def load(self, model: ServedModel, call: Call, reservation: Reservation) -> None:
        """As `ServedModel.load`."""
        if reservation.is_of_stream:
            await self._in_turn(model, call, lambda own: model.load(call, own))
        else:
            await model.load(call, reservation)

    def refuse_early(self, model: ServedModel, call: Call, reservation: Reservation) -> None:
        """Raise Overloaded if not even the shortest text can be taken; called before a long one is tokenised."""
        _check_time((), model.default_params, call, reservation, _pool_of(model))

    async def run(self, model: ServedModel, work: Work, call: Call, reservation: Reservation) -> list[Settled]:
        """Have engines do all jobs, in order; one for which the model gave no numbers has its own error.

        Raises:
            Overloaded: the texts do not fit in the queue, would wait too long or be too late.
            DeadlineExceeded, Unavailable: the call has no answer; jobs that still run are cancelled.
        """
        if not reservation.is_of_stream:
            return await self.run_admitted(model, work, call, reservation)
        if work.is_continuation:
            with reservation.part() as own:
                return await self.run_admitted(model, work, call, own)
        return await self._in_turn(model, call, lambda own: self._admit_and_run(model, work, call, own))

    async def run_for_frontend(self, model: ServedModel, work: Work, call: Call, kind: Kind) -> list[Settled]:
        """Do as `run` for a call in the process of a frontend, where its reservation is of this kind."""
        if kind == "stream":
            return await self._in_turn(model, call, lambda own: self._admit_and_run(model, work, call, own))
        if kind == "part":
            reservation = self.admission.admit_part(call.caller)
        else:
            now = time.monotonic()
            reservation = self.admission.admit(call.texts, now=now, deadline=call.deadline, caller=call.caller)
        with reservation:
            return await self._admit_and_run(model, work, call, reservation)

    async def all_left(self) -> None:
        """Return when every call that was let in has been answered."""
        while self.admission.requests:
            self._empty.clear()
            await self._empty.wait()

    async def _in_turn(
        self, model: ServedModel, call: Call, step: Callable[[Reservation], Awaitable[_Result]]
    ) -> _Result:
        """Try a step for one text of a stream again, each time with a new reservation, until admission lets it in."""
        # Whoever waits in one line waits for the same reason: limits are of a caller, of a model and of a class.
        line = (call.caller.identity, model.info.name, call.priority)
        retry_after_s: float | None = None
        if not self.lines.has_line(line):
            try:
                with self.admission.admit_part(call.caller) as own:
                    return await step(own)
            except Overloaded as error:
                retry_after_s = _pause_s(error)
        with self.lines.queue(line) as place:
            while True:
                await place.turn(retry_after_s)
                try:
                    with self.admission.admit_part(call.caller, on_room=place.enter) as own:
                        return await step(own)
                except Overloaded as error:
                    retry_after_s = _pause_s(error)
                    place.join()  # it has left the line if an engine was too full for what admission had let in

    async def _admit_and_run(
        self, model: ServedModel, work: Work, call: Call, reservation: Reservation
    ) -> list[Settled]:
        """Run work whose texts hold no room yet."""
        reservation.take_characters(work.characters)
        if not model.is_loaded:
            await model.load(call, reservation)
        return await self.run_admitted(model, work, call, reservation)

    async def run_admitted(self, model: ServedModel, work: Work, call: Call, reservation: Reservation) -> list[Settled]:
        """Run work whose characters the reservation holds."""
        pool = _pool_of(model)
        if work.allow_smaller_beam:
            threshold_s = self._limits.brownout_seconds
            work = with_smaller_beam(work, waiting_s=pool.queued_work_s, threshold_s=threshold_s)
        try:
            if self._cache is not None and work.may_use_cache:
                return await _run_cached(self._cache, model, work, call, reservation)
            return await run_jobs(work, call, reservation, pool)
        except Overloaded as error:
            if error.reason in {"queue_seconds", "deadline_unattainable"}:
                error.wait = self._wait_of(call)
            raise

    def _wait_of(self, call: Call) -> Wait | None:
        """Return how long the next text of this call's caller would wait, at the model with the shortest wait.

        None for work of a lower class than the caller may ask for: its next text may be of a higher one.  None also
        where a model is not loaded: nothing waits there.
        """
        models = self.catalogue.models
        if call.priority is not call.caller.priority or not models or not all(one.is_loaded for one in models):
            return None
        forecasts = [_pool_of(one).typical_forecast(one.default_params, call) for one in models]
        return Wait(time.monotonic(), *(min(times) for times in zip(*forecasts, strict=True)))


def _pool_of(model: ServedModel) -> EnginePool:
    assert model.pool is not None, "its engines are in another process"
    return model.pool


def _pause_s(refusal: Overloaded) -> float:
    """Return how long the first in line waits at most before it tries again.

    Raises:
        OutOfMemory: an engine had too little memory; to wait for room is of no use.
        DeadlineExceeded: the text would be too late.
    """
    if isinstance(refusal, OutOfMemory):
        raise refusal
    if refusal.reason == "deadline_unattainable":
        raise DeadlineExceeded(str(refusal), reason=refusal.reason) from refusal
    return max(refusal.retry_after_s, MIN_RETRY_S)  # limits.retry_after_s may be 0: it would do nothing but try


async def _run_cached(
    cache: TranslationCache, model: ServedModel, work: Work, call: Call, reservation: Reservation
) -> list[Settled]:
    """Take results from the cache, and have the engines do the rest, each different job once."""
    # A job that is never kept has its place as its key.
    keys = [cache.key(model.number, call.caller, job) or place for place, job in enumerate(work.jobs)]
    settled: dict[Key | int, Settled] = {}
    asked: dict[Key | int, int] = {}  # place of the job that an engine does
    for place, key in enumerate(keys):
        if key in settled or key in asked:
            continue
        if isinstance(key, Key) and (known := cache.find(key)) is not None:
            settled[key] = known
        else:
            asked[key] = place
    if asked:
        rest = work._replace(jobs=[work.jobs[place] for place in asked.values()])
        for key, result in zip(asked, await run_jobs(rest, call, reservation, _pool_of(model)), strict=True):
            settled[key] = result
            if isinstance(key, Key) and isinstance(result, JobResult):
                cache.keep(key, result)
    else:
        reservation.got_room()
    results: list[Settled] = []
    for place, key in enumerate(keys):
        result = settled[key]
        if asked.get(key) != place and isinstance(result, JobResult):
            result = result._replace(queue_s=0.0, encode_s=0.0, decode_s=0.0, num_steps=0, row_steps=0)
            call.job_finished(result)
        results.append(result)
    return results


def with_smaller_beam(work: Work, *, waiting_s: float, threshold_s: float | None) -> Work:
    """Halve the beams from `threshold_s` of waiting work on, and once more from twice as much on.

    5 becomes 2, then 1; never less than the hypotheses that were asked for.  Without a threshold the beams stay.
    """
    if threshold_s is None or waiting_s < threshold_s:
        return work
    num_halvings = 2 if waiting_s >= 2 * threshold_s else 1

    def halved(params: SearchParams) -> SearchParams:
        return params._replace(beam_size=max(params.beam_size >> num_halvings, params.num_hypotheses, 1))

    return work._replace(jobs=[job._replace(params=halved(job.params)) for job in work.jobs])


async def run_jobs(work: Work, call: Call, reservation: Reservation, pool: EnginePool) -> list[Settled]:
    """Take room for the jobs, check the time, and have the engines do them; raises as `CallScheduler.run`."""
    jobs = [_in_one_row(job) if job.scored_ids is not None else job for job in work.jobs]
    lengths = [job.num_tokens for job in jobs]
    reservation.take_tokens(sum(lengths), is_continuation=work.is_continuation)
    if not work.is_continuation:
        _check_time(lengths, jobs[0].params, call, reservation, pool)
    reservation.got_room()
    call.phase = "queue"
    return await pool.run(jobs, call)


def _check_time(
    lengths: Sequence[int], params: SearchParams, call: Call, reservation: Reservation, pool: EnginePool
) -> None:
    """Refuse texts with so many source tokens each if they would wait too long or be too late."""
    ahead_s, finish_s = pool.forecast(lengths, params, call)
    reservation.check(ahead_s, finish_s, now=time.monotonic(), deadline=call.deadline)


def _in_one_row(job: Job) -> Job:
    """Return a job that scores as it runs: in one pass over both sides."""
    return job._replace(params=job.params._replace(beam_size=1, num_hypotheses=1, max_target_tokens=1))
