"""What a file is to a bulk translation: parts, which a format cuts it into, reads, writes and joins again.

A part is read from its place alone, so that any process can take any part.  What is written depends on the part alone,
so that whoever writes it, and however often, writes the same bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


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

        All of it is looked at, so that nothing is translated of a file whose end cannot be.

        Raises:
            ValueError: it is not of this format, or has no place for the translations; the message names file and line.
        """
        ...

    def texts(self, file: Path, parts: Sequence[Part]) -> Iterator[str]:
        """What is to be translated of these parts, a text for each record; of a blank record a blank text.

        Args:
            parts: in their order in the file; some may be left out.
        """
        ...

    def encode(self, file: Path, part: Part, translations: Sequence[str]) -> bytes:
        """The output of a part."""
        ...

    def join(self, source: Path, parts: Iterable[Path], output: Path) -> None:
        """One file of all parts' outputs."""
        ...


def parts_of(ends: Iterable[int], part_size: int, start: int = 0) -> Iterator[Part]:
    """Records that lie one after another, in parts.

    Args:
        ends: where each record ends.
        start: where the first one begins.
    """
    index, count = 0, 0
    for end in ends:
        count += 1
        if count == part_size:
            yield Part(index, start, count)
            index, start, count = index + 1, end, 0
    if count:
        yield Part(index, start, count)


def concatenate(head: bytes, parts: Iterable[Path], output: Path) -> None:
    """A file of the head and all parts, one after another."""
    with output.open("wb") as stream:
        stream.write(head)
        for part in parts:
            stream.write(part.read_bytes())


def target_exists(what: str, target: str) -> ValueError:
    """The error of a file that has a column or field where the translations would go."""
    return ValueError(f"{what} {target!r} already: give another name for the translations with --target")
