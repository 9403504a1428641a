"""What ends a run on Ray comes from the worker as it was there."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from service.errors import Overloaded, Unavailable
from service.records import TranslateAll, Translation
from service.tools.bulk.job import BulkJob, JobError
from service.tools.bulk.workers import OtherVersion, RayWorker, raise_failure
from tests.fakes.bulk_jobs import job_of


@dataclass
class FakeWorker:
    """Opens what it is given; an error, where it cannot be opened."""

    translate_all: TranslateAll | JobError

    def open(self) -> TranslateAll:
        if isinstance(self.translate_all, JobError):
            raise self.translate_all
        return self.translate_all


@pytest.fixture
def job(tmp_path: Path) -> BulkJob:
    (tmp_path / "in.txt").write_text("a\nb\nc\n")
    return job_of(tmp_path / "in.txt", tmp_path / "out.txt", part_size=2)


def worked(job: BulkJob, translate_all: TranslateAll | JobError) -> list[str]:
    """The failures of a worker that is given all parts."""
    with job.opened():
        worker = RayWorker(job, cast("Any", FakeWorker(translate_all)))
        return [worker(asdict(part))["failure"] for part in job.parts]


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("nobody there"),
        Overloaded("no memory", reason="out_of_memory", retry_after_s=2.0),
        OtherVersion("version 2 answers"),
        FileNotFoundError(2, "No such file", "in.txt"),
    ],
)
def test_failure_is_raised_where_the_run_was_started_as_it_was_and_no_other_part_is_tried(job, error):
    tries: list[int] = []

    def fail(texts: Iterable[str]) -> Iterator[Translation]:
        tries.append(len(list(texts)))
        raise error

    first, second = worked(job, fail)

    assert tries == [2]
    assert first == second
    with pytest.raises(type(error)) as caught:
        raise_failure(first)
    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)


def test_failure_to_open_comes_with_the_first_part(job):
    failures = worked(job, JobError("no such bundle"))

    with pytest.raises(JobError, match="no such bundle"):
        raise_failure(failures[0])
