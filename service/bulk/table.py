"""Tables with a header: CSV, and TSV, in which a line is a row and a quote a character as any other.

Blank rows stay as they are.  A byte order mark stays, too: Excel writes one, and without it takes umlauts for Latin-1.
"""

import codecs
import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from service.bulk.lines import Utf8Lines
from service.bulk.parts import Part, concatenate, parts_of, target_exists
from service.text_lines import on_one_line, without_end

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


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with a header; the translation is added as the last column."""

    column: str
    target: str
    delimiter: str

    def plan(self, file: Path, part_size: int) -> Iterator[Part]:
        with file.open("rb") as stream:
            rows = _Rows(stream, file, self.delimiter)
            header = self._checked(next(rows, []), file)
            yield from parts_of(_ends(rows, len(header), file), part_size, start=rows.offset)

    def texts(self, file: Path, parts: Sequence[Part]) -> Iterator[str]:
        index = self._header(file).index(self.column)
        return (row[index] if row else "" for row in self._rows(file, parts))

    def encode(self, file: Path, part: Part, translations: Sequence[str]) -> bytes:
        pairs = zip(self._rows(file, [part]), translations, strict=True)
        return self._bytes([*row, self._cell(text)] if row else row for row, text in pairs)

    def join(self, source: Path, parts: Iterable[Path], output: Path) -> None:
        head = self._bytes([[*self._header(source), self._cell(self.target)]])
        concatenate(_byte_order_mark(source) + head, parts, output)

    def _rows(self, file: Path, parts: Iterable[Part]) -> Iterator[list[str]]:
        with file.open("rb") as stream:
            for part in parts:
                stream.seek(part.start)
                yield from islice(_Rows(stream, file, self.delimiter), part.count)

    def _bytes(self, rows: Iterable[Sequence[str]]) -> bytes:
        buffer = _Rewritten()
        csv.writer(buffer, _DIALECTS[self.delimiter]).writerows(rows)
        return buffer.getvalue().encode()

    def _cell(self, text: str) -> str:
        """What can be written into a cell: of TSV, what stays in it."""
        return on_one_line(text.replace(TAB, " ")) if self.delimiter == TAB else text

    def _header(self, file: Path) -> list[str]:
        with file.open("rb") as stream:
            return self._checked(next(_Rows(stream, file, self.delimiter), []), file)

    def _checked(self, header: list[str], file: Path) -> list[str]:
        if self.column not in header:
            raise ValueError(
                f"{file} has no column {self.column!r}, there are {', '.join(map(repr, header)) or 'none'}"
            )
        if self.target in header:
            raise target_exists(f"{file} has a column", self.target)
        return header


class _Rewritten(io.StringIO):
    """Takes what csv writes, a row at a time, and ends each with a line feed alone."""

    def write(self, row: str) -> int:
        return super().write(f"{without_end(row)}\n")


class _Rows:
    """The rows of a table from where the stream is, and where the next one begins.

    Raises:
        ValueError: a row cannot be read; the message names its first line.
    """

    def __init__(self, stream: io.BufferedReader, file: Path, delimiter: str) -> None:
        csv.field_size_limit(MAX_CHARACTERS)  # of the whole process; here, as workers on Ray are processes of their own
        self._file = file
        self._lines = Utf8Lines(stream, file)
        self._is_at_end = False
        self._rows = csv.reader(self._lines_until_end(), _DIALECTS[delimiter])
        self.note = "; quotes in it are text, and join no lines" if delimiter == TAB else ""
        self.line = 0  # at which the latest row begins

    @property
    def offset(self) -> int:
        """Bytes from the beginning of the file."""
        return self._lines.offset

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        self.line = self._lines.number + 1
        try:
            row = next(self._rows)
        except csv.Error as error:
            raise ValueError(f"{self._file}, line {self.line}: {_reason(error)}") from error
        if self._is_at_end:  # csv asks for a line after the last one only where a cell goes on, and ends it there
            raise ValueError(f"{self._file}, line {self.line}: a quote is not closed: all that follows is in one cell")
        return row

    def _lines_until_end(self) -> Iterator[str]:
        yield from self._lines
        self._is_at_end = True


def _ends(rows: _Rows, num_columns: int, file: Path) -> Iterator[int]:
    """Where each row ends; a translation beside another number of columns would not be in its own."""
    for row in rows:
        if row and len(row) != num_columns:
            where, columns = f"{file}, line {rows.line}", f"{len(row)} columns, the header {num_columns}"
            raise ValueError(f"{where}: a row has {columns}: {ascii(row)[:80]}{rows.note}")
        yield rows.offset


def _reason(error: csv.Error) -> str:
    said = str(error)
    if "field limit" in said:
        return f"a field has more than {MAX_CHARACTERS:,} characters: is its quote closed?"
    if "new-line character" in said:
        return "a carriage return without a line feed and outside quotes: lines must end with line feeds"
    return said


def _byte_order_mark(file: Path) -> bytes:
    with file.open("rb") as stream:
        return codecs.BOM_UTF8 if stream.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else b""
