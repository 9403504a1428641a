"""Files of lines, JSON and tables, cut into parts and joined again, also as they are found in the wild."""

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.tools.bulk import formats
from tests.fakes.bulk_jobs import job_of, run_job, shout, translated

BOM = b"\xef\xbb\xbf"
LONG = b"x" * 131_073  # longer than Python's own limit
TEXT = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="\u2028\u2029\x85\ufeff"), max_size=12
)


def written(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@settings(max_examples=30, deadline=None)
@given(st.lists(TEXT, max_size=12), st.integers(1, 5))
def test_lines_come_out_in_order_whatever_the_parts(tmp_path_factory, lines, part_size):
    source = tmp_path_factory.mktemp("lines") / "in.txt"
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")

    output = translated(source, part_size=part_size)

    assert output.decode() == "".join(f"{line.upper()}\n" for line in lines)
    assert {file.name for file in source.parent.iterdir()} == {"in.txt", "out.txt"}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.text(st.sampled_from('a,"\n\r\té '), max_size=6), TEXT), max_size=9), st.integers(1, 4))
def test_tables_keep_their_columns_and_quoted_line_ends(tmp_path_factory, rows, part_size):
    source = tmp_path_factory.mktemp("table") / "in.csv"
    with source.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([["note", "text"], *rows])

    translated(source, part_size=part_size)

    with source.with_name("out.csv").open(encoding="utf-8", newline="") as stream:
        found = list(csv.reader(stream))
    assert found == [["note", "text", "translation"], *([note, text, text.upper()] for note, text in rows)]


@pytest.mark.parametrize("part_size", [1, 2, 100])
@pytest.mark.parametrize(
    ("name", "content", "output"),
    [
        ("in.txt", BOM + b"one\r\ntwo", b"ONE\nTWO\n"),
        ("in.jsonl", BOM + b'{"text": "a"}\n', b'{"text": "a", "translation": "A"}\n'),
        (
            "in.jsonl",
            b'\n{"text": "a"}\n  \r\n{"text": null}\n\n',
            b'\n{"text": "a", "translation": "A"}\n  \n{"text": null, "translation": ""}\n\n',
        ),
        (
            "in.jsonl",
            b'{"text": 1.50}\n{"text": 1e400}\n',
            b'{"text": 1.50, "translation": "1.50"}\n{"text": 1e400, "translation": "1E400"}\n',
        ),
        ("in.csv", b"id,text\n1,a\n\n2,b\r\n\r\n\n", b"id,text,translation\n1,a,A\n\n2,b,B\n\n\n"),
        ("in.csv", BOM + "text,id\r\nä,1\r\n".encode(), BOM + "text,id,translation\nä,1,Ä\n".encode()),
        ("in.csv", BOM + b'"text"\na\n', BOM + b"text,translation\na,A\n"),
        ("in.csv", b"text\na\0b\n", b"text,translation\na\0b,A\0B\n"),
        ("in.csv", b"id,text\n" + LONG + b",a\n", b"id,text,translation\n" + LONG + b",a,A\n"),
        (
            "in.csv",
            b'id,text\n1,a "b\n2,"a"b\n3,"a\nb"',
            b'id,text,translation\n1,"a ""b","A ""B"\n2,ab,AB\n3,"a\nb","A\nB"\n',
        ),
        (
            "in.tsv",
            b'id\ttext\n"1\t"yes.\n2\tno."\n3\t"a" b\n4\t"""\n',
            b'id\ttext\ttranslation\n"1\t"yes.\t"YES.\n2\tno."\tNO."\n3\t"a" b\t"A" B\n4\t"""\t"""\n',
        ),
        ("in.tsv", BOM + b"text\tid\r\n\n\t\r\na \t 1\n", BOM + b"text\tid\ttranslation\n\n\t\t\na \t 1\tA \n"),
    ],
)
def test_files_as_they_are_found_keep_all_but_the_translation(tmp_path, name, content, output, part_size):
    assert translated(written(tmp_path, name, content), part_size=part_size) == output


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n", "\n\r", "x\r"])
def test_quoted_cell_with_any_end_of_a_line_comes_out_as_it_was(tmp_path, end):
    source = written(tmp_path, "in.csv", f'id,text\n"x{end}y",a\n'.encode())

    assert translated(source) == f'id,text,translation\n"x{end}y",a,A\n'.encode()
    again = job_of(tmp_path / "out.csv", tmp_path / "again.csv", target="again")
    assert list(again.texts(again.parts)) == ["a"]


