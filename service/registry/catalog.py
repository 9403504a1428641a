"""The models a server has loaded, and which of them a request means."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from service.records import ModelInfo
from service.registry.model_info import index_of
from service.translation.translator import Translator


class Lease:
    """How many calls use a version now; each one says so with `with model.lease:`."""

    def __init__(self) -> None:
        self.calls = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def wait_idle(self) -> None:
        """Return when no call uses it."""
        await self._is_idle.wait()

    def __enter__(self) -> None:
        self.calls += 1
        self._is_idle.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.calls -= 1
        if self.calls == 0:
            self._is_idle.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """One version of a model that can translate; whoever found it enters `lease` before it waits for anything."""

    info: ModelInfo
    translator: Translator
    lease: Lease = field(default_factory=Lease)


def _anybody_may(_: str) -> bool:
    return True


class Catalog:
    """Finds the model for a request, in the order in which it was given them."""

    def __init__(self, models: Sequence[LoadedModel] = ()) -> None:
        self.models = tuple(models)

    def replace(self, models: Sequence[LoadedModel]) -> None:
        """What later requests find; those that have found theirs keep it."""
        self.models = tuple(models)

    def find(
        self,
        *,
        model: str | None,
        source_language: str,
        target_language: str,
        may_use: Callable[[str], bool] = _anybody_may,
    ) -> LoadedModel:
        """The first model that fits; an empty language, and no model, fit all.

        Args:
            may_use: whether the caller may use the model of this name; those that it may not are as if they were not.

        Raises:
            NotFound: none does; the message lists what there is.
        """
        models = [loaded for loaded in self.models if may_use(loaded.info.name)]
        infos = [loaded.info for loaded in models]
        return models[index_of(infos, model=model, source_language=source_language, target_language=target_language)]
