"""Parquet: only what is needed is read, once."""

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from service.bulk.parquet import Parquet
from service.bulk.parts import Part
from tests.fakes.bulk_jobs import job_of, translated

pa = pytest.importorskip("pyarrow", reason="Parquet needs the extra bulk")
pq = pytest.importorskip("pyarrow.parquet")

FORMAT = Parquet("text", "translation")


def write(file: Path, num_rows: int, row_group_size: int) -> Path:
    texts = [f"t{number}" for number in range(num_rows)]
    pq.write_table(pa.table({"id": range(num_rows), "text": texts}), file, row_group_size=row_group_size)
    return file


def numbers(texts: Iterator[str]) -> list[int]:
    return [int(text[1:]) for text in texts]


class Reads:
    """What is read of Parquet files: rows, and of which columns."""

    def __init__(self) -> None:
        self.rows = 0
        self.largest = 0
        self.columns: set[str] = set()
        self.whole_groups = 0

    def counted(self, original: Any) -> Any:
        reads = self

        class Counting(original):
            def iter_batches(self, *args: Any, **options: Any) -> Iterator[Any]:
                for batch in super().iter_batches(*args, **options):
                    reads.rows += batch.num_rows
                    reads.largest = max(reads.largest, batch.num_rows)
                    reads.columns |= set(batch.schema.names)
                    yield batch

            def read_row_group(self, *args: Any, **options: Any) -> Any:
                reads.whole_groups += 1
                return super().read_row_group(*args, **options)

        return Counting


@pytest.fixture
def reads(monkeypatch) -> Reads:
    counting = Reads()
    monkeypatch.setattr(pq, "ParquetFile", counting.counted(pq.ParquetFile))
    return counting


def test_one_large_row_group_is_read_once_however_many_parts_there_are(tmp_path, reads):
    source = write(tmp_path / "in.parquet", 200_000, 200_000)
    parts = list(FORMAT.plan(source, 1_000))

    assert numbers(FORMAT.texts(source, parts)) == list(range(200_000))
    assert len([FORMAT.encode(source, part, ["x"] * part.count) for part in parts]) == 200

    assert (reads.rows, reads.columns, reads.whole_groups) == (200_000, {"text"}, 0)
    assert reads.largest <= 1_000


def test_a_part_alone_reads_its_row_groups_up_to_its_end(tmp_path, reads):
    source = write(tmp_path / "in.parquet", 10_000, 4_000)

    assert numbers(FORMAT.texts(source, [Part(5, 5_000, 1_000)])) == list(range(5_000, 6_000))

    assert (reads.rows, reads.whole_groups) == (2_000, 0)


@pytest.mark.parametrize("row_group_size", [1, 3, 7, 50])
@pytest.mark.parametrize("left_out", [set(), {0}, {1, 2, 5}, {0, 1, 2, 3, 4, 6, 7, 8, 9}, set(range(10))])
def test_parts_that_are_missing_are_read_wherever_they_lie(tmp_path, row_group_size, left_out):
    source = write(tmp_path / "in.parquet", 47, row_group_size)
    parts = [part for part in FORMAT.plan(source, 5) if part.index not in left_out]

    assert numbers(FORMAT.texts(source, parts)) == [
        row for part in parts for row in range(part.start, part.start + part.count)
    ]


def test_columns_and_row_groups_stay(tmp_path):
    source = write(tmp_path / "in.parquet", 10, 4)

    translated(source)

    output = pq.ParquetFile(tmp_path / "out.parquet")
    assert output.schema_arrow.names == ["id", "text", "translation"]
    assert [output.metadata.row_group(group).num_rows for group in range(output.num_row_groups)] == [4, 4, 2]
    assert output.read()["translation"].to_pylist() == [f"T{number}" for number in range(10)]


@pytest.mark.parametrize("target", ["id", "text"])
def test_a_column_that_is_there_is_not_written_over(tmp_path, target):
    source = write(tmp_path / "in.parquet", 2, 2)

    with pytest.raises(ValueError, match=f"has a column '{target}' already: give another name"):
        translated(source, target=target)


def test_the_first_of_two_columns_of_one_name_is_taken(tmp_path):
    twice = pa.Table.from_arrays([pa.array(["first"]), pa.array(["second"])], names=["text", "text"])
    pq.write_table(twice, tmp_path / "in.parquet")

    assert list(FORMAT.texts(tmp_path / "in.parquet", list(FORMAT.plan(tmp_path / "in.parquet", 10)))) == ["first"]


def column(file: Path, values: Any) -> Path:
    pq.write_table(pa.table({"text": values}), file, row_group_size=2)
    return file


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (["one", None, "ä"], ["one", "", "ä"]),
        (pa.array(["one", None, "one"]).dictionary_encode(), ["one", "", "one"]),
        ([b"one", None, "ä".encode()], ["one", "", "ä"]),
        (pa.array([b"one"]).dictionary_encode(), ["one"]),
        (pa.array([b"one", b"two"], pa.binary(3)), ["one", "two"]),
        ([1, None], ["1", ""]),
        ([1.5], ["1.5"]),
        ([Decimal("1.50")], ["1.50"]),
        (pa.nulls(2), ["", ""]),
    ],
)
def test_text_is_strings_bytes_and_numbers(tmp_path, values, texts):
    source = column(tmp_path / "in.parquet", values)

    assert list(FORMAT.texts(source, list(FORMAT.plan(source, 10)))) == texts


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([["a", "b"]], "list<element: string>"),
        ([{"a": "b"}], "struct<a: string>"),
        ([True], "bool"),
        ([date(2026, 1, 1)], r"date32\[day\]"),
    ],
)
def test_column_of_another_type_is_refused_before_anything_is_translated(tmp_path, values, kind):
    source = column(tmp_path / "in.parquet", values)

    with pytest.raises(ValueError, match=rf"in\.parquet: the column 'text' is of type {kind}, which is neither text"):
        job_of(source, tmp_path / "out.parquet")


def test_bytes_that_are_no_utf_8_are_refused_before_anything_is_translated(tmp_path):
    source = column(tmp_path / "in.parquet", [b"a", b"b", b"c", b"\xffd"])

    with pytest.raises(ValueError, match=r"in\.parquet, column 'text', record 4: byte 0xff is no UTF-8"):
        job_of(source, tmp_path / "out.parquet")


def test_string_that_is_no_utf_8_after_all_is_named(tmp_path):
    source = column(tmp_path / "in.parquet", pa.array([b"a", b"b", b"c", b"d\xff"]).view(pa.string()))

    with pytest.raises(ValueError, match=r"in\.parquet, column 'text', record 4: byte 0xff is no UTF-8"):
        translated(source)
