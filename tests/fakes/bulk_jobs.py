"""Jobs of `dragoman bulk` on files of a test, and a translation that anybody can check."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from service.engine.wire import FinishReason
from service.records import TranslateAll, TranslatedText, Translation
from service.tools.bulk.job import BulkJob, BulkSource, JobDescription, format_of, translate_parts


class Killed(BaseException):
    """As abrupt as SIGKILL: nothing gets to tidy up."""


def shout(texts: Iterable[str]) -> Iterator[Translation]:
    """Translate into capital letters."""
    for text in texts:
        hypothesis = TranslatedText(text=text.upper(), score=0.0, finish_reason=FinishReason.LENGTH, target_tokens=1)
        yield Translation(hypotheses=(hypothesis,), source_tokens=1)


def killed_after(number: int) -> TranslateAll:
    """Return a translation that is killed after so many texts."""

    def translate_all(texts: Iterable[str]) -> Iterator[Translation]:
        for index, translation in enumerate(shout(texts)):
            if index == number:
                raise Killed
            yield translation

    return translate_all


def job_of(source: Path, output: Path, *, target: str = "translation", **changes: Any) -> BulkJob:
    """Return a job in the format that the source's suffix names, of the column "text", in parts of three records."""
    usual: dict[str, Any] = {
        "source_sha256": "0",
        "format": source.suffix,
        "part_size": 3,
        "model": "m",
        "model_version": "1",
        "precision": "int8",
        "options": {},
    }
    description = JobDescription(**(usual | changes))
    return BulkJob(BulkSource.of(source), output, format_of(source, None, target), description)


def translate_missing(job: BulkJob, translate_all: TranslateAll = shout) -> None:
    """Translate what is missing, without joining it."""
    translate_parts(job, job.missing(), translate_all, lambda _: None)


def run_job(job: BulkJob, translate_all: TranslateAll = shout, *, is_forced: bool = False) -> None:
    """Run a job from its beginning, or from where it was, to its end."""
    with job.opened(is_forced=is_forced):
        translate_missing(job, translate_all)
        job.finish()


def translated(source: Path, *, part_size: int = 3, target: str = "translation") -> bytes:
    """Return what becomes of a file."""
    output = source.with_name(f"out{source.suffix}")
    run_job(job_of(source, output, part_size=part_size, target=target))
    return output.read_bytes()
