"""Files with a record a line: plain lines, and JSON.

Only line feeds, with or without a carriage return, end a line.  A byte order mark is no text, and is not written.
"""

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

from service.bulk.parts import Part, concatenate, parts_of, target_exists
from service.text_lines import on_one_line, without_end

_JSON_BLANKS = " \t\r\n"
_KINDS = {bool: "a boolean", list: "a list", dict: "an object"}


class Utf8Lines:
    """The lines of a UTF-8 file with their ends, from where the stream is; where the next one begins, and its number.

    Raises:
        ValueError: a line is no UTF-8; the message names it.
    """

    def __init__(self, stream: io.BufferedReader, file: Path) -> None:
        self._stream = stream
        self._file = file
        self.offset = stream.tell()  # bytes from the beginning of the file
        self.number = 0  # lines read

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._stream.readline()
        if not line:
            raise StopIteration
        is_first = self.offset == 0
        self.offset += len(line)
        self.number += 1
        try:
            return line.decode("utf-8-sig" if is_first else "utf-8")
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise ValueError(f"{self._file}, line {self.number}: byte 0x{byte:02x} is no UTF-8") from error


@dataclass(frozen=True, slots=True)
class Lines:
    """A text a line; the translation of an empty line is an empty line."""

    def plan(self, file: Path, part_size: int) -> Iterator[Part]:
        with file.open("rb") as stream:
            lines = Utf8Lines(stream, file)
            yield from parts_of((lines.offset for _ in lines), part_size)

    def texts(self, file: Path, parts: Sequence[Part]) -> Iterator[str]:
        return _lines(file, parts)

    def encode(self, file: Path, part: Part, translations: Sequence[str]) -> bytes:
        return "".join(f"{on_one_line(translation)}\n" for translation in translations).encode()

    def join(self, source: Path, parts: Iterable[Path], output: Path) -> None:
        concatenate(b"", parts, output)


@dataclass(frozen=True, slots=True)
class JsonLines:
    """An object a line, with the text in one field; the translation is added as another, behind them.

    The others keep their bytes: a number may have more digits than any number of Python's.  Blank lines stay.
    """

    field: str
    target: str

    def plan(self, file: Path, part_size: int) -> Iterator[Part]:
        with file.open("rb") as stream:
            yield from parts_of(self._ends(Utf8Lines(stream, file), file), part_size)

    def texts(self, file: Path, parts: Sequence[Part]) -> Iterator[str]:
        for line in _lines(file, parts):
            yield text_of(_parsed(line)[self.field]) if line.strip() else ""

    def encode(self, file: Path, part: Part, translations: Sequence[str]) -> bytes:
        pairs = zip(_lines(file, [part]), translations, strict=True)
        # A lone surrogate, which UTF-8 cannot carry, is written as JSON does: its escapes are Python's.
        return "".join(f"{self._with(line, text)}\n" for line, text in pairs).encode("utf-8", "backslashreplace")

    def join(self, source: Path, parts: Iterable[Path], output: Path) -> None:
        concatenate(b"", parts, output)

    def _ends(self, lines: Utf8Lines, file: Path) -> Iterator[int]:
        for line in lines:
            if line.strip():
                self._check(line, f"{file}, line {lines.number}")
            yield lines.offset

    def _check(self, line: str, where: str) -> None:
        try:
            record = _parsed(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: no JSON: {error}") from error
        if not isinstance(record, dict) or self.field not in record:
            raise ValueError(f"{where}: no object with a field {self.field!r}: {line.strip()[:80]!a}")
        if self.target in record:
            raise target_exists(f"{where}: there is a field", self.target)
        try:
            text_of(record[self.field])
        except ValueError as error:
            raise ValueError(f"{where}: the field {self.field!r}: {error}") from error

    def _with(self, line: str, translation: str) -> str:
        if not line.strip():
            return line
        fields = line.rstrip(_JSON_BLANKS).removesuffix("}").rstrip(_JSON_BLANKS)  # one at least, that of the text
        target, text = (json.dumps(value, ensure_ascii=False) for value in (self.target, translation))
        return f"{fields}, {target}: {text}}}"


def _parsed(line: str) -> Any:
    """What a line of JSON says; numbers as they are written, as text."""
    return json.loads(line, parse_int=str, parse_float=str, parse_constant=str)


def text_of(value: object) -> str:
    """What is to be translated of a value: text, also in bytes, or a number; of none, nothing.

    Raises:
        ValueError: it is neither; the message says what it is.
    """
    if value is None:
        return ""
    if isinstance(value, bytes):
        return _decoded(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        kind = _KINDS.get(type(value), type(value).__name__)
        raise ValueError(f"{kind} is neither text nor a number")  # noqa: TRY004 - of the file, as other ones
    return str(value)


def _decoded(value: bytes) -> str:
    """As UTF-8.

    Raises:
        ValueError: it is none; the message names the byte.
    """
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte 0x{value[error.start]:02x} is no UTF-8") from error


def _lines(file: Path, parts: Iterable[Part]) -> Iterator[str]:
    """The lines of these parts, without their ends."""
    with file.open("rb") as stream:
        for part in parts:
            stream.seek(part.start)
            for line in islice(Utf8Lines(stream, file), part.count):
                yield without_end(line)
