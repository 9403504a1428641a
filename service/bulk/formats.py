"""File formats of a bulk translation: how a file is cut into parts, read, written and joined again.

A part is read from its place alone, so that any process can take any part.  What is written depends on the part alone,
so that whoever writes it, and however often, writes the same bytes.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from service.text_lines import on_one_line, text_of_line

SUFFIXES = (".txt", ".csv", ".tsv", ".jsonl", ".parquet")

Record = Any  # a line, a row or an object, as the format has it


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the input."""

    index: int
    start: int  # bytes from the beginning of the file; of Parquet, rows
    count: int  # records


class Format(Protocol):
    """One way to keep texts in a file."""

    def plan(self, file: Path, part_size: int) -> Iterator[Part]:
        """The file in parts of so many records, the last one shorter.

        Raises:
            ValueError: it is not of this format.
        """
        ...

    def read(self, file: Path, part: Part) -> list[Record]:
        """The records of a part."""
        ...

    def text(self, record: Record) -> str:
        """What is to be translated of a record."""
        ...

    def encode(self, records: Sequence[Record], translations: Sequence[str]) -> bytes:
        """The output of a part."""
        ...

    def join(self, source: Path, parts: Iterable[Path], output: Path) -> None:
        """One file of all parts' outputs."""
        ...


def format_of(file: Path, column: str | None, target: str) -> Format:
    """The format that a file's suffix names; without a known one, lines.

    Args:
        column: of tables and objects, the column or field that holds the text; None for "text".
        target: the column or field that the translation goes to.
    """
    match file.suffix.lower():
        case ".csv":
            return Table(column or "text", target, delimiter=",")
        case ".tsv":
            return Table(column or "text", target, delimiter="\t")
        case ".jsonl" | ".ndjson":
            return JsonLines(column or "text", target)
        case ".parquet":
            return Parquet(column or "text", target)
    if column is not None:
        raise ValueError(f"{file} has no columns, and --column is {column!r}: columns are in {', '.join(SUFFIXES[1:])}")
    return Lines()


@dataclass(frozen=True, slots=True)
class Lines:
    """A text a line; the translation of an empty line is an empty line."""

    def plan(self, file: Path, part_size: int) -> Iterator[Part]:
        with file.open("rb") as stream:
            yield from _plan_lines(stream, part_size)

    def read(self, file: Path, part: Part) -> list[str]:
        return _read_lines(file, part)

    def text(self, record: str) -> str:
        return record

    def encode(self, records: Sequence[str], translations: Sequence[str]) -> bytes:
        return "".join(f"{on_one_line(translation)}\n" for translation in translations).encode()

    def join(self, source: Path, parts: Iterable[Path], output: Path) -> None:
        _concatenate(b"", parts, output)


