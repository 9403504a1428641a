"""The models a server has loaded, and which of them a request means."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.errors import NotFound
from service.translation import ModelInfo
from service.translator import Translator

_MAX_ECHO = 40  # characters of a caller's value that are repeated to it


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """One model that can translate."""

    info: ModelInfo
    max_target_tokens: int
    translator: Translator


class Catalog:
    """Finds the model for a request, in the order of loading."""

    def __init__(self, models: Sequence[LoadedModel] = ()) -> None:
        self.models = tuple(models)

    def find(self, *, model: str | None, source_language: str, target_language: str) -> LoadedModel:
        """The first model that fits; an empty language, and no model, fit all.

        Raises:
            NotFound: none does; the message lists what there is.
        """
        named = [loaded for loaded in self.models if model is None or loaded.info.name == model]
        if not named:
            names = ", ".join(loaded.info.name for loaded in self.models)
            raise NotFound(f"there is no model {_echo(model or '')}; loaded: {names}")
        for loaded in named:
            if _fits(source_language, loaded.info.source_language) and _fits(
                target_language, loaded.info.target_language
            ):
                return loaded
        pairs = ", ".join(f"{loaded.info.source_language}-{loaded.info.target_language}" for loaded in named)
        asked = " to ".join(_echo(code) if code else "any language" for code in (source_language, target_language))
        raise NotFound(f"there is no model for {asked}; language pairs: {pairs}")


def _fits(asked: str, offered: str) -> bool:
    return asked == "" or asked.lower() == offered.lower()


def _echo(value: str) -> str:
    """A caller's value, short and harmless in a message."""
    return ascii(value if len(value) <= _MAX_ECHO else value[:_MAX_ECHO] + "...")
