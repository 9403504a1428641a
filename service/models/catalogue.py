"""What calls see of the scheduler process: the models that they can ask for, which one a call means, and the way in."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, TypeAlias

from service.call import Call, Caller
from service.config import LimitsConfig
from service.engine.wire import Job, JobResult, SearchParams
from service.errors import InternalError
from service.models.info import TextCodec, index_of
from service.records import ModelInfo
from service.scheduler.admission import Admission, Reservation
from service.scheduler.waiting_lines import WaitingLines

Settled: TypeAlias = JobResult | InternalError  # an error that concerns this text only

_MOST_KEPT = 256  # questions with their answers: callers choose what they ask


class Work(NamedTuple):
    """What one call wants from the engines at once."""

    jobs: Sequence[Job]  # those of a call that was not let in before search alike, or all score
    allow_smaller_beam: bool = False  # where much work waits
    may_use_cache: bool = True  # whether sentences may have the answers that were given before
    is_continuation: bool = False  # of a call that was let in: it is not refused any more for want of room or time


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
    """A model as a call meets it: where text and tokens end, and the scheduler process's work begins."""

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
    """What serves now; the first model is the default."""

    def __init__(self) -> None:
        self.models: tuple[ServedModel, ...] = ()
        self._found: dict[tuple[str | None, str, str, frozenset[str] | None], ServedModel] = {}

    def replace(self, models: Iterable[ServedModel]) -> None:
        """Have later calls find these."""
        self.models = tuple(models)
        self._found.clear()

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
        question = (model, source_language, target_language, allowed)
        found = self._found.get(question)
        if found is None:
            models = [one for one in self.models if allowed is None or one.info.name in allowed]
            infos = [one.info for one in models]
            index = index_of(infos, model=model, source_language=source_language, target_language=target_language)
            if len(self._found) >= _MOST_KEPT:
                self._found.clear()
            found = self._found[question] = models[index]
        return found


class SchedulerClient:
    """The way to the scheduler in the frontend's own process; `RemoteScheduler` is that to another process."""

    def __init__(self, catalogue: Catalogue, limits: LimitsConfig) -> None:
        """Let calls in that find their models in `catalogue`."""
        self.catalogue = catalogue
        self.lines = WaitingLines()  # of texts of streams that wait for room
        self._empty = asyncio.Event()
        self.admission = Admission(limits, on_empty=self._empty.set, on_leave=self.lines.departed)

    async def open_stream(self, caller: Caller) -> Reservation:
        """Return a reservation for a stream; raises as `Admission.admit_stream`."""
        return self.admission.admit_stream(caller)

    async def all_left(self) -> None:
        """Return when every call that was let in has been answered."""
        while self.admission.requests:
            self._empty.clear()
            await self._empty.wait()
