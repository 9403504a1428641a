"""What a file is to a bulk translation: parts, which a format cuts it into, reads, writes and joins again.

A part is read from its place alone, so that any process can take any part.  What is written depends on the part alone,
so that whoever writes it, and however often, writes the same bytes.

Formats of text are lines and JSON, with a record a line, and tables with a header.  Those are CSV, or TSV, in which a
line is a row and a quote a character as any other.  Only line feeds, with or without a carriage return, end a line.  A
byte order mark is no text, and is written in tables alone: without it, Excel takes umlauts for Latin-1.  Parquet needs
pyarrow.
"""

import codecs
import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from model.files import on_one_line, without_end
from service.extras import how_to_install

_JSON_BLANKS = " \t\r\n"
_KINDS = {bool: "a boolean", list: "a list", dict: "an object"}


@dataclass(frozen=True, slots=True)
class BulkPart:
    """A stretch of the input."""

    index: int
    start: int  # bytes from the beginning of the file; of Parquet, rows
    count: int  # records


class Format(Protocol):
    """One way to keep texts in a file."""

    def plan(self, file: Path, part_size: int) -> Iterator[BulkPart]:
        """Cut the file into parts of so many records, the last one shorter.

        All of the file is read, so that nothing is translated of a file whose end cannot be.

        Raises:
            ValueError: it is not of this format, or has no place for the translations; the message names file and line.
        """
        ...

    def texts(self, file: Path, parts: Sequence[BulkPart]) -> Iterator[str]:
        """Return the text of each record of these parts, which are in order; a blank record has a blank one."""
        ...

    def encode(self, file: Path, part: BulkPart, translations: Sequence[str]) -> bytes:
        """Return the output of a part."""
        ...

    def join(self, source: Path, parts: Iterable[Path], output: BinaryIO) -> None:
        """Write all parts' outputs one after another, as one file has them."""
        output.writelines(part.read_bytes() for part in parts)


def parts_of(ends: Iterable[int], part_size: int, start: int = 0) -> Iterator[BulkPart]:
    """Cut records that lie one after another into parts, given where each ends and the first one begins."""
    index, count = 0, 0
    for end in ends:
        count += 1
        if count == part_size:
            yield BulkPart(index, start, count)
            index, start, count = index + 1, end, 0
    if count:
        yield BulkPart(index, start, count)


def target_exists(what: str, target: str) -> ValueError:
    """Return the error of a file that has a column or field where the translations would go."""
    return ValueError(f"{what} {target!r} already: give another name for the translations with --target")


def text_of(value: object) -> str:
    """Return what is to be translated of a value: a text; of None, nothing."""
    if value is None:
        return ""
    if not isinstance(value, str):
        kind = _KINDS.get(type(value), type(value).__name__)
        raise ValueError(f"{kind} is neither text nor a number")  # noqa: TRY004 - of the file, as other ones
    return value


class FileLine(NamedTuple):
    """A line of a UTF-8 file, with its line feed."""

    text: str
    number: int  # counted from where reading began, the first one is 1
    end: int  # where the next one begins, in bytes from the beginning of the file


def utf8_lines(stream: io.BufferedReader, file: Path) -> Iterator[FileLine]:
    """Yield the lines from where the stream is; ValueError names a line that is no UTF-8."""
    end = stream.tell()
    for number, line in enumerate(stream, start=1):
        try:
            text = line.decode("utf-8-sig" if end == 0 else "utf-8")
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise ValueError(f"{file}, line {number}: byte 0x{byte:02x} is no UTF-8") from error
        end += len(line)
        yield FileLine(text, number, end)


