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
from typing import BinaryIO, NamedTuple

from model.files import on_one_line, without_end
from service.tools.bulk.formats import BulkPart, FileLine, concatenate, parts_of, target_exists, utf8_lines

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
class Table:
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
        head = self._bytes([[*self._columns(source), self._cell(self.target)]])
        concatenate((codecs.BOM_UTF8 if has_mark else b"") + head, parts, output)

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
