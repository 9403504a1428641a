"""Files as they are found: blank rows, byte order marks, long fields, and what cannot be read."""

import csv
from pathlib import Path

import pytest

from service.bulk import table
from tests.fakes.bulk_jobs import job_of, run_job, shout, translated

BOM = b"\xef\xbb\xbf"


def written(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@pytest.mark.parametrize("part_size", [1, 2, 100])
class TestBlankRecords:
    def test_blank_rows_of_a_table_stay_where_they_are(self, tmp_path, part_size):
        source = written(tmp_path, "in.csv", b"id,text\n1,a\n\n2,b\r\n\r\n\n")

        assert translated(source, part_size=part_size) == b"id,text,translation\n1,a,A\n\n2,b,B\n\n\n"

    def test_blank_lines_of_json_stay_where_they_are(self, tmp_path, part_size):
        source = written(tmp_path, "in.jsonl", b'\n{"text": "a"}\n  \r\n{"text": "b"}\n\n')

        assert translated(source, part_size=part_size) == (
            b'\n{"text": "a", "translation": "A"}\n  \n{"text": "b", "translation": "B"}\n\n'
        )

    def test_blank_row_is_a_record_with_a_blank_text(self, tmp_path, part_size):
        job = job_of(written(tmp_path, "in.csv", b"text\na\n\nb\n"), tmp_path / "out.csv", part_size=part_size)

        assert list(job.texts(job.parts)) == ["a", "", "b"]
        assert sum(part.count for part in job.parts) == 3


class TestByteOrderMark:
    def test_it_is_no_part_of_the_first_column_s_name_and_stays(self, tmp_path):
        source = written(tmp_path, "in.csv", BOM + "text,id\r\nä,1\r\n".encode())

        assert translated(source) == BOM + "text,id,translation\nä,1,Ä\n".encode()

    def test_it_is_no_part_of_a_quoted_name(self, tmp_path):
        source = written(tmp_path, "in.csv", BOM + b'"text"\na\n')

        assert translated(source) == BOM + b"text,translation\na,A\n"

    @pytest.mark.parametrize(
        ("name", "content", "output"),
        [("in.txt", b"a\n", b"A\n"), ("in.jsonl", b'{"text": "a"}\n', b'{"text": "a", "translation": "A"}\n')],
    )
    def test_of_lines_it_is_dropped(self, tmp_path, name, content, output):
        assert translated(written(tmp_path, name, BOM + content)) == output


class TestFields:
    def test_field_may_be_longer_than_python_s_own_limit(self, tmp_path):
        long = b"x" * 131_073
        source = written(tmp_path, "in.csv", b"id,text\n" + long + b",a\n")

        assert translated(source) == b"id,text,translation\n" + long + b",a,A\n"

    @pytest.mark.parametrize("end", ["\r", "\r\n", "\n", "\n\r", "x\r"])
    def test_quoted_cell_with_any_end_of_a_line_comes_out_as_it_was(self, tmp_path, end):
        source = written(tmp_path, "in.csv", f'id,text\n"x{end}y",a\n'.encode())

        assert translated(source) == f'id,text,translation\n"x{end}y",a,A\n'.encode()
        again = job_of(tmp_path / "out.csv", tmp_path / "again.csv", target="again")
        assert list(again.texts(again.parts)) == ["a"]

    @pytest.mark.parametrize("end", [b"", b"\n"])
    def test_quotes_that_are_closed_at_the_end_of_the_file_or_begin_no_cell_are_no_fault(self, tmp_path, end):
        source = written(tmp_path, "in.csv", b'id,text\n1,a "b\n2,"a"b\n3,"a\nb"' + end)

        assert translated(source) == b'id,text,translation\n1,"a ""b","A ""B"\n2,ab,AB\n3,"a\nb","A\nB"\n'

    def test_nul_is_a_character_as_any_other(self, tmp_path):
        assert translated(written(tmp_path, "in.csv", b"text\na\0b\n")) == b"text,translation\na\0b,A\0B\n"


class TestTabs:
    @pytest.mark.parametrize("part_size", [1, 100])
    def test_quotes_are_text_and_join_no_lines(self, tmp_path, part_size):
        source = written(tmp_path, "in.tsv", b'id\ttext\n"1\t"yes.\n2\tno."\n3\t"a" b\n4\t"""\n')

        assert translated(source, part_size=part_size) == (
            b'id\ttext\ttranslation\n"1\t"yes.\t"YES.\n2\tno."\tNO."\n3\t"a" b\t"A" B\n4\t"""\t"""\n'
        )

    def test_blank_rows_and_empty_cells_stay(self, tmp_path):
        source = written(tmp_path, "in.tsv", BOM + b"text\tid\r\n\n\t\r\na \t 1\n")

        assert translated(source) == BOM + b"text\tid\ttranslation\n\n\t\t\na \t 1\tA \n"

    def test_translation_stays_in_its_cell(self, tmp_path):
        source, output = written(tmp_path, "in.tsv", b"text\na\n"), tmp_path / "out.tsv"

        run_job(job_of(source, output), lambda texts: shout(f"{text}\tb\r\nc\rd" for text in texts))

        assert output.read_bytes() == b"text\ttranslation\na\tA B C D\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.txt", b"a\nb\xff\n", "in.txt, line 2: byte 0xff is no UTF-8"),
        ("in.txt", BOM + b"\xfea\n", "in.txt, line 1: byte 0xfe is no UTF-8"),
        ("in.jsonl", b'{"text": "a"}\n{"text": "\xe4"}\n', "in.jsonl, line 2: byte 0xe4 is no UTF-8"),
        ("in.csv", b"te\xe4xt\n", "in.csv, line 1: byte 0xe4 is no UTF-8"),
        ("in.csv", b'text\n"a\nb"\n\xe4\n', "in.csv, line 4: byte 0xe4 is no UTF-8"),
        ("in.csv", "text\na\n".encode("utf-16"), "in.csv, line 1: byte 0xff is no UTF-8"),
        ("in.csv", b"id,text\r1,a\r2,b\r", "in.csv, line 1: a carriage return without a line feed"),
        ("in.csv", b"id,text\n1,a\n2,b\rc\n", "in.csv, line 3: a carriage return without a line feed"),
        ("in.csv", b'text\na\n"b\n' + b"c" * 60 + b"\n", "in.csv, line 3: a field has more than 50 characters: is its"),
        ("in.csv", b'id,text\n1,"a\nb"\n2,"c: d\n3,e\n4,f\n', "in.csv, line 4: a quote is not closed"),
        ("in.csv", b'id,text\n1,a\n2,"', "in.csv, line 3: a quote is not closed"),
        ("in.csv", b'"id,text\n1,a\n', "in.csv, line 1: a quote is not closed"),
        ("in.csv", b"id,text\n1,a\n2,b,c\n", "in.csv, line 3: a row has 3 columns, the header 2: .'2', 'b', 'c'."),
        ("in.tsv", b'id\ttext\n1\t"a\nb"\n', "in.tsv, line 3: a row has 1 columns, .*; quotes in it are text"),
        ("in.csv", b"", "in.csv has no column 'text', there are none"),
        ("in.jsonl", b"[" * 100_000, "in.jsonl, line 1: no JSON"),
        ("in.parquet", b"nonsense", "in.parquet cannot be read as Parquet"),
        (
            "in.csv",
            b"text,translation\na,A\n",
            "in.csv has a column 'translation' already: give another name .* --target",
        ),
        ("in.jsonl", b'{"text": 1}\n{"text": 1, "translation": 0}\n', "line 2: there is a field 'translation' already"),
    ],
)
def test_file_that_cannot_be_used_is_refused_before_anything_is_translated(
    tmp_path, monkeypatch, name, content, message
):
    monkeypatch.setattr(table, "MAX_CHARACTERS", 50)
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow", reason="Parquet needs the extra bulk")

    with pytest.raises(ValueError, match=message):
        job_of(written(tmp_path, name, content), tmp_path / "out")


@pytest.mark.parametrize(("name", "content"), [("in.csv", b"text\na\n"), ("in.jsonl", b'{"text": "a"}\n')])
def test_translations_do_not_replace_the_texts(tmp_path, name, content):
    source = written(tmp_path, name, content)

    with pytest.raises(ValueError, match="'text' already"):
        translated(source, target="text")


@pytest.fixture(autouse=True)
def _same_limit_afterwards():
    limit = csv.field_size_limit()
    yield
    csv.field_size_limit(limit)
