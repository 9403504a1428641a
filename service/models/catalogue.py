"""The models that serve, and the choice among them: which model a request means, and between which languages."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from model.language_codes import flores_of
from model.languages import Language
from service.call import Call
from service.engine.wire import SearchParams
from service.errors import NotFound
from service.models.codec import TextCodec
from service.records import ModelInfo
from service.scheduler.admission import Reservation
from service.text.languages import closeness

if TYPE_CHECKING:
    from service.scheduler.pool import EnginePool

_MOST_KEPT = 256  # questions with their answers: callers choose what they ask
_MAX_ECHO = 40  # characters of a caller's value in a message
_MAX_OFFERS = 12  # language pairs in a message


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
    def pool(self) -> "EnginePool | None":
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


def languages_of(info: ModelInfo) -> tuple[Language, ...]:
    """Return the languages of a model in all their codes; of a model of one pair the source, then the target."""
    source, target = info.source_language, info.target_language
    return info.languages or (
        Language(code=source, flores=flores_of(source), is_target=False),
        Language(code=target, flores=flores_of(target), is_source=False),
    )


def pair_distance(info: ModelInfo, source_language: str, target_language: str) -> int | None:
    """Return the distance of a model's languages to those of a request, 0 for the same; None: it does not fit."""
    if info.languages:
        found = _find_pair(info, source_language, target_language)
        return None if found is None else found[0]
    distance = 0
    for asked, offered in ((source_language, info.source_language), (target_language, info.target_language)):
        if asked:
            if (far := closeness(asked, offered)) is None:
                return None
            distance += far
    return distance


def for_languages(info: ModelInfo, source_language: str, target_language: str) -> ModelInfo:
    """Return a model of several languages as a model of these two; a model of one pair as it is."""
    found = _find_pair(info, source_language, target_language) if info.languages else None
    if found is None:
        return info
    return replace(info, source_language=found[1], target_language=found[2])


def _find_pair(info: ModelInfo, source_language: str, target_language: str) -> tuple[int, str, str] | None:
    """Return the closest languages of a model of several, and their distance; its usual one where none is asked."""
    source = target = (0, "")
    if source_language:
        source = min(_near(source_language, info, is_source=True), default=(0, ""))
    if target_language:
        target = min(_near(target_language, info, is_source=False), default=(0, ""))
    if (source_language and not source[1]) or (target_language and not target[1]):
        return None
    usual = info.source_language, info.target_language
    from_code = source[1] or next(code for code in (*usual, *info.source_languages) if code != target[1])
    to_code = target[1] or next(code for code in (*reversed(usual), *info.target_languages) if code != from_code)
    if from_code == to_code or to_code not in info.target_languages or from_code not in info.source_languages:
        return None
    return source[0] + target[0], from_code, to_code


def _near(asked: str, info: ModelInfo, *, is_source: bool) -> list[tuple[int, str]]:
    """Return the languages of a model that serve for the one asked for, by any of its codes, and how far each is."""
    languages = [one for one in info.languages if (one.is_source if is_source else one.is_target)]
    for one in languages:
        if asked in (one.code, one.flores):
            return [(0, one.code)]
    return [(int(far), one.code) for one in languages if (far := closeness(asked, one.code)) is not None]


def for_request(
    info: ModelInfo, codec: TextCodec, source_language: str, target_language: str
) -> tuple[ModelInfo, TextCodec]:
    """Return a model and its codec for these languages; those of a model of one pair are the same for all."""
    if not info.languages:
        return info, codec
    info = for_languages(info, source_language, target_language)
    return info, codec.between(info.source_language, info.target_language)
