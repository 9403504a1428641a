"""What calls use of the scheduler process: the models to ask for, which one a call means, and the way in."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from service.call import Call, Caller
from service.config import LimitsConfig
from service.engine.wire import Job, JobResult, SearchParams
from service.errors import DeadlineExceeded, InternalError, OutOfMemory, Overloaded
from service.models.info import TextCodec, index_of
from service.records import ModelInfo
from service.scheduler.admission import MIN_RETRY_S, Admission, Kind, Reservation
from service.scheduler.waiting_lines import WaitingLines

Settled: TypeAlias = JobResult | InternalError  # an error that concerns this text only

_MOST_KEPT = 256  # questions with their answers: callers choose what they ask


class Work(NamedTuple):
    """What one call wants from the engines at once."""

    jobs: Sequence[Job]  # those of a call that was not let in before search alike, or all score
    allow_smaller_beam: bool = False  # where much work waits
    may_use_cache: bool = True  # whether sentences may have the answers that were given before
    is_continuation: bool = False  # of a call that was let in: it is not refused any more for want of room or time
    characters: int = 0  # of the texts, unless it is a continuation


class UseCount:
    """Counts the calls that use a version now; each call enters it with `with model.in_use:` before it waits."""

    def __init__(self, on_idle: Callable[[], None] | None = None) -> None:
        """Nobody uses the version; `on_idle` is called whenever that is so again."""
        self.calls = 0
        self.used_at = time.monotonic()  # when the last call left it, or it was loaded
        self._on_idle = on_idle
        self._is_idle = asyncio.Event()  # cleared by who waits for it

    async def wait_idle(self) -> None:
        """Return when no call uses the version."""
        if self.calls:
            self._is_idle.clear()
            await self._is_idle.wait()

    def __enter__(self) -> None:
        self.calls += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.calls -= 1
        if self.calls == 0:
            self._is_idle.set()
            self.used_at = time.monotonic()
            if self._on_idle is not None:
                self._on_idle()


class ServedModel(Protocol):
    """A model as calls use it; from here on there are no texts, only token ids."""

    info: ModelInfo
    default_params: SearchParams
    in_use: UseCount

    @property
    def is_loaded(self) -> bool:
        """Whether it can tokenise and run now; one that calls use stays so."""
        ...

    @property
    def codec(self) -> TextCodec:
        """The tokenizer with the limits on texts; only of a model that is loaded."""
        ...

    async def load(self, call: Call, reservation: Reservation) -> None:
        """Return when it is loaded, for a call that counts in `in_use`.

        Raises:
            Overloaded: the call would be too late, or there is no room for the model in memory.
            Unavailable, FailedPrecondition: it cannot be loaded.
        """
        ...

    def refuse_early(self, call: Call, reservation: Reservation) -> None:
        """Raise Overloaded if no text, however short, can be taken; before a long one is tokenised."""
        ...

    async def run(self, work: Work, call: Call, reservation: Reservation) -> list[Settled]:
        """Have engines do all jobs, in order; one for which the model gave no numbers has its own error.

        Raises:
            Overloaded: the texts do not fit in the queue, would wait too long or be too late.
            DeadlineExceeded, Unavailable: the call has no answer; jobs that still run are cancelled.
        """
        ...


class Catalogue:
    """The models that serve now; the first one is the default."""

    def __init__(self) -> None:
        self.models: tuple[ServedModel, ...] = ()
        self._found = lru_cache(_MOST_KEPT)(self._find)

    def replace(self, models: Iterable[ServedModel]) -> None:
        """Have later calls find these models."""
        self.models = tuple(models)
        self._found.cache_clear()

    def find(
        self,
        *,
        model: str | None,
        source_language: str,
        target_language: str,
        allowed: frozenset[str] | None = None,
    ) -> ServedModel:
        """Return the first model that fits and is allowed; an empty language, and no model, fit all.

        Raises:
            NotFound: no model fits; the message lists the models that there are.
        """
        return self._found(model, source_language, target_language, allowed)

    def _find(
        self, model: str | None, source_language: str, target_language: str, allowed: frozenset[str] | None
    ) -> ServedModel:
        models = [one for one in self.models if allowed is None or one.info.name in allowed]
        infos = [one.info for one in models]
        return models[index_of(infos, model=model, source_language=source_language, target_language=target_language)]


_Result = TypeVar("_Result")


class CallScheduler:
    """Lets calls in, and has models work for them; a frontend in another process has a `RemoteScheduler` in its place.

    A request that finds no room is refused.  A text of a stream waits in line until there is some, and holds nothing
    meanwhile.
    """

    def __init__(self, catalogue: Catalogue, limits: LimitsConfig) -> None:
        """Let calls in that find their models in `catalogue`."""
        self.catalogue = catalogue
        self.lines = WaitingLines()
        self._empty = asyncio.Event()
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

    async def run(self, model: ServedModel, work: Work, call: Call, reservation: Reservation) -> list[Settled]:
        """As `ServedModel.run`."""
        if not reservation.is_of_stream:
            return await model.run(work, call, reservation)
        if work.is_continuation:
            with reservation.part() as own:
                return await model.run(work, call, own)
        return await self._in_turn(model, call, lambda own: _run_anew(model, work, call, own))

    async def run_for(self, model: ServedModel, work: Work, call: Call, kind: Kind) -> list[Settled]:
        """Have a model work for a call of another process, where its reservation is of this kind; raises as `run`."""
        if kind == "stream":
            return await self._in_turn(model, call, lambda own: _run_anew(model, work, call, own))
        if kind == "part":
            reservation = self.admission.admit_part(call.caller)
        else:
            now = time.monotonic()
            reservation = self.admission.admit(call.texts, now=now, deadline=call.deadline, caller=call.caller)
        with reservation:
            return await _run_anew(model, work, call, reservation)

    async def all_left(self) -> None:
        """Return when every call that was let in has been answered."""
        while self.admission.requests:
            self._empty.clear()
            await self._empty.wait()

    async def _in_turn(
        self, model: ServedModel, call: Call, step: Callable[[Reservation], Awaitable[_Result]]
    ) -> _Result:
        """Return what a step gives that has a reservation of its own, once that is not refused."""
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


async def _run_anew(model: ServedModel, work: Work, call: Call, reservation: Reservation) -> list[Settled]:
    """Have a model work whose texts hold nothing yet."""
    reservation.take_characters(work.characters)
    if not model.is_loaded:
        await model.load(call, reservation)
    return await model.run(work, call, reservation)


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
