"""`dragoman bulk` with a translator of our own: what a resumed run says, and when nothing is started."""

import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from rich.console import Console

from service.cli import bulk as bulk_command
from service.cli.bulk import Bulk, run
from service.cli.output import EXIT_NO_ANSWER, EXIT_USAGE, reported
from service.errors import InternalError, InvalidInput, NotFound, PermissionDenied, TooLong, Unavailable
from service.records import ModelInfo, TranslateAll, Translation
from service.tools.bulk.job import JobError
from service.tools.bulk.workers import OtherVersion
from tests.fakes.bulk_jobs import shout
from tests.fakes.model_info import model_info


class Worker:
    """Shouts; has no answer to "bad", and is gone at "gone" the first time."""

    def __init__(self) -> None:
        self.is_gone = True
        self.times_opened = 0

    def info(self) -> ModelInfo:
        return model_info()

    def pinned(self, info: ModelInfo) -> "Worker":
        return self

    def open(self) -> TranslateAll:
        self.times_opened += 1
        return self.translate_all

    def translate_all(self, texts: Iterable[str]) -> Iterator[Translation]:
        for text in texts:
            if text == "gone" and self.is_gone:
                self.is_gone = False
                raise Unavailable("the server went away")
            is_bad = text == "bad"
            yield Translation(error=TooLong("the text is bad", field="texts[0]")) if is_bad else next(shout([text]))


@pytest.fixture
def worker(monkeypatch) -> Worker:
    made = Worker()
    monkeypatch.setattr(bulk_command, "_worker", lambda bulk: made)
    return made


def bulk(folder: Path, content: str = "", **changes: object) -> Bulk:
    """Everything that the command line says, of a file with this content."""
    if content:
        (folder / "in.txt").write_text(content)
    usual = Bulk(
        source=folder / "in.txt",
        output=folder / "out.txt",
        server="x:1",
        num_workers=1,
        part_size=2,
    )
    return replace(usual, **changes)  # type: ignore[arg-type]  # whatever the test says


def quietly(wanted: Bulk) -> int:
    return run(wanted, Console(file=io.StringIO()))


def test_a_run_that_goes_on_counts_the_failures_of_the_one_before(worker, tmp_path):
    wanted, said = bulk(tmp_path, "a\nbad\nb\ngone\n"), io.StringIO()

    with pytest.raises(Unavailable):
        quietly(wanted)
    num_failed = run(wanted, Console(file=said))

    assert num_failed == 1
    assert "record 2: the text is bad" in said.getvalue()
    assert (tmp_path / "out.txt").read_text() == "A\n\nB\nGONE\n"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model": "other"}, NotFound, "there is no model"),
        ({"target_language": "fr"}, NotFound, "there is no model"),
        ({"beam_size": 99}, InvalidInput, "beam_size is 99, from 1 to 16"),
        ({"column": "text"}, ValueError, "has no columns"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_begun(worker, tmp_path, changes, error, message):
    with pytest.raises(error, match=message):
        quietly(bulk(tmp_path, "a\n", **changes))

    assert (worker.times_opened, [path.name for path in tmp_path.iterdir()]) == (0, ["in.txt"])


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_an_empty_file_starts_no_engine(worker, tmp_path, monkeypatch, engine):
    (tmp_path / "in.txt").touch()
    monkeypatch.setattr(bulk_command, "translate_on_ray", lambda *_: pytest.fail("Ray was started"))

    assert quietly(bulk(tmp_path, engine=engine)) == 0

    assert worker.times_opened == 0
    assert (tmp_path / "out.txt").read_text() == ""


def test_a_source_that_can_be_read_only_once_is_refused_before_it_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "in.txt")

    with pytest.raises(ValueError, match=r"in\.txt is a pipe: IN is a file, which is read several times"):
        bulk(tmp_path)


@pytest.mark.parametrize("content", ["[", "[]", "null", "\xff"])
def test_a_damaged_note_of_a_job_is_an_error_that_says_what_to_do(worker, tmp_path, content):
    folder = tmp_path / "out.txt.parts"
    folder.mkdir()
    (folder / "job.json").write_text(content, encoding="latin-1")

    with pytest.raises(JobError, match=r"job\.json is damaged: --force begins again"):
        quietly(bulk(tmp_path, "a\n"))

    assert quietly(bulk(tmp_path, is_forced=True)) == 0


@pytest.mark.parametrize("kind", ["a pipe", "a directory", "a link to a pipe"])
def test_an_output_that_cannot_be_replaced_as_a_whole_is_refused_and_left(tmp_path, kind):
    out = tmp_path / "out.txt"
    if kind == "a directory":
        out.mkdir()
    elif kind == "a pipe":
        os.mkfifo(out)
    else:
        os.mkfifo(tmp_path / "pipe")
        out.symlink_to("pipe")

    with pytest.raises(ValueError, match=f"out.txt is {kind.removeprefix('a link to ')}: OUT is a file"):
        bulk(tmp_path, "a\n", is_forced=True)


def test_a_forced_run_leaves_links_and_permissions_of_its_output_as_they_are(worker, tmp_path):
    link, real = tmp_path / "out.txt", tmp_path / "real.txt"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to("real.txt")

    assert quietly(bulk(tmp_path, "a\n", is_forced=True)) == 0

    assert (link.is_symlink(), real.read_text(), real.stat().st_mode & 0o777) == (True, "A\n", 0o600)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.txt", "out.txt", "real.txt"]


@pytest.mark.parametrize("name", ["in.txt", "link.txt"])
def test_a_file_is_not_translated_into_itself(tmp_path, name):
    (tmp_path / "link.txt").symlink_to("in.txt")

    with pytest.raises(ValueError, match="the output is another file"):
        bulk(tmp_path, "a\n", output=tmp_path / name, is_forced=True)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OtherVersion("version 2 answers"), EXIT_NO_ANSWER),
        (InternalError("2 translations for 3 texts"), EXIT_NO_ANSWER),
        (JobError("in.txt has changed"), EXIT_USAGE),
        (PermissionDenied("the key is not good for this model"), EXIT_USAGE),
    ],
)
def test_exit_code_says_whether_to_go_on_later(error, code):
    with pytest.raises(typer.Exit) as ended, reported():
        raise error
    assert ended.value.exit_code == code
