"""Bulk translation: every format cut into parts and joined again, and jobs that survive being killed."""

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.bulk.formats import format_of
from service.bulk.job import Description, Job
from service.bulk.lines import JsonLines, Lines
from service.bulk.run import translate_parts
from service.bulk.source import JobError, Source
from service.bulk.table import Table
from service.engine.job import FinishReason
from service.errors import TooLong
from service.records import TranslatedText, Translation

TEXT = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="\u2028\u2029\x85\ufeff"), max_size=12
)


def shout(texts: Iterable[str]) -> Iterator[Translation]:
    """A translation that anybody can check."""
    for text in texts:
        hypothesis = TranslatedText(text=text.upper(), score=0.0, finish_reason=FinishReason.LENGTH, target_tokens=1)
        yield Translation(hypotheses=(hypothesis,), source_tokens=1)


def description(**changes: Any) -> Description:
    known: dict[str, Any] = {
        "source_sha256": "0",
        "format": "lines",
        "part_size": 3,
        "model": "m",
        "model_version": "1",
    }
    return Description(**(known | {"precision": "int8", "options": {}} | changes))


def make(source: Path, output: Path, file_format=None, **changes) -> Job:
    file_format = file_format or format_of(source, None, "translation")
    return Job(Source.of(source), output, file_format, description(**changes))


def run(job: Job, translate_all=shout) -> None:
    with job.opened():
        translate_parts(job, job.missing(), translate_all, lambda part: None)
        job.finish()


class TestFormats:
    @settings(max_examples=60, deadline=None)
    @given(st.lists(TEXT, max_size=12), st.integers(1, 5))
    def test_lines_come_out_in_order_whatever_the_parts(self, tmp_path_factory, lines, part_size):
        folder = tmp_path_factory.mktemp("lines")
        source, output = folder / "in.txt", folder / "out.txt"
        source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")

        run(make(source, output, part_size=part_size))

        assert output.read_text(encoding="utf-8") == "".join(f"{line.upper()}\n" for line in lines)
        assert set(folder.iterdir()) == {source, output}

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.tuples(st.text(st.sampled_from('a,"\n\r\té '), max_size=6), TEXT), max_size=9), st.integers(1, 4)
    )
    def test_tables_keep_their_columns_and_quoted_line_ends(self, tmp_path_factory, rows, part_size):
        folder = tmp_path_factory.mktemp("table")
        source, output = folder / "in.csv", folder / "out.csv"
        with source.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([["note", "text"], *rows])

        run(make(source, output, part_size=part_size))

        with output.open(encoding="utf-8", newline="") as stream:
            written = list(csv.reader(stream))
        assert written == [["note", "text", "translation"], *([note, text, text.upper()] for note, text in rows)]

    def test_objects_keep_their_fields(self, tmp_path):
        source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
        source.write_text('{"id": 7, "de": "ä"}\n{"id": 8, "de": "b"}\n')

        run(make(source, output, JsonLines("de", "en")))

        assert [json.loads(line) for line in output.read_text().splitlines()] == [
            {"id": 7, "de": "ä", "en": "Ä"},
            {"id": 8, "de": "b", "en": "B"},
        ]

    def test_parquet_keeps_its_columns_and_row_groups(self, tmp_path):
        pa = pytest.importorskip("pyarrow", reason="Parquet needs the extra bulk")
        parquet = pytest.importorskip("pyarrow.parquet")
        source, output = tmp_path / "in.parquet", tmp_path / "out.parquet"
        table = pa.table({"id": list(range(10)), "text": [f"t{number}" for number in range(9)] + [None]})
        parquet.write_table(table, source, row_group_size=4)

        run(make(source, output))

        written = parquet.read_table(output)
        assert written.column_names == ["id", "text", "translation"]
        assert written["translation"].to_pylist() == [f"T{number}" for number in range(9)] + [""]
        assert written["id"].to_pylist() == list(range(10))

    def test_a_translation_with_line_ends_stays_on_its_line(self, tmp_path):
        source, output = tmp_path / "in.txt", tmp_path / "out.txt"
        source.write_text("one\ntwo\n")

        def broken(texts: Iterable[str]) -> Iterator[Translation]:
            return shout(f"{text}\n\u2028{text}" for text in texts)

        run(make(source, output), broken)

        assert output.read_text() == "ONE  ONE\nTWO  TWO\n"

    def test_a_byte_order_mark_is_no_text(self, tmp_path):
        source, output = tmp_path / "in.txt", tmp_path / "out.txt"
        source.write_bytes(b"\xef\xbb\xbfone\r\ntwo")

        run(make(source, output))

        assert output.read_bytes() == b"ONE\nTWO\n"

    @pytest.mark.parametrize(
        ("name", "content", "column", "message"),
        [
            ("a.csv", "x,y\n1,2\n", None, "has no column 'text', there are 'x', 'y'"),
            ("a.csv", "x,text\n1,2\n3\n", None, "a.csv, line 3: a row has 1 columns, the header 2: .'3'"),
            ("a.jsonl", '{"text": 1}\n\n{"a": 1}\n', None, "a.jsonl, line 3: no object with a field 'text'"),
            ("a.jsonl", '{"text": 1}\nnonsense\n', None, "a.jsonl, line 2: no JSON"),
            ("a.txt", "one\n", "text", "has no columns, and --column is 'text'"),
        ],
    )
    def test_files_of_another_shape_are_refused(self, tmp_path, name, content, column, message):
        source = tmp_path / name
        source.write_text(content)

        with pytest.raises(ValueError, match=message):
            run(make(source, tmp_path / f"out{source.suffix}", format_of(source, column, "translation")))


