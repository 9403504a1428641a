"""What a run finds of the one before it: a new output that is not there yet, a job that is done, a changed source."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from service.bulk.job import Job
from service.bulk.lines import Lines
from service.bulk.parts import Part
from service.bulk.run import translate_parts
from service.bulk.source import JobError, Source
from service.errors import InternalError
from service.records import Translation
from tests.fakes.bulk_jobs import job_of, run_job, shout


class Killed(BaseException):
    """As abrupt as SIGKILL: nothing gets to tidy up."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "in.txt"
    file.write_text("a\nb\nc\nd\ne\n")
    return file


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out.txt"


def nobody(texts: Iterable[str]) -> Iterator[Translation]:
    """To be asked for nothing."""
    assert list(texts) == []
    yield from ()


def killed_at_removal(monkeypatch: pytest.MonkeyPatch, job: Job, number: int) -> bool:
    """Run the job and kill it when it has removed so many files, the folder included; whether it came to that."""
    removed = iter(range(1, 1_000))

    def dying(original: Callable[..., None]) -> Callable[..., None]:
        def remove(path: Path, **options: bool) -> None:
            original(path, **options)
            if next(removed) == number:
                raise Killed

        return remove

    with job.opened():
        translate_parts(job, job.missing(), shout, lambda _: None)
        job._failed_file(job.parts[0]).write_text('[[0, "too long"]]')
        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", dying(Path.unlink))
            patched.setattr(Path, "rmdir", dying(Path.rmdir))
            try:
                job.finish()
            except Killed:
                return True
    return False


class TestKilledInTheClearing:
    # Two parts, the failures, the lock; then what says that the job is done.
    @pytest.mark.parametrize("number", [1, 2, 3, 4])
    def test_the_next_run_clears_up_and_translates_nothing(self, monkeypatch, source, output, number):
        assert killed_at_removal(monkeypatch, job_of(source, output), number)
        assert output.read_text() == "A\nB\nC\nD\nE\n"

        run_job(job_of(source, output), nobody)

        assert output.read_text() == "A\nB\nC\nD\nE\n"
        assert not job_of(source, output)._folder.exists()

    def test_the_next_run_still_knows_what_failed(self, monkeypatch, source, output):
        assert killed_at_removal(monkeypatch, job_of(source, output), 2)  # both parts are gone

        job = job_of(source, output)
        with job.opened():
            assert job.failures(job.parts[0]) == [(0, "too long")]

    def test_a_run_that_means_something_else_clears_up_and_leaves_the_output(self, monkeypatch, source, output):
        assert killed_at_removal(monkeypatch, job_of(source, output), 1)

        with pytest.raises(JobError, match="exists: --force translates again"):
            run_job(job_of(source, output, part_size=2))
        assert output.read_text() == "A\nB\nC\nD\nE\n"
        assert not job_of(source, output)._folder.exists()

    def test_an_output_that_was_taken_away_is_made_again(self, monkeypatch, source, output):
        assert killed_at_removal(monkeypatch, job_of(source, output), 1)
        output.unlink()

        run_job(job_of(source, output))

        assert output.read_text() == "A\nB\nC\nD\nE\n"

    def test_force_translates_again(self, monkeypatch, source, output):
        assert killed_at_removal(monkeypatch, job_of(source, output), 1)
        output.write_text("old")

        run_job(job_of(source, output), is_forced=True)

        assert output.read_text() == "A\nB\nC\nD\nE\n"


class TestForce:
    def test_old_output_stays_until_the_new_one_is_complete(self, source, output):
        output.write_text("old")

        def killed(texts: Iterable[str]) -> Iterator[Translation]:
            for number, translation in enumerate(shout(texts)):
                if number == 3:
                    raise Killed
                yield translation

        with pytest.raises(Killed):
            run_job(job_of(source, output), killed, is_forced=True)
        assert output.read_text() == "old"
        run_job(job_of(source, output))  # goes on

        assert output.read_text() == "A\nB\nC\nD\nE\n"


class TestSource:
    def test_changed_between_two_runs_it_is_refused_by_name(self, source, output):
        job = job_of(source, output, source_sha256="1")
        with job.opened():
            translate_parts(job, job.parts[:1], shout, lambda _: None)

        with pytest.raises(
            JobError, match=r"in\.txt has changed since .*out\.txt\.parts was begun; --force begins again"
        ):
            run_job(job_of(source, output, source_sha256="2"))

    @pytest.mark.parametrize("name", ["in.txt", "in.csv", "in.jsonl"])
    @pytest.mark.parametrize("change", ["", "other\n", "text\nx\n\xe4", '{"text": "a"}\n' * 3 + "\xff\n"])
    def test_changed_in_the_middle_of_a_run_no_part_is_made_of_it(self, tmp_path, name, change):
        line = '{"text": "a"}\n' if name == "in.jsonl" else "a\n"
        head = "text\n" if name == "in.csv" else ""
        source = tmp_path / name
        source.write_text(head + line * 9)
        job = job_of(source, tmp_path / "out")

        def changing(texts: Iterable[str]) -> Iterator[Translation]:
            for number, translation in enumerate(shout(texts)):
                if number == 4:
                    source.write_bytes(change.encode("latin-1"))
                yield translation

        with job.opened():
            with pytest.raises(JobError, match="has changed while it was translated; what is done stays"):
                translate_parts(job, job.missing(), changing, lambda _: None)
            assert job.missing() == list(job.parts[1:])

    def test_changed_while_it_is_planned_there_is_no_job(self, source, output):
        class Changing(Lines):
            def plan(self, file: Path, part_size: int) -> Iterator[Part]:
                yield from super().plan(file, part_size)
                file.write_text("other\n")

        with pytest.raises(JobError, match="has changed"):
            Job(Source.of(source), output, Changing(), job_of(source, output)._description)

    def test_changed_before_the_parts_are_joined_there_is_no_output(self, source, output):
        job = job_of(source, output)
        with job.opened():
            translate_parts(job, job.missing(), shout, lambda _: None)
            os.utime(source, ns=(0, 0))

            with pytest.raises(JobError, match="has changed while it was translated"):
                job.finish()
        assert not output.exists()


def test_part_with_a_translation_too_few_is_not_kept(source, output):
    job = job_of(source, output)

    def forgetful(texts: Iterable[str]) -> Iterator[Translation]:
        yield from list(shout(texts))[:-1]

    with job.opened():
        with pytest.raises(InternalError, match="1 translations came for 2 records"):
            translate_parts(job, job.missing(), forgetful, lambda _: None)
        assert job.missing() == [job.parts[1]]
