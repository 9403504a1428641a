"""What ends a run on Ray: it comes from the worker as it was there."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from service.bulk.job import Description, Job
from service.bulk.lines import Lines
from service.bulk.ray_engine import _raise, _Worker
from service.bulk.source import JobError, Source
from service.bulk.workers import OtherVersion, Say
from service.engine.job import FinishReason
from service.errors import DeadlineExceeded, Overloaded, Unavailable
from service.records import TranslateAll, TranslatedText, Translation


def shout(texts: Iterable[str]) -> Iterator[Translation]:
    for text in texts:
        hypothesis = TranslatedText(text=text.upper(), score=0.0, finish_reason=FinishReason.LENGTH, target_tokens=1)
        yield Translation(hypotheses=(hypothesis,))


def silence(_: str) -> None:
    """Nothing to say."""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    (tmp_path / "in.txt").write_text("a\nb\nc\n")
    description = Description(
        source_sha256="0", format="lines", part_size=2, model="m", model_version="1", precision="int8", options={}
    )
    return Job(Source.of(tmp_path / "in.txt"), tmp_path / "out.txt", Lines(), description)


def worked(job: Job, translate_all: TranslateAll) -> list[str]:
    """The failures of a worker that is given all parts."""

    def opener(say: Say = silence) -> TranslateAll:
        return translate_all

    with job.opened():
        worker = _Worker(job, opener, silence)
        columns = zip(*((part.index, part.start, part.count) for part in job.parts), strict=True)
        failures: list[str] = worker(dict(zip(("index", "start", "count"), columns, strict=True)))["failure"]
        return failures


def test_parts_that_are_done_have_no_failure(job):
    failures = worked(job, shout)

    assert failures == ["", ""]
    assert [job.part_file(part).read_text() for part in job.parts] == ["A\nB\n", "C\n"]
    _raise("")


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("nobody there"),
        DeadlineExceeded("60 s"),
        Overloaded("no memory", reason="out_of_memory", retry_after_s=2.0),
        OtherVersion("version 2 answers"),
        JobError("in.txt has changed"),
        FileNotFoundError(2, "No such file", "in.txt"),
    ],
)
def test_failure_is_raised_where_the_run_was_started_as_it_was(job, error):
    def fail(texts: Iterable[str]) -> Iterator[Translation]:
        raise error

    failure, _ = worked(job, fail)

    with pytest.raises(type(error)) as caught:
        _raise(failure)
    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)


def test_worker_that_has_failed_tries_no_other_part(job):
    tries: list[int] = []

    def fail(texts: Iterable[str]) -> Iterator[Translation]:
        tries.append(len(list(texts)))
        raise Unavailable("nobody there")

    first, second = worked(job, fail)

    assert tries == [2]
    assert first == second != ""


def test_failure_to_open_comes_with_the_first_part(job):
    def refuse(say: Say = silence) -> TranslateAll:
        raise JobError("no such bundle")

    with job.opened():
        failures = _Worker(job, refuse, silence)({"index": [0], "start": [0], "count": [2]})["failure"]

    with pytest.raises(JobError, match="no such bundle"):
        _raise(failures[0])
