"""Translates the missing parts of a job, one stream of texts through one client or model."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from service.bulk.formats import Part
from service.bulk.job import Failures, Job
from service.translation import TranslateAll, Translation

OnPart = Callable[[Part], None]


@dataclass(slots=True)
class _Flow:
    """The texts of many parts as one stream, so that the next part's are under way before one is written."""

    job: Job
    parts: Iterable[Part]

    def texts(self) -> Iterator[str]:
        for part in self.parts:
            for record in self.job.format.read(self.job.source, part):
                yield self.job.format.text(record)


def translate_parts(job: Job, parts: Iterable[Part], translate_all: TranslateAll, on_part: OnPart) -> None:
    """Translate and keep these parts, in order; a text that fails becomes an empty one.

    Raises:
        DragomanError: no answer; what has been kept stays.
        JobError: another version of the model answers than the job began with; likewise.
    """
    every = deque(parts)
    translations = translate_all(_Flow(job, tuple(every)).texts())
    for part in every:
        failures: Failures = []
        texts = [_text_of(next(translations), number, failures) for number in range(part.count)]
        job.write(part, texts, failures)
        on_part(part)


def _text_of(translation: Translation, number: int, failures: Failures) -> str:
    if translation.error is not None:
        failures.append((number, str(translation.error)))
        return ""
    return translation.text