@pytest.mark.parametrize(
    ("name", "content", "output"),
    [("in.txt", b"a\n", b"A B C D E\n"), ("in.tsv", b"text\na\n", b"text\ttranslation\na\tA B C D E\n")],
)
def test_a_translation_with_tabs_and_line_ends_stays_in_its_place(tmp_path, name, content, output):
    source, result = written(tmp_path, name, content), tmp_path / f"out{Path(name).suffix}"
    gap = "\t" if name == "in.tsv" else " "

    run_job(job_of(source, result), lambda texts: shout(f"{text}{gap}b\r\nc\rd\u2028e" for text in texts))

    assert result.read_bytes() == output


@pytest.mark.parametrize(
    "fields",
    [
        '"n": 1e400',
        '"n": 1234567890.12345678901234567890',
        '"n": 1' + "0" * 5_000,
        '"n": -0.0,"n":1.50, "n" : [1E5, {"a":2}]',
        '"s": "\\u00e4 \\/ \\ud800"',
    ],
)
@pytest.mark.parametrize("end", ["", " ", "\t\r"])
def test_other_fields_of_an_object_keep_their_bytes(tmp_path, fields, end):
    source = written(tmp_path, "in.jsonl", f' {{"text":"ä", {fields}{end}}}{end}\n'.encode() * 2)

    assert translated(source).decode() == f' {{"text":"ä", {fields}, "translation": "Ä"}}\n' * 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.txt", b"a\nb\xff\n", "in.txt, line 2: byte 0xff is no UTF-8"),
        ("in.jsonl", b'{"text": "a"}\n{"text": "\xe4"}\n', "in.jsonl, line 2: byte 0xe4 is no UTF-8"),
        ("in.csv", b"te\xe4xt\n", "in.csv, line 1: byte 0xe4 is no UTF-8"),
        ("in.csv", b'text\n"a\nb"\n\xe4\n', "in.csv, line 4: byte 0xe4 is no UTF-8"),
        ("in.csv", b"id,text\r1,a\r2,b\r", "in.csv, line 1: a carriage return without a line feed"),
        ("in.csv", b'text\na\n"b\n' + b"c" * 60 + b"\n", "in.csv, line 3: a field has more than 50 characters: is its"),
        ("in.csv", b'id,text\n1,"a\nb"\n2,"c: d\n3,e\n4,f\n', "in.csv, line 4: a quote is not closed"),
        ("in.csv", b"id,text\n1,a\n2,b,c\n", "in.csv, line 3: a row has 3 columns, the header 2: .'2', 'b', 'c'."),
        ("in.tsv", b'id\ttext\n1\t"a\nb"\n', "in.tsv, line 3: a row has 1 columns, .*; quotes in it are text"),
        ("in.csv", b"", "in.csv has no column 'text', there are none"),
        ("in.csv", b"text,translation\na,A\n", "a column 'translation' already: give another name .* --target"),
        ("in.jsonl", b"[" * 100_000, "in.jsonl, line 1: no JSON"),
        ("in.jsonl", b'{"text": 1}\n\n{"a": 1}\n', "in.jsonl, line 3: no object with a field 'text'"),
        ("in.jsonl", b'{"text": 1}\n{"text": 1, "translation": 0}\n', "line 2: there is a field 'translation' already"),
        ("in.jsonl", b'{"text": "a"}\n{"text": ["a"]}\n', "line 2: the field 'text': a list is neither text nor a"),
    ],
)
def test_file_that_cannot_be_used_is_refused_before_anything_is_translated(
    tmp_path, monkeypatch, name, content, message
):
    monkeypatch.setattr(formats, "MAX_CHARACTERS", 50)

    with pytest.raises(ValueError, match=message):
        job_of(written(tmp_path, name, content), tmp_path / "out")


@pytest.fixture(autouse=True)
def _same_limit_afterwards():
    limit = csv.field_size_limit()
    yield
    csv.field_size_limit(limit)
