"""Parquet: only what is needed is read, once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.tools.bulk.formats import Parquet
from tests.fakes.bulk_jobs import job_of, translated

pa = pytest.importorskip("pyarrow", reason="Parquet needs the extra bulk")
pq = pytest.importorskip("pyarrow.parquet", reason="Parquet needs the extra bulk")

FORMAT = Parquet("text", "translation")


def numbered(file: Path, num_rows: int, row_group_size: int) -> Path:
    texts = [f"t{number}" for number in range(num_rows)]
    pq.write_table(pa.table({"id": range(num_rows), "text": texts}), file, row_group_size=row_group_size)
    return file


def with_texts(file: Path, values: Any) -> Path:
    pq.write_table(pa.table({"text": values}), file, row_group_size=2)
    return file


def numbers(texts: Iterator[str]) -> list[int]:
    return [int(text[1:]) for text in texts]


@pytest.fixture
def batches(monkeypatch) -> list[Any]:
    """The batches that are read; reading a whole row group is an error."""
    found: list[Any] = []

    class Counting(pq.ParquetFile):  # type: ignore[name-defined]
        def iter_batches(self, *args: Any, **options: Any) -> Iterator[Any]:
            for batch in super().iter_batches(*args, **options):
                found.append(batch)
                yield batch

        def read_row_group(self, *_: Any, **__: Any) -> Any:
            pytest.fail("a whole row group is read")

    monkeypatch.setattr(pq, "ParquetFile", Counting)
    return found


def test_one_large_row_group_is_read_once_however_many_parts_there_are(tmp_path, batches):
    source = numbered(tmp_path / "in.parquet", 200_000, 200_000)
    parts = list(FORMAT.plan(source, 1_000))

    assert numbers(FORMAT.texts(source, parts)) == list(range(200_000))
    assert len([FORMAT.encode(source, part, ["x"] * part.count) for part in parts]) == 200

    assert sum(batch.num_rows for batch in batches) == 200_000
    assert {name for batch in batches for name in batch.schema.names} == {"text"}
    assert max(batch.num_rows for batch in batches) <= 1_000


@pytest.mark.parametrize("row_group_size", [1, 3, 7, 50])
@pytest.mark.parametrize("left_out", [set(), {0}, {1, 2, 5}, {0, 1, 2, 3, 4, 6, 7, 8, 9}, set(range(10))])
def test_parts_that_are_missing_are_read_wherever_they_lie(tmp_path, row_group_size, left_out):
    source = numbered(tmp_path / "in.parquet", 47, row_group_size)
    parts = [part for part in FORMAT.plan(source, 5) if part.index not in left_out]

    assert numbers(FORMAT.texts(source, parts)) == [
        row for part in parts for row in range(part.start, part.start + part.count)
    ]


@pytest.mark.parametrize("num_rows", [0, 10])
def test_columns_and_row_groups_stay(tmp_path, num_rows):
    source = numbered(tmp_path / "in.parquet", num_rows, 4)

    translated(source)

    output = pq.ParquetFile(tmp_path / "out.parquet")
    groups = [output.metadata.row_group(group).num_rows for group in range(output.num_row_groups)]
    assert output.schema_arrow.names == ["id", "text", "translation"]
    assert [number for number in groups if number] == ([4, 4, 2] if num_rows else [])
    assert output.read()["id"].to_pylist() == list(range(num_rows))
    assert output.read()["translation"].to_pylist() == [f"T{number}" for number in range(num_rows)]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (["one", None, "ä"], ["one", "", "ä"]),
        (pa.array(["one", None, "one"]).dictionary_encode(), ["one", "", "one"]),
        (pa.nulls(2), ["", ""]),
    ],
)
def test_text_is_strings_and_nothing(tmp_path, values, texts):
    source = with_texts(tmp_path / "in.parquet", values)

    assert list(FORMAT.texts(source, list(FORMAT.plan(source, 10)))) == texts


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([{"a": "b"}], r"the column 'text' is of type struct<a: string>, which is no text"),
        ([["a", "b"]], r"is of type list<element: string>, which is no text"),
        ([b"a"], r"is of type binary, which is no text"),
        ([1], r"is of type int64, which is no text"),
    ],
)
def test_what_is_no_text_is_refused_before_anything_is_translated(tmp_path, values, message):
    with pytest.raises(ValueError, match=message):
        job_of(with_texts(tmp_path / "in.parquet", values), tmp_path / "out.parquet")


def test_string_that_is_no_utf_8_after_all_is_named(tmp_path):
    source = with_texts(tmp_path / "in.parquet", pa.array([b"a", b"b", b"c", b"d\xff"]).view(pa.string()))

    with pytest.raises(ValueError, match=r"in\.parquet, column 'text': a string is no UTF-8"):
        translated(source)


@pytest.mark.parametrize(("target", "column"), [("text", "text"), ("other", "none")])
def test_a_file_without_a_place_for_texts_and_translations_is_refused(tmp_path, target, column):
    source = with_texts(tmp_path / "in.parquet", ["a"])

    with pytest.raises(ValueError, match=r"'text' already: give another name|no column 'none', there are 'text'"):
        list(Parquet(column, target).plan(source, 1))


def test_a_file_that_is_no_parquet_is_named(tmp_path):
    (tmp_path / "in.parquet").write_bytes(b"nonsense")

    with pytest.raises(ValueError, match=r"in\.parquet cannot be read as Parquet"):
        job_of(tmp_path / "in.parquet", tmp_path / "out.parquet")