class Killed(BaseException):
    """As abrupt as SIGKILL: nothing gets to tidy up."""


class TestJob:
    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        file = tmp_path / "in.txt"
        file.write_text("".join(f"line {number}\n" for number in range(10)))
        return file

    @pytest.mark.parametrize("killed_after", range(10))
    def test_killed_anywhere_the_next_run_gives_the_same(self, source, tmp_path, killed_after):
        output = tmp_path / "out.txt"

        def killed(texts: Iterable[str]) -> Iterator[Translation]:
            for number, translation in enumerate(shout(texts)):
                if number == killed_after:
                    raise Killed
                yield translation

        with pytest.raises(Killed):
            run(make(source, output), killed)
        assert not output.exists()
        run(make(source, output))

        assert output.read_text() == "".join(f"LINE {number}\n" for number in range(10))
        assert not (tmp_path / "out.txt.parts").exists()

    def test_only_what_is_missing_is_translated_again(self, source, tmp_path):
        job, seen = make(source, tmp_path / "out.txt"), list[str]()

        def watched(texts: Iterable[str]) -> Iterator[Translation]:
            for text in texts:
                seen.append(text)
                yield from shout([text])

        with job.opened():
            translate_parts(job, [job.parts[1]], shout, lambda part: None)
        run(make(source, tmp_path / "out.txt"), watched)

        assert seen == [f"line {number}" for number in (0, 1, 2, 6, 7, 8, 9)]

    def test_half_a_part_is_no_part(self, source, tmp_path):
        job = make(source, tmp_path / "out.txt")
        with job.opened():
            file = job.part_file(job.parts[0])
            file.with_name(f"{file.name}.1.draft").write_bytes(b"LINE 0\nLI")  # killed inside a write

        run(make(source, tmp_path / "out.txt"))

        assert (tmp_path / "out.txt").read_text() == "".join(f"LINE {number}\n" for number in range(10))

    def test_killed_after_joining_the_output_stays(self, source, tmp_path):
        output = tmp_path / "out.txt"
        job = make(source, output)
        with job.opened():
            translate_parts(job, job.missing(), shout, lambda part: None)
        output.write_text("whole")  # as if killed before the parts were gone

        run(make(source, output))

        assert output.read_text().startswith("LINE 0\n")
        assert not (tmp_path / "out.txt.parts").exists()

    @pytest.mark.parametrize("change", [{"model_version": "2"}, {"options": {"beam_size": 1}}])
    def test_a_job_that_means_something_else_is_not_continued(self, source, tmp_path, change):
        job = make(source, tmp_path / "out.txt")
        with job.opened():
            translate_parts(job, job.parts[:1], shout, lambda part: None)

        with pytest.raises(JobError, match=r"is of another job: .* was .* and is .*; --force begins again"):
            run(make(source, tmp_path / "out.txt", **change))

    @pytest.mark.parametrize("change", [{"model_version": "2"}, {"options": {"beam_size": 1}}, {"source_sha256": "1"}])
    def test_a_job_without_a_part_may_become_another(self, source, tmp_path, change):
        with make(source, tmp_path / "out.txt").opened():
            pass  # as where the server refuses an option

        run(make(source, tmp_path / "out.txt", **change))

        assert (tmp_path / "out.txt").read_text().startswith("LINE 0\n")

    def test_a_forced_job_without_a_part_does_not_become_another_over_an_old_output(self, source, tmp_path):
        output = tmp_path / "out.txt"
        output.write_text("mine")
        with make(source, output).opened(is_forced=True):
            pass

        with pytest.raises(JobError, match="exists: --force translates again"):
            run(make(source, output, model_version="2"))

        assert output.read_text() == "mine"

    def test_two_runs_at_once_are_refused(self, source, tmp_path):
        with (
            make(source, tmp_path / "out.txt").opened(),
            pytest.raises(JobError, match="another run is at"),
            make(source, tmp_path / "out.txt").opened(),
        ):
            pass

    def test_force_does_not_touch_a_job_that_another_run_is_at(self, source, tmp_path):
        job, output = make(source, tmp_path / "out.txt"), tmp_path / "out.txt"
        with job.opened():
            translate_parts(job, job.parts[:2], shout, lambda part: None)
            output.write_text("of a run before")

            with pytest.raises(JobError, match="another run is at"), make(source, output).opened(is_forced=True):
                pass

            assert output.read_text() == "of a run before"
            assert [part.index for part in job.missing()] == [2, 3]

    def test_force_begins_again(self, source, tmp_path):
        output = tmp_path / "out.txt"
        output.write_text("old")
        with make(source, output, model_version="1").opened(is_forced=True):
            job = make(source, output, model_version="1")
            translate_parts(job, job.parts[:2], shout, lambda part: None)

        job = make(source, output, model_version="2")
        with job.opened(is_forced=True):
            assert job.missing() == list(job.parts)
            translate_parts(job, job.missing(), shout, lambda part: None)
            job.finish()

        assert output.read_text().startswith("LINE 0\n")

    def test_a_lock_of_a_run_that_has_ended_is_no_lock(self, source, tmp_path):
        folder = tmp_path / "out.txt.parts"
        folder.mkdir()
        with (folder / "lock").open("w") as lock:  # opened by us, then removed by the run that held it
            (folder / "lock").unlink()

            with pytest.raises(JobError, match="another run is at"):
                make(source, tmp_path / "out.txt")._take(lock)

    def test_parts_without_a_description_are_not_used(self, source, tmp_path):
        folder = tmp_path / "out.txt.parts"
        folder.mkdir()
        (folder / "000000.part").write_text("of who knows what\n")  # killed while it was removed

        run(make(source, tmp_path / "out.txt"))

        assert (tmp_path / "out.txt").read_text() == "".join(f"LINE {number}\n" for number in range(10))

    def test_failures_of_an_attempt_that_was_killed_do_not_stay(self, source, tmp_path):
        job = make(source, tmp_path / "out.txt")
        with job.opened():
            job._failed_file(job.parts[0]).write_text('[[0, "killed before it wrote the part"]]')

            translate_parts(job, job.missing(), shout, lambda part: None)

            assert job.failures(job.parts[0]) == []

    def test_an_output_that_exists_is_kept_unless_forced(self, source, tmp_path):
        output = tmp_path / "out.txt"
        output.write_text("mine")

        with pytest.raises(JobError, match="exists: --force translates again"):
            run(make(source, output))
        assert output.read_text() == "mine"

    def test_a_text_that_fails_becomes_an_empty_line_and_is_reported(self, source, tmp_path):
        def picky(texts: Iterable[str]) -> Iterator[Translation]:
            for text, translation in zip(texts, shout(["x"] * 10), strict=False):
                yield Translation(error=TooLong("too long", field="texts[0]")) if text == "line 4" else translation

        job = make(source, tmp_path / "out.txt")
        with job.opened():
            translate_parts(job, job.missing(), picky, lambda part: None)
            failures = [job.failures(part) for part in make(source, tmp_path / "out.txt").parts]
            job.finish()

        assert failures == [[], [(1, "too long")], [], []]  # kept: a later run knows them, too
        assert (tmp_path / "out.txt").read_text().splitlines()[4] == ""

    def test_a_text_that_utf_8_cannot_carry_fails_alone_and_its_record_is_kept(self, tmp_path):
        source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
        texts = ["good", "bad \\ud800", "\\ud83d\\ude00", "also bad \\udfff"]
        source.write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
        job = make(source, output)
        sent: list[str] = []

        def sending(texts: Iterable[str]) -> Iterator[Translation]:
            for text in texts:
                sent.append(text.encode().decode())
                yield from shout([text])

        with job.opened():
            translate_parts(job, job.missing(), sending, lambda part: None)
            failures = [job.failures(part) for part in job.parts]
            job.finish()

        message = "the text is not valid Unicode: surrogates not allowed at character"
        assert failures == [[(1, f"{message} 4")], [(0, f"{message} 9")]]
        assert sent == ["good", "", "\U0001f600", ""]
        records = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
        assert [record["translation"] for record in records] == ["GOOD", "", "\U0001f600", ""]
        assert [record["text"] for record in records] == ["good", "bad \ud800", "\U0001f600", "also bad \udfff"]


def test_formats_are_chosen_by_suffix():
    assert isinstance(format_of(Path("a.tsv"), None, "t"), Table)
    assert isinstance(format_of(Path("a.ndjson"), None, "t"), JsonLines)
    assert isinstance(format_of(Path("a.md"), None, "t"), Lines)
