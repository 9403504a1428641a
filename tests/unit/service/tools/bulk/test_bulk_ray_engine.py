"""What ends a run on Ray comes from the worker as it was there, and what workers log holds nobody."""

import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from service.errors import Overloaded, Unavailable
from service.records import TranslateAll, Translation
from service.tools.bulk import ray_engine
from service.tools.bulk.job import BulkJob, JobError
from service.tools.bulk.ray_engine import RayWorker, forwarded, raise_failure
from service.tools.bulk.workers import Log, OtherVersion
from tests.fakes.bulk_jobs import job_of

WITHIN_S = 120.0


@dataclass
class FakeWorker:
    """Opens what it is given; an error, where it cannot be opened."""

    translate_all: TranslateAll | JobError

    def open(self, _: Log) -> TranslateAll:
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
        worker = RayWorker(job, cast("Any", FakeWorker(translate_all)), print)
        columns = zip(*((part.index, part.start, part.count) for part in job.parts), strict=True)
        failures: list[str] = worker(dict(zip(("index", "start", "count"), columns, strict=True)))["failure"]
        return failures


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


class RayQueue:
    """Ray's queue; where its node is lost, nothing arrives, and whoever waits for an answer waits on."""

    def __init__(self, *, is_lost: bool = False) -> None:
        self._is_lost = is_lost
        self.queued: queue.Queue[str | None] = queue.Queue()
        self.is_shut_down = threading.Event()
        self.actor: Any = self
        self.put_nowait: Any = self  # a method of an actor: started, and not waited for

    def remote(self, line: str | None) -> None:
        if not self._is_lost:
            self.queued.put(line)

    def get(self) -> str | None:
        return self.queued.get()

    def shutdown(self, *, force: bool) -> None:
        self.is_shut_down.set()


def test_a_line_that_cannot_be_told_does_not_silence_the_next():
    lines, told = RayQueue(), list[str]()

    def log(line: str) -> None:
        if line == "first":
            raise BrokenPipeError
        told.append(line)

    with forwarded(lines, log) as remote_log:
        remote_log("first")
        remote_log("second")

    assert told == ["second"]
    assert lines.is_shut_down.wait(WITHIN_S)


def test_a_queue_that_is_lost_holds_neither_worker_nor_run(monkeypatch):
    monkeypatch.setattr(ray_engine, "_LAST_LINES_S", 0.01)
    lines, told = RayQueue(is_lost=True), list[str]()

    with forwarded(lines, told.append) as remote_log:
        remote_log("nobody hears this")

    assert told == []
    assert not lines.is_shut_down.is_set()
    lines.queued.put(None)  # lets the reading thread go
    assert lines.is_shut_down.wait(WITHIN_S)
