"""Translates the missing parts of a job, one stream of texts through one client or model."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from service.api.replies import check_encodable
from service.bulk.formats import Part
from service.bulk.job import Failures, Job
from service.errors import InvalidInput
from service.translation import TranslateAll, Translation

OnPart = Callable[[Part], None]


@dataclass(slots=True)
class _Flow:
    """The texts of many parts as one stream, so that the next part's are under way before one is written."""

    job: Job
    parts: Iterable[Part]
    _mistakes: deque[InvalidInput | None] = field(default_factory=deque)  # of the texts taken and not translated yet

    def texts(self) -> Iterator[str]:
        """What can be sent; a text that cannot be is taken for a blank one, which costs nothing."""
        for part in self.parts:
            for record in self.job.format.read(self.job.source, part):
                text = self.job.format.text(record)
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
        DragomanError: no answer; what has been kept stays.
        JobError: another version of the model answers than the job began with; likewise.
    """
    every = deque(parts)
    flow = _Flow(job, tuple(every))
    translations = flow.outcomes(translate_all(flow.texts()))
    for part in every:
        failures: Failures = []
        texts = [_text_of(next(translations), number, failures) for number in range(part.count)]
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
