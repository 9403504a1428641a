"""`dragoman bulk` with a translator of our own: what a resumed run says, and when nothing is started."""

import hashlib
import io
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from rich.console import Console

from service.bulk.job import BulkJob, JobError
from service.bulk.workers import OtherVersion
from service.cli import bulk as bulk_command
from service.cli.bulk import Bulk, run
from service.cli.reporting import EXIT_NO_ANSWER, EXIT_USAGE, reported
from service.engine.job import FinishReason
from service.errors import (
    InternalError,
    InvalidInput,
    NotFound,
    PermissionDenied,
    TooLong,
    Unauthenticated,
    Unavailable,
)
from service.records import ModelInfo, TranslateAll, TranslatedText, TranslateOptions, Translation
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

    def __call__(self) -> TranslateAll:
        self.times_opened += 1
        return self.translate_all

    def translate_all(self, texts: Iterable[str]) -> Iterator[Translation]:
        for text in texts:
            if text == "gone" and self.is_gone:
                self.is_gone = False
                raise Unavailable("the server went away")
            yield self._translation(text)

    def _translation(self, text: str) -> Translation:
        if text == "bad":
            return Translation(error=TooLong("the text is bad", field="texts[0]"))
        hypothesis = TranslatedText(text=text.upper(), score=0, finish_reason=FinishReason.LENGTH, target_tokens=1)
        return Translation(hypotheses=(hypothesis,))


@pytest.fixture
def worker(monkeypatch) -> Worker:
    made = Worker()
    monkeypatch.setattr(bulk_command, "_worker", lambda bulk: made)
    return made


def bulk(folder: Path, engine: str = "local") -> Bulk:
    return Bulk(
        source=folder / "in.txt",
        output=folder / "out.txt",
        column=None,
        target="translation",
        server="x:1",
        model=None,
        bundle=None,
        precision=None,
        options=TranslateOptions(),
        engine=engine,
        ray_address=None,
        num_workers=1,
        part_size=2,
        is_forced=False,
    )


def test_a_run_that_goes_on_counts_the_failures_of_the_one_before(worker, tmp_path):
    (tmp_path / "in.txt").write_text("a\nbad\nb\ngone\n")
    said = io.StringIO()

    with pytest.raises(Unavailable):
        run(bulk(tmp_path), Console(file=io.StringIO()))
    num_failed = run(bulk(tmp_path), Console(file=said))

    assert num_failed == 1
    assert "record 2: the text is bad" in said.getvalue()
    assert (tmp_path / "out.txt").read_text() == "A\n\nB\nGONE\n"


def test_a_source_that_changes_while_it_is_hashed_is_not_mixed_with_what_is_done(worker, tmp_path, monkeypatch):
    source, file_digest = tmp_path / "in.txt", hashlib.file_digest
    source.write_text("a1\na2\ngone\na4\n")
    with pytest.raises(Unavailable):
        run(bulk(tmp_path), Console(file=io.StringIO()))

    def digest_and_change(stream: io.BufferedReader, name: str) -> object:
        digest = file_digest(stream, name)
        source.write_text("new b1\nnew b2\nnew b3\nnew b4\n")
        return digest

    with monkeypatch.context() as patched:
        patched.setattr(hashlib, "file_digest", digest_and_change)
        with pytest.raises(JobError, match="has changed"):
            run(bulk(tmp_path), Console(file=io.StringIO()))
    assert not (tmp_path / "out.txt").exists()
    source.write_text("a1\na2\ngone\na4\n")
    run(bulk(tmp_path), Console(file=io.StringIO()))

    assert (tmp_path / "out.txt").read_text() == "A1\nA2\nGONE\nA4\n"


