"""Translates the missing parts of a job, one stream of texts through one client or model."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from service.bulk.job import Failures, Job
from service.bulk.parts import Part
from service.errors import InvalidInput
from service.grpc.codec import check_encodable
from service.records import TranslateAll, Translation

OnPart = Callable[[Part], None]


@dataclass(slots=True)
class _Flow:
    """The texts of many parts as one stream, so that the next part's are under way before one is written."""

    job: Job
    parts: Sequence[Part]
    _mistakes: deque[InvalidInput | None] = field(default_factory=deque)  # of the texts taken and not translated yet

    def texts(self) -> Iterator[str]:
        """What can be sent; a text that cannot be is taken for a blank one, which costs nothing."""
        for text in self.job.texts(self.parts):
            self._mistakes.append(mistake := _mistake_in(text))
            yield "" if mistake else text

    def outcomes(self, translations: Iterator[Translation]) -> Iterator[Translation]:
        """The translations of the texts, and what is wrong with those that could not be sent."""
        for translation in translations:
            mistake = self._mistakes.popleft()
            yield Translation(error=mistake) if mistake else translation


def translate_parts(job: Job, parts: Iterable[Part], translate_all: TranslateAll, on_part: OnPart) -> None:
    """Translate and keep these parts, in order; a text that fails becomes an empty one.

    Raises:
        DragomanError: no answer, or of another version of the model; what has been kept stays.
        JobError: the source has changed; likewise.
    """
    every = tuple(parts)
    flow = _Flow(job, every)
    translations = flow.outcomes(translate_all(flow.texts()))
    for part in every:
        failures: Failures = []
        outcomes = enumerate(islice(translations, part.count))
        texts = [_text_of(translation, number, failures) for number, translation in outcomes]
        job.write(part, texts, failures)
        on_part(part)


def _mistake_in(text: str) -> InvalidInput | None:
    try:
        check_encodable(text, "the text")
    except InvalidInput as error:
        return error
    return None


def _text_of(translation: Translation, number: int, failures: Failures) -> str:
    if translation.error is not None:
        failures.append((number, str(translation.error)))
        return ""
    return translation.text
