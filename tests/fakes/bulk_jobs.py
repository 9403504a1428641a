"""Jobs of `dragoman bulk` on files of a test, and a translation that anybody can check."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from service.bulk.formats import format_of
from service.bulk.job import Description, Job
from service.bulk.run import translate_parts
from service.bulk.source import Source
from service.engine.job import FinishReason
from service.records import TranslateAll, TranslatedText, Translation


def shout(texts: Iterable[str]) -> Iterator[Translation]:
    """Capital letters."""
    for text in texts:
        hypothesis = TranslatedText(text=text.upper(), score=0.0, finish_reason=FinishReason.LENGTH, target_tokens=1)
        yield Translation(hypotheses=(hypothesis,), source_tokens=1)


def job_of(
    source: Path, output: Path, *, target: str = "translation", part_size: int = 3, source_sha256: str = "0"
) -> Job:
    """In the format that the source's suffix names, of the column "text"."""
    description = Description(
        source_sha256=source_sha256,
        format=source.suffix,
        part_size=part_size,
        model="m",
        model_version="1",
        precision="int8",
        options={},
    )
    return Job(Source.of(source), output, format_of(source, None, target), description)


def run_job(job: Job, translate_all: TranslateAll = shout, *, is_forced: bool = False) -> None:
    """From its beginning, or from where it was, to its end."""
    with job.opened(is_forced=is_forced):
        translate_parts(job, job.missing(), translate_all, lambda _: None)
        job.finish()


def translated(source: Path, *, part_size: int = 3, target: str = "translation") -> bytes:
    """What becomes of a file."""
    output = source.with_name(f"out{source.suffix}")
    run_job(job_of(source, output, part_size=part_size, target=target))
    return output.read_bytes()