@dataclass(frozen=True, slots=True)
class Lines(Format):
    """A text a line; the translation of an empty line is an empty line."""

    def plan(self, file: Path, part_size: int) -> Iterator[BulkPart]:
        with file.open("rb") as stream:
            yield from parts_of((line.end for line in utf8_lines(stream, file)), part_size)

    def texts(self, file: Path, parts: Sequence[BulkPart]) -> Iterator[str]:
        return _lines(file, parts)

    def encode(self, file: Path, part: BulkPart, translations: Sequence[str]) -> bytes:
        return "".join(f"{on_one_line(translation)}\n" for translation in translations).encode()


@dataclass(frozen=True, slots=True)
class JsonLines(Format):
    """An object a line, with the text in one field; the translation is added as another, behind them.

    The others keep their bytes: a number may have more digits than any number of Python's.  Blank lines stay.
    """

    field: str
    target: str

    def plan(self, file: Path, part_size: int) -> Iterator[BulkPart]:
        with file.open("rb") as stream:
            yield from parts_of((self._checked(line, file).end for line in utf8_lines(stream, file)), part_size)

    def texts(self, file: Path, parts: Sequence[BulkPart]) -> Iterator[str]:
        for line in _lines(file, parts):
            yield text_of(_parsed(line)[self.field]) if line.strip() else ""

    def encode(self, file: Path, part: BulkPart, translations: Sequence[str]) -> bytes:
        written: list[str] = []
        for line, translation in zip(_lines(file, [part]), translations, strict=True):
            if line.strip():
                fields = line.rstrip(_JSON_BLANKS).removesuffix("}").rstrip(_JSON_BLANKS)  # one at least: the text's
                target, text = (json.dumps(value, ensure_ascii=False) for value in (self.target, translation))
                line = f"{fields}, {target}: {text}}}"  # noqa: PLW2901 - the same line with one field more
            written.append(f"{line}\n")
        # A lone surrogate, which UTF-8 cannot carry, is written as JSON does: its escapes are Python's.
        return "".join(written).encode("utf-8", "backslashreplace")

    def _checked(self, line: FileLine, file: Path) -> FileLine:
        if not line.text.strip():
            return line
        where = f"{file}, line {line.number}"
        try:
            record = _parsed(line.text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: no JSON: {error}") from error
        if not isinstance(record, dict) or self.field not in record:
            raise ValueError(f"{where}: no object with a field {self.field!r}: {line.text.strip()[:80]!a}")
        if self.target in record:
            raise target_exists(f"{where}: there is a field", self.target)
        try:
            text_of(record[self.field])
        except ValueError as error:
            raise ValueError(f"{where}: the field {self.field!r}: {error}") from error
        return line


def _parsed(line: str) -> Any:
    """Return what a line of JSON says; numbers as they are written, as text."""
    return json.loads(line, parse_int=str, parse_float=str, parse_constant=str)


def _lines(file: Path, parts: Iterable[BulkPart]) -> Iterator[str]:
    """Return the lines of these parts, without their ends."""
    with file.open("rb") as stream:
        for part in parts:
            stream.seek(part.start)
            for line in islice(utf8_lines(stream, file), part.count):
                yield without_end(line.text)


# Of a field; Python's own limit is 131,072, less than a long page of HTML has.  A quote that nobody closes ends here.
MAX_CHARACTERS = 16 << 20

TAB = "\t"


class _Unquoted(csv.Dialect):
    """text/tab-separated-values as it is registered, and as corpora have it.

    Were quotes taken for those of CSV, a text in quotes would lose them, and one that nobody closes would join lines.
    """

    delimiter = TAB
    quoting = csv.QUOTE_NONE
    lineterminator = "\r\n"


# With both characters of a line's end, as csv quotes what is of one: with "\n" alone it leaves a "\r" bare, before
# Python 3.13 at least.
_DIALECTS: dict[str, type[csv.Dialect]] = {",": csv.excel, TAB: _Unquoted}


class _Row(NamedTuple):
    cells: list[str]
    line: int  # at which it begins
    end: int  # where the next one begins, in bytes from the beginning of the file


def _rows(stream: io.BufferedReader, file: Path, delimiter: str) -> Iterator[_Row]:
    """Yield the rows from where the stream is; ValueError names the first line of a row that cannot be read."""
    csv.field_size_limit(MAX_CHARACTERS)  # of the whole process; here, as workers on Ray are processes of their own
    latest = FileLine("", 0, stream.tell())
    is_at_end = False

    def lines() -> Iterator[str]:
        nonlocal latest, is_at_end
        for latest in utf8_lines(stream, file):
            yield latest.text
        is_at_end = True

    reader = csv.reader(lines(), _DIALECTS[delimiter])
    while True:
        line = latest.number + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            reason = str(error)
            if "field limit" in reason:
                reason = f"a field has more than {MAX_CHARACTERS:,} characters: is its quote closed?"
            elif "new-line character" in reason:
                reason = "a carriage return without a line feed and outside quotes: lines must end with line feeds"
            raise ValueError(f"{file}, line {line}: {reason}") from error
        if is_at_end:  # csv asks for a line after the last one only where a cell goes on, and ends it there
            raise ValueError(f"{file}, line {line}: a quote is not closed: all that follows is in one cell")
        yield _Row(cells, line, latest.end)


@dataclass(frozen=True, slots=True)
class Table(Format):
    """Rows with a header; the translation is added as the last column."""

    column: str
    target: str
    delimiter: str

    def plan(self, file: Path, part_size: int) -> Iterator[BulkPart]:
        with file.open("rb") as stream:
            rows = _rows(stream, file, self.delimiter)
            header = self._header(rows, file)
            yield from parts_of(self._checked_ends(rows, header, file), part_size, start=header.end)

    def texts(self, file: Path, parts: Sequence[BulkPart]) -> Iterator[str]:
        index = self._columns(file).index(self.column)
        return (row[index] if row else "" for row in self._rows(file, parts))

    def encode(self, file: Path, part: BulkPart, translations: Sequence[str]) -> bytes:
        pairs = zip(self._rows(file, [part]), translations, strict=True)
        return self._bytes([*row, self._cell(text)] if row else row for row, text in pairs)

    def join(self, source: Path, parts: Iterable[Path], output: BinaryIO) -> None:
        with source.open("rb") as stream:
            has_mark = stream.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8
        output.write(codecs.BOM_UTF8 if has_mark else b"")
        output.write(self._bytes([[*self._columns(source), self._cell(self.target)]]))
        Format.join(self, source, parts, output)

    def _rows(self, file: Path, parts: Iterable[BulkPart]) -> Iterator[list[str]]:
        with file.open("rb") as stream:
            for part in parts:
                stream.seek(part.start)
                for row in islice(_rows(stream, file, self.delimiter), part.count):
                    yield row.cells

    def _bytes(self, rows: Iterable[Sequence[str]]) -> bytes:
        buffer = _Rewritten()
        csv.writer(buffer, _DIALECTS[self.delimiter]).writerows(rows)
        return buffer.getvalue().encode()

    def _cell(self, text: str) -> str:
        """Return what can be written into a cell: of TSV, what stays in it."""
        return on_one_line(text.replace(TAB, " ")) if self.delimiter == TAB else text

    def _columns(self, file: Path) -> list[str]:
        with file.open("rb") as stream:
            return self._header(_rows(stream, file, self.delimiter), file).cells

    def _header(self, rows: Iterator[_Row], file: Path) -> _Row:
        header = next(rows, _Row([], 1, 0))
        if self.column not in header.cells:
            columns = ", ".join(map(repr, header.cells)) or "none"
            raise ValueError(f"{file} has no column {self.column!r}, there are {columns}")
        if self.target in header.cells:
            raise target_exists(f"{file} has a column", self.target)
        return header

    def _checked_ends(self, rows: Iterable[_Row], header: _Row, file: Path) -> Iterator[int]:
        """Refuse another number of columns: the translation would not be in its own."""
        for row in rows:
            if row.cells and len(row.cells) != len(header.cells):
                note = "; quotes in it are text, and join no lines" if self.delimiter == TAB else ""
                columns = f"{len(row.cells)} columns, the header {len(header.cells)}"
                raise ValueError(f"{file}, line {row.line}: a row has {columns}: {ascii(row.cells)[:80]}{note}")
            yield row.end


class _Rewritten(io.StringIO):
    """Takes what csv writes, a row at a time, and ends each with a line feed alone."""

    def write(self, row: str) -> int:
        return super().write(f"{without_end(row)}\n")


_BATCH_ROWS = 1_000  # of Parquet, in memory at a time while texts are read


@dataclass(frozen=True, slots=True)
class Parquet(Format):
    """Columns; the translation is added as the last one."""

    column: str
    target: str

    def plan(self, file: Path, part_size: int) -> Iterator[BulkPart]:
        with _opened(file) as source:
            schema, num_rows = source.schema_arrow, source.metadata.num_rows
        if self.column not in schema.names:
            raise ValueError(f"{file} has no column {self.column!r}, there are {', '.join(map(repr, schema.names))}")
        if self.target in schema.names:
            raise target_exists(f"{file} has a column", self.target)
        kind = schema.field(schema.names.index(self.column)).type
        plain = kind.value_type if str(kind).startswith("dictionary") else kind
        if str(plain) not in {"string", "large_string", "string_view", "null"}:
            raise ValueError(f"{file}: the column {self.column!r} is of type {kind}, which is no text")
        for index, start in enumerate(range(0, num_rows, part_size)):
            yield BulkPart(index, start, min(part_size, num_rows - start))

    def texts(self, file: Path, parts: Sequence[BulkPart]) -> Iterator[str]:
        """Read one column of the row groups that have a part, each once and from front to back."""
        begin = 0
        with _opened(file) as source:
            for group in range(source.num_row_groups):
                end = begin + source.metadata.row_group(group).num_rows
                inside = [part for part in parts if part.start < end and part.start + part.count > begin]
                batches = source.iter_batches(_BATCH_ROWS, row_groups=[group], columns=[self.column]) if inside else ()
                for batch in batches:
                    for part in inside:
                        first, last = max(part.start - begin, 0), min(part.start + part.count - begin, batch.num_rows)
                        if first < last:
                            yield from self._texts(batch.column(0).slice(first, last - first), file)
                    begin += batch.num_rows
                begin = end

    def _texts(self, values: Any, file: Path) -> list[str]:
        try:
            return [text_of(value) for value in values.to_pylist()]
        except UnicodeDecodeError as error:
            raise ValueError(f"{file}, column {self.column!r}: a string is no UTF-8: {error}") from error

    def encode(self, file: Path, part: BulkPart, translations: Sequence[str]) -> bytes:
        """Return the translations alone: the other columns are taken from the source when the parts are joined."""
        return json.dumps(list(translations), ensure_ascii=False).encode()

    def join(self, source: Path, parts: Iterable[Path], output: BinaryIO) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        texts = (text for part in parts for text in json.loads(part.read_bytes()))
        with _opened(source) as file:
            schema = file.schema_arrow.append(pa.field(self.target, pa.string()))
            with pq.ParquetWriter(output, schema) as writer:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group)
                    column = pa.array([next(texts) for _ in range(table.num_rows)], pa.string())
                    writer.write_table(table.append_column(self.target, column).cast(schema))


def _opened(file: Path) -> Any:
    """Open a `ParquetFile`, which is to be closed; raises ValueError if it is none, or there is no pyarrow."""
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ValueError(f"Parquet files need pyarrow: {how_to_install('bulk')}") from error
    try:
        return pq.ParquetFile(file)
    except ValueError as error:  # pyarrow's own, which does not name the file
        raise ValueError(f"{file} cannot be read as Parquet: {error}") from error
