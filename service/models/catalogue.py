"""What calls use of the scheduler process: the models that they can ask for, and which one a call means."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import NamedTuple, Protocol, TypeAlias

from service.call import Call
from service.engine.wire import Job, JobResult, SearchParams
from service.errors import InternalError, NotFound
from service.models.info import TextCodec, pair_distance
from service.records import ModelInfo
from service.scheduler.admission import Reservation
from service.scheduler.pool import EnginePool

Settled: TypeAlias = JobResult | InternalError  # an error that concerns this text only

_MOST_KEPT = 256  # questions with their answers: callers choose what they ask
_MAX_ECHO = 40  # characters of a caller's value in a message
_MAX_OFFERS = 12  # language pairs in a message


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
    """A model as calls use it: its codec turns texts into token ids and back, everything else has only ids."""

    number: int  # among all models of the scheduler process
    info: ModelInfo
    default_params: SearchParams
    in_use: UseCount

    @property
    def pool(self) -> EnginePool | None:
        """Its engines; None in the process of a frontend, where it has none."""
        ...

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


def index_of(infos: Sequence[ModelInfo], *, model: str | None, source_language: str, target_language: str) -> int:
    """Return the index of the model whose languages are closest, the first of several; an empty language fits all.

    Args:
        model: the only one that is meant; None: any.

    Raises:
        NotFound: no model fits; the message lists what there is.
    """
    named = [index for index, info in enumerate(infos) if model is None or info.name == model]
    if not named:
        names = ", ".join(info.name for info in infos)
        asked = "" if model is None else f" {_echo(model)}"
        raise NotFound(f"there is no model{asked}; loaded: {names or 'none'}")
    fitting = [
        (distance, index)
        for index in named
        if (distance := pair_distance(infos[index], source_language, target_language)) is not None
    ]
    if fitting:
        return min(fitting)[1]
    offers = [_offer(infos[index]) for index in named]
    some = ", ".join(offers[:_MAX_OFFERS]) + (f" and {len(offers) - _MAX_OFFERS} more" * (len(offers) > _MAX_OFFERS))
    languages = " to ".join(_echo(code) if code else "any language" for code in (source_language, target_language))
    raise NotFound(f"there is no model for {languages}; language pairs: {some}")


def _offer(info: ModelInfo) -> str:
    if not info.languages:
        return f"{info.source_language}-{info.target_language}"
    return (
        f"{info.name} from {len(info.source_languages)} to {len(info.target_languages)} languages (ListModels has them)"
    )


def _echo(value: str) -> str:
    """Return a caller's value, short and harmless in a message."""
    return ascii(value if len(value) <= _MAX_ECHO else value[:_MAX_ECHO] + "...")