@dataclass(frozen=True, slots=True)
class JsonLines:
    """An object a line, with the text in one field; the translation is added as another."""

    field: str
    target: str

    def plan(self, file: Path, part_size: int) -> Iterator[Part]:
        with file.open("rb") as stream:
            yield from _plan_lines(stream, part_size)

    def read(self, file: Path, part: Part) -> list[dict[str, Any]]:
        return [self._object(line, file) for line in _read_lines(file, part)]

    def text(self, record: dict[str, Any]) -> str:
        return _text_of(record[self.field])

    def encode(self, records: Sequence[dict[str, Any]], translations: Sequence[str]) -> bytes:
        pairs = zip(records, translations, strict=True)
        lines = (json.dumps(record | {self.target: text}, ensure_ascii=False) for record, text in pairs)
        # A lone surrogate, which JSON can write and UTF-8 cannot, is written as JSON does: its escapes are Python's.
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")

    def join(self, source: Path, parts: Iterable[Path], output: Path) -> None:
        _concatenate(b"", parts, output)

    def _object(self, line: str, file: Path) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{file}: a line is no JSON: {error}") from error
        if not isinstance(record, dict) or self.field not in record:
            raise ValueError(f"{file}: a line is no object with a field {self.field!r}: {line[:80]!a}")
        return record


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with a header; the translation is added as the last column."""

    column: str
    target: str
    delimiter: str

    def plan(self, file: Path, part_size: int) -> Iterator[Part]:
        self._index(file)
        with file.open("rb") as stream:
            source = _CountedLines(stream)
            rows = csv.reader(source, delimiter=self.delimiter)
            next(rows)
            index, start, count = 0, source.offset, 0
            for _ in rows:
                count += 1
                if count == part_size:
                    yield Part(index, start, count)
                    index, start, count = index + 1, source.offset, 0
            if count:
                yield Part(index, start, count)

    def read(self, file: Path, part: Part) -> list[list[str]]:
        index = self._index(file)
        with file.open("rb") as stream:
            stream.seek(part.start)
            rows = csv.reader(_CountedLines(stream), delimiter=self.delimiter)
            # The text goes first, so that a record says by itself which column that is.
            return [[_cell(row, index, file), *row] for row in (next(rows) for _ in range(part.count))]

    def text(self, record: list[str]) -> str:
        return record[0]

    def encode(self, records: Sequence[list[str]], translations: Sequence[str]) -> bytes:
        return self._bytes([*record[1:], text] for record, text in zip(records, translations, strict=True))

    def join(self, source: Path, parts: Iterable[Path], output: Path) -> None:
        _concatenate(self._bytes([[*self._header(source), self.target]]), parts, output)

    def _bytes(self, rows: Iterable[Sequence[str]]) -> bytes:
        buffer = io.StringIO()
        csv.writer(buffer, delimiter=self.delimiter, lineterminator="\n").writerows(rows)
        return buffer.getvalue().encode()

    def _header(self, file: Path) -> list[str]:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            return next(csv.reader(stream, delimiter=self.delimiter), [])

    def _index(self, file: Path) -> int:
        header = self._header(file)
        if self.column not in header:
            raise ValueError(
                f"{file} has no column {self.column!r}, there are {', '.join(map(repr, header)) or 'none'}"
            )
        return header.index(self.column)


@dataclass(frozen=True, slots=True)
class Parquet:
    """Columns; the translation is added as the last one.  Needs pyarrow."""

    column: str
    target: str

    def plan(self, file: Path, part_size: int) -> Iterator[Part]:
        table = _parquet().ParquetFile(file)
        if self.column not in table.schema_arrow.names:
            names = ", ".join(map(repr, table.schema_arrow.names))
            raise ValueError(f"{file} has no column {self.column!r}, there are {names}")
        num_rows = table.metadata.num_rows
        for index, start in enumerate(range(0, num_rows, part_size)):
            yield Part(index, start, min(part_size, num_rows - start))

    def read(self, file: Path, part: Part) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        position = 0
        source = _parquet().ParquetFile(file)
        for group in range(source.num_row_groups):
            size = source.metadata.row_group(group).num_rows
            first, last = max(part.start, position), min(part.start + part.count, position + size)
            if first < last:
                rows += source.read_row_group(group).slice(first - position, last - first).to_pylist()
            position += size
        return rows

    def text(self, record: dict[str, Any]) -> str:
        return _text_of(record[self.column])

    def encode(self, records: Sequence[dict[str, Any]], translations: Sequence[str]) -> bytes:
        """The translations alone: the other columns are taken from the source when the parts are joined."""
        return json.dumps(list(translations), ensure_ascii=False).encode()

    def join(self, source: Path, parts: Iterable[Path], output: Path) -> None:
        import pyarrow as pa  # noqa: PLC0415 - of the extra `bulk`

        module = _parquet()
        file = module.ParquetFile(source)
        texts = (text for part in parts for text in json.loads(part.read_bytes()))
        schema = file.schema_arrow.append(pa.field(self.target, pa.string()))
        with module.ParquetWriter(output, schema) as writer:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                column = pa.array([next(texts) for _ in range(table.num_rows)], pa.string())
                writer.write_table(table.append_column(self.target, column).cast(schema))


def _text_of(value: object) -> str:
    return "" if value is None else str(value)


def _parquet() -> Any:
    try:
        import pyarrow.parquet as module  # noqa: PLC0415
    except ImportError as error:
        raise ValueError("Parquet files need pyarrow: pip install 'dragoman[bulk]'") from error
    return module


class _CountedLines:
    """The lines of a UTF-8 file, and where in the file the next one begins."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream
        self.offset = stream.tell()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._stream.readline()
        if not line:
            raise StopIteration
        first = self.offset == 0
        self.offset += len(line)
        return line.decode("utf-8-sig" if first else "utf-8")


def _plan_lines(stream: io.BufferedReader, part_size: int) -> Iterator[Part]:
    index, start, offset, count = 0, 0, 0, 0
    for line in stream:
        offset += len(line)
        count += 1
        if count == part_size:
            yield Part(index, start, count)
            index, start, count = index + 1, offset, 0
    if count:
        yield Part(index, start, count)


def _read_lines(file: Path, part: Part) -> list[str]:
    with file.open("rb") as stream:
        stream.seek(part.start)
        raw = [stream.readline() for _ in range(part.count)]
    return [text_of_line(line, is_first=part.start == 0 and number == 0) for number, line in enumerate(raw)]


def _cell(row: Sequence[str], index: int, file: Path) -> str:
    if index >= len(row):
        raise ValueError(f"{file}: a row has {len(row)} columns, the text is in column {index + 1}: {row!a}")
    return row[index]


def _concatenate(head: bytes, parts: Iterable[Path], output: Path) -> None:
    with output.open("wb") as stream:
        stream.write(head)
        for part in parts:
            stream.write(part.read_bytes())