@pytest.mark.parametrize("wanted", [{"model": "other"}, {"source_language": "de"}, {"target_language": "fr"}])
def test_a_model_that_is_not_the_one_that_was_named_translates_nothing(worker, tmp_path, wanted):
    (tmp_path / "in.txt").write_text("a\n")

    with pytest.raises(NotFound, match="there is no model"):
        run(replace(bulk(tmp_path), **wanted), Console(file=io.StringIO()))

    assert worker.times_opened == 0


def test_the_last_line_has_the_output_s_path_as_it_is(worker, tmp_path):
    folder = tmp_path / "[x] :x:" / ("long " * 20)
    folder.mkdir(parents=True)
    (folder / "in.txt").write_text("a\n")
    said = io.StringIO()

    run(bulk(folder), Console(file=said, width=80))

    assert f"{(folder / 'out.txt').resolve()}: 1 records; " in said.getvalue()


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_an_empty_file_starts_no_engine(worker, tmp_path, monkeypatch, engine):
    (tmp_path / "in.txt").write_text("")
    monkeypatch.setattr(bulk_command, "translate_on_ray", lambda *_: pytest.fail("Ray was started"))

    assert run(bulk(tmp_path, engine), Console(file=io.StringIO())) == 0

    assert worker.times_opened == 0
    assert (tmp_path / "out.txt").read_text() == ""


@pytest.mark.parametrize("name", ["in.txt", "link.txt"])
def test_a_file_is_not_translated_into_itself(tmp_path, name):
    (tmp_path / "in.txt").write_text("a\n")
    (tmp_path / "link.txt").symlink_to("in.txt")

    with pytest.raises(ValueError, match="the output is another file"):
        replace(bulk(tmp_path), output=tmp_path / name, is_forced=True)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OtherVersion("version 2 answers"), EXIT_NO_ANSWER),
        (InternalError("2 translations for 3 texts"), EXIT_NO_ANSWER),
        (JobError("in.txt has changed"), EXIT_USAGE),
        (Unauthenticated("no API key"), EXIT_USAGE),
        (PermissionDenied("the key is not good for this model"), EXIT_USAGE),
    ],
)
def test_exit_code_says_whether_to_go_on_later(error, code):
    with pytest.raises(typer.Exit) as ended, reported():
        raise error
    assert ended.value.exit_code == code


def test_a_file_that_cannot_be_used_is_one_line_and_nothing_is_started(worker, tmp_path, capsys):
    (tmp_path / "in.txt").write_bytes(b"a\nb\xff\n")

    with pytest.raises(typer.Exit) as ended, reported():
        run(bulk(tmp_path), Console(file=io.StringIO()))

    assert ended.value.exit_code == EXIT_USAGE
    assert capsys.readouterr().err == f"dragoman: {(tmp_path / 'in.txt').resolve()}, line 2: byte 0xff is no UTF-8\n"
    assert worker.times_opened == 0
    assert not (tmp_path / "out.txt.parts").exists()


def test_a_run_after_a_kill_in_the_clearing_counts_what_failed_and_starts_nothing(worker, tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text("a\nbad\n")

    def killed(_: BulkJob) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(BulkJob, "_leave", killed)
        with pytest.raises(KeyboardInterrupt):
            run(bulk(tmp_path), Console(file=io.StringIO()))
    num_failed = run(bulk(tmp_path), Console(file=io.StringIO()))

    assert (num_failed, worker.times_opened) == (1, 1)
    assert (tmp_path / "out.txt").read_text() == "A\n\n"
    assert not (tmp_path / "out.txt.parts").exists()


def test_an_option_out_of_range_is_refused_before_anything_is_begun(tmp_path, worker):
    (tmp_path / "in.txt").write_text("one\n")

    with pytest.raises(InvalidInput, match=r"options\.beam_size is 99, from 1 to 16 is accepted"):
        run(replace(bulk(tmp_path), options=TranslateOptions(beam_size=99)), Console(file=io.StringIO()))

    assert (worker.times_opened, [path.name for path in tmp_path.iterdir()]) == (0, ["in.txt"])
