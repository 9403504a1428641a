"""The models a server has loaded, and which of them a request means."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.models.model_info import index_of
from service.models.translator import Translator
from service.translation import ModelInfo


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
        infos = [loaded.info for loaded in self.models]
        return self.models[
            index_of(infos, model=model, source_language=source_language, target_language=target_language)
        ]
