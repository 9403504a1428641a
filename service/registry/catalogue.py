"""The models that calls can ask for, and which of them a call means."""

from collections.abc import Iterable
from typing import Protocol

from service.engine.job import SearchParams
from service.queue.admission import Permit
from service.records import Call, ModelInfo
from service.registry.lease import Lease
from service.registry.model_info import TextCodec, index_of
from service.registry.work import OnRoom, Work, WorkDone

_MOST_KEPT = 256  # questions with their answers: callers choose what they ask


class ServedModel(Protocol):
    """A model as a call meets it: where text and tokens end, and the core's work begins."""

    info: ModelInfo
    default_params: SearchParams
    lease: Lease

    @property
    def codec(self) -> TextCodec:
        """The tokenizer with the limits on texts."""
        ...

    def refuse_early(self, call: Call, permit: Permit) -> None:
        """Raise Overloaded if no text, however short, can be taken; before a long one is tokenised."""
        ...

    async def run(self, work: Work, call: Call, permit: Permit, on_room: OnRoom = None) -> WorkDone:
        """Translate, as `run_work`."""
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
