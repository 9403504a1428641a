"""Jobs that survive being killed, and what a run finds of the one before it."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from service.errors import InternalError
from service.records import Translation
from service.tools.bulk.formats import BulkPart, Lines
from service.tools.bulk.job import BulkJob, BulkSource, JobDescription, JobError, translate_parts
from tests.fakes.bulk_jobs import Killed, job_of, killed_after, run_job, shout, translate_missing

WHOLE = "".join(f"LINE {number}\n" for number in range(10))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "in.txt"
    file.write_text("".join(f"line {number}\n" for number in range(10)))
    return file


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out.txt"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out.txt.parts"


def nobody(texts: Iterable[str]) -> Iterator[Translation]:
    """Translates nothing and makes sure that there is nothing to translate."""
    assert list(texts) == []
    yield from ()


class TestKilled:
    @pytest.mark.parametrize("number", range(10))
    def test_killed_anywhere_the_next_run_gives_the_same(self, source, output, folder, number):
        with pytest.raises(Killed):
            run_job(job_of(source, output), killed_after(number))
        assert not output.exists()
        run_job(job_of(source, output))

        assert output.read_text() == WHOLE
        assert not folder.exists()

    def test_only_what_is_missing_is_translated_again(self, source, output):
        job, seen = job_of(source, output), list[str]()

        def watched(texts: Iterable[str]) -> Iterator[Translation]:
            for text in texts:
                seen.append(text)
                yield from shout([text])

        with job.opened():
            translate_parts(job, [job.parts[1]], shout, lambda _: None)
        run_job(job_of(source, output), watched)

        assert seen == [f"line {number}" for number in (0, 1, 2, 6, 7, 8, 9)]

    @pytest.mark.parametrize("left", ["000000.part.1.draft", "000000.part"])
    def test_what_was_left_of_a_write_or_a_removal_is_not_used(self, source, output, folder, left):
        folder.mkdir()
        (folder / left).write_text("LINE 0\nof who knows what")

        run_job(job_of(source, output))

        assert output.read_text() == WHOLE

    def test_failures_of_an_attempt_that_was_killed_do_not_stay(self, source, output):
        job = job_of(source, output)
        with job.opened():
            job.part_file(job.parts[0]).with_suffix(".failed").write_text('[[0, "killed before it wrote the part"]]')

            translate_missing(job)

            assert job.failures(job.parts[0]) == []


class TestKilledWhileTheFolderIsRemoved:
    """Four parts, the failures, the lock; then what says that the job is done."""

    @staticmethod
    def finish_and_die(monkeypatch: pytest.MonkeyPatch, job: BulkJob, number: int) -> None:
        """Run the job and kill it when it has removed so many files, the folder included."""
        removed = iter(range(1, 1_000))

        def dying(original: Callable[..., None]) -> Callable[..., None]:
            def remove(path: Path, **options: bool) -> None:
                original(path, **options)
                if next(removed) == number:
                    raise Killed

            return remove

        with job.opened():
            translate_missing(job)
            job.part_file(job.parts[0]).with_suffix(".failed").write_text('[[0, "too long"]]')
            with monkeypatch.context() as patched:
                patched.setattr(Path, "unlink", dying(Path.unlink))
                patched.setattr(Path, "rmdir", dying(Path.rmdir))
                with pytest.raises(Killed):
                    job.finish()

    @pytest.mark.parametrize("number", range(1, 7))
    def test_the_next_run_removes_the_rest_and_translates_nothing(self, monkeypatch, source, output, folder, number):
        self.finish_and_die(monkeypatch, job_of(source, output), number)
        assert output.read_text() == WHOLE

        run_job(job_of(source, output), nobody)

        assert output.read_text() == WHOLE
        assert not folder.exists()

    def test_the_next_run_still_knows_what_failed(self, monkeypatch, source, output):
        self.finish_and_die(monkeypatch, job_of(source, output), 4)  # all parts are gone

        job = job_of(source, output)
        with job.opened():
            assert job.failures(job.parts[0]) == [(0, "too long")]

    def test_a_run_that_means_something_else_removes_the_rest_and_leaves_the_output(
        self, monkeypatch, source, output, folder
    ):
        self.finish_and_die(monkeypatch, job_of(source, output), 1)

        with pytest.raises(JobError, match="exists: --force translates again"):
            run_job(job_of(source, output, part_size=2))
        assert output.read_text() == WHOLE
        assert not folder.exists()

    @pytest.mark.parametrize("is_forced", [False, True])
    def test_an_output_that_was_taken_away_or_is_not_wanted_is_made_again(self, monkeypatch, source, output, is_forced):
        self.finish_and_die(monkeypatch, job_of(source, output), 1)
        output.unlink()
        if is_forced:
            output.write_text("old")

        run_job(job_of(source, output), is_forced=is_forced)

        assert output.read_text() == WHOLE


class TestAnotherJob:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"model_version": "2"}, r"is of another job: model_version was '1' and is '2'; --force begins again"),
            ({"options": {"beam_size": 1}}, r"is of another job: options was .* and is .*"),
            ({"source_sha256": "1"}, r"in\.txt has changed since .*out\.txt\.parts was begun; --force begins again"),
        ],
    )
    def test_a_job_that_means_something_else_is_continued_only_without_a_part(self, source, output, change, message):
        with job_of(source, output).opened():
            pass  # as where the server refuses an option
        with job_of(source, output, **change).opened():
            pass
        job = job_of(source, output)
        with job.opened():
            translate_parts(job, job.parts[:1], shout, lambda _: None)

        with pytest.raises(JobError, match=message):
            run_job(job_of(source, output, **change))

    @pytest.mark.parametrize("is_begun", [False, True])
    def test_an_output_that_exists_is_kept_unless_forced(self, source, output, is_begun):
        output.write_text("mine")
        if is_begun:
            with job_of(source, output).opened(is_forced=True):
                pass

        with pytest.raises(JobError, match="exists: --force translates again"):
            run_job(job_of(source, output, model_version="2"))
        assert output.read_text() == "mine"

    def test_with_force_the_old_output_stays_until_the_new_one_is_complete(self, source, output):
        output.write_text("old")

        with pytest.raises(Killed):
            run_job(job_of(source, output), killed_after(3), is_forced=True)
        assert output.read_text() == "old"
        run_job(job_of(source, output))  # goes on

        assert output.read_text() == WHOLE

    def test_force_begins_again(self, source, output):
        with pytest.raises(Killed):
            run_job(job_of(source, output), killed_after(7))

        job = job_of(source, output, model_version="2")
        with job.opened(is_forced=True):
            assert job.missing() == list(job.parts)


class TestTwoRuns:
    @pytest.mark.parametrize("is_forced", [False, True])
    def test_of_two_runs_at_once_the_second_is_refused_and_touches_nothing(self, source, output, is_forced):
        job = job_of(source, output)
        with job.opened():
            translate_parts(job, job.parts[:2], shout, lambda _: None)
            output.write_text("of a run before")

            with (
                pytest.raises(JobError, match="another run is at"),
                job_of(source, output).opened(is_forced=is_forced),
            ):
                pass

            assert output.read_text() == "of a run before"
            assert [part.index for part in job.missing()] == [2, 3]

    def test_a_lock_of_a_run_that_has_ended_is_no_lock(self, monkeypatch, source, output, folder):
        # The run that held it removes it between our opening and our locking.
        monkeypatch.setattr("fcntl.flock", lambda *_: (folder / "lock").unlink())

        with pytest.raises(JobError, match="another run is at"), job_of(source, output).opened():
            pass


class TestSource:
    @pytest.mark.parametrize("name", ["in.txt", "in.csv", "in.jsonl"])
    @pytest.mark.parametrize("change", ["", "other\n", "text\nx\n\xe4", '{"text": "a"}\n' * 3 + "\xff\n"])
    def test_changed_in_the_middle_of_a_run_no_part_is_made_of_it(self, tmp_path, name, change):
        line = '{"text": "a"}\n' if name == "in.jsonl" else "a\n"
        source = tmp_path / name
        source.write_text(("text\n" if name == "in.csv" else "") + line * 9)
        job = job_of(source, tmp_path / "out")

        def changing(texts: Iterable[str]) -> Iterator[Translation]:
            for number, translation in enumerate(shout(texts)):
                if number == 4:
                    source.write_bytes(change.encode("latin-1"))
                yield translation

        with job.opened():
            with pytest.raises(JobError, match="has changed while it was translated; what is done stays"):
                translate_missing(job, changing)
            assert job.missing() == list(job.parts[1:])

    def test_changed_while_it_is_planned_there_is_no_job(self, source, output):
        class Changing(Lines):
            def plan(self, file: Path, part_size: int) -> Iterator[BulkPart]:
                yield from super().plan(file, part_size)
                file.write_text("other\n")

        description = JobDescription(
            source_sha256="0", format="", part_size=3, model="m", model_version="1", precision="int8", options={}
        )
        with pytest.raises(JobError, match="has changed"):
            BulkJob(BulkSource.of(source), output, Changing(), description)

    def test_changed_before_the_parts_are_joined_there_is_no_output(self, source, output):
        job = job_of(source, output)
        with job.opened():
            translate_missing(job)
            os.utime(source, ns=(0, 0))

            with pytest.raises(JobError, match="has changed while it was translated"):
                job.finish()
        assert not output.exists()


class TestFailures:
    def test_a_text_that_utf_8_cannot_carry_fails_alone_and_its_record_is_kept(self, tmp_path):
        source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
        texts = ["good", "bad \\ud800", "\\ud83d\\ude00", "also bad \\udfff"]
        source.write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
        job = job_of(source, output)
        sent: list[str] = []

        def sending(texts: Iterable[str]) -> Iterator[Translation]:
            for text in texts:
                sent.append(text.encode().decode())
                yield from shout([text])

        with job.opened():
            translate_missing(job, sending)
            failures = [job.failures(part) for part in job.parts]
            job.finish()

        message = "the text is not valid Unicode: surrogates not allowed at character"
        assert failures == [[(1, f"{message} 4")], [(0, f"{message} 9")]]
        assert sent == ["good", "", "\U0001f600", ""]
        records = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
        assert [record["translation"] for record in records] == ["GOOD", "", "\U0001f600", ""]
        assert [record["text"] for record in records] == ["good", "bad \ud800", "\U0001f600", "also bad \udfff"]

    def test_part_with_a_translation_too_few_is_not_kept(self, source, output):
        job = job_of(source, output)

        with job.opened():
            with pytest.raises(InternalError, match="0 translations came for 1 records"):
                translate_missing(job, lambda texts: iter(list(shout(texts))[:-1]))
            assert job.missing() == [job.parts[-1]]
