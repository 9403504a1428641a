"""A file as units to translate, the way back to a file, and a report of what went wrong.

Knows no format and no translator.  A file without a translation is written byte for byte as it was.  The report is a
list for people and programs.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from typing import Generic, NamedTuple, NotRequired, TypeAlias, TypedDict, TypeVar

from service.records import TextFormat, Translation, WarningKind


class Unit(NamedTuple):
    """A piece of a file that is translated by itself."""

    text: str
    format: TextFormat
    line: int  # where it begins in the file, from 1; in a part of a package, the number of the unit
    part: str = ""  # of a package


class Notice(NamedTuple):
    """A place of a file that stays as it is, and why."""

    line: int  # as of units
    message: str = "the translation does not fit into the markup of its place, which stays as it was"
    source: str = ""  # empty: that of the unit in this line
    part: str = ""


Source: TypeAlias = tuple[tuple[int, int] | str, ...]  # pieces of a file, by their code points, and what is between


class Slot(NamedTuple):
    """A place in a file that is written anew, code points begin <= i < end; other slots may lie in its pieces."""

    begin: int
    end: int
    text: str | Source


class DoesNotFit(ValueError):
    """A translation cannot be written so that a reader finds the markup of its source."""


class Answer(NamedTuple):
    """The translation of a unit."""

    text: str  # the best translation; the source, where it failed
    translation: Translation


class Passage(NamedTuple):
    """Units that are written together; most are one unit at one place."""

    units: tuple[Unit, ...]
    write: Callable[[Sequence[Answer]], Iterable[Slot]]  # raises DoesNotFit
    is_beside: bool = False  # whether translations stand beside their source: these are written even if they are alike


def passage_at(begin: int, end: int, unit: Unit, write: Callable[[str], str] = str) -> Passage:
    """Return the passage of a unit at one place.

    Args:
        write: translation -> what stands at the place; may raise DoesNotFit.
    """
    return Passage((unit,), lambda answers: (Slot(begin, end, write(answers[0].text)),))


@dataclass(slots=True)
class LanguageMark:
    """A place of a part that says its language."""

    name: str  # of the attribute; empty: it is the content of an element
    language: str  # that it or the attribute before it says
    begin: int
    end: int
    written: str  # what is written there


Content = TypeVar("Content")


class Written(NamedTuple, Generic[Content]):
    """A file, or the text of a part, with its translations in."""

    content: Content
    notices: tuple[Notice, ...] = ()


@dataclass
class Part:
    """A text that was read: a part of a package, or all of a file of text."""

    text: str
    passages: list[Passage] = field(default_factory=list)
    lost: list[Notice] = field(default_factory=list)  # of what is language and stays
    also: list[Slot] = field(default_factory=list)  # what is written where any passage is
    languages: list[LanguageMark] = field(default_factory=list)  # what is written anyway

    @property
    def units(self) -> tuple[Unit, ...]:
        """All units, in order."""
        return tuple(unit for passage in self.passages for unit in passage.units)

    def write(self, translations: Sequence[Translation]) -> Written[str]:
        """Return the text with a translation for each unit, in order; where one failed, the unit stays as it is."""
        slots: list[Slot] = []
        notices = list(self.lost)
        rest = iter(translations)
        for units, write, is_beside in self.passages:
            answers = [
                Answer(unit.text if one.error is not None else one.text, one)
                for unit, one in zip(units, rest, strict=False)
            ]
            if is_beside:
                is_kept = any(answer.translation.error is not None for answer in answers)
            else:
                is_kept = [answer.text for answer in answers] == [unit.text for unit in units]
            try:
                slots += () if is_kept else write(answers)
            except DoesNotFit:
                notices.append(Notice(units[0].line))
        kept = self.fitting(slots)
        if left := sorted({slot.begin for slot in slots} - {slot.begin for slot in kept}):
            lines = Lines(self.text)
            notices += (Notice(lines.number(begin)) for begin in left)
        marks = (Slot(one.begin, one.end, one.written) for one in self.languages)
        return Written(filled(self.text, [*marks, *kept, *(self.also if kept else ())]), tuple(notices))

    def fitting(self, slots: list[Slot]) -> list[Slot]:
        """Return those slots with which the text has the same markup: in most formats, all."""
        return slots


@dataclass(frozen=True, slots=True)
class Draft:
    """A file that was read, in parts; a file of text is one part without a name."""

    parts: Mapping[str, Part]
    join: Callable[[Mapping[str, str]], bytes]  # the texts of all parts -> the file
    remarks: tuple[str, ...] = ()  # what a user should know of what stays as it is

    @property
    def units(self) -> tuple[Unit, ...]:
        """All units, part by part."""
        return tuple(unit._replace(part=name) for name, part in self.parts.items() for unit in part.units)

    def write(self, translations: Sequence[Translation]) -> Written[bytes]:
        """Return the file with a translation for each unit, in order."""
        rest = iter(translations)
        texts: dict[str, str] = {}
        notices: list[Notice] = []
        for name, part in self.parts.items():
            written = part.write([translation for _, translation in zip(part.units, rest, strict=False)])
            texts[name] = written.content
            notices += (notice._replace(part=name) for notice in written.notices)
        return Written(self.join(texts), tuple(notices))


def filled(source: str, slots: Iterable[Slot]) -> str:
    """Return the source with each slot's text in its place; slots are disjoint, or one is in a piece of another."""
    ordered = sorted(slots, key=lambda slot: (slot.begin, slot.begin != slot.end, -slot.end))
    begins = [slot.begin for slot in ordered]

    def between(begin: int, end: int) -> Iterator[str]:
        for number in range(bisect_left(begins, begin), len(ordered)):
            slot = ordered[number]
            if slot.begin > end:
                break
            if begin <= slot.begin and slot.end <= end:  # neither in the last one nor around this piece
                yield source[begin : slot.begin]
                for piece in (slot.text,) if isinstance(slot.text, str) else slot.text:
                    yield from (piece,) if isinstance(piece, str) else between(*piece)
                begin = slot.end
        yield source[begin:end]

    return "".join(between(0, len(source)))


class Lines:
    """The lines of a text, found once for all of its positions."""

    def __init__(self, text: str) -> None:
        """Find them."""
        self._ends = [match.start() for match in re.finditer("\n", text)]

    def number(self, position: int) -> int:
        """Return the number, from 1, of the line in which the position is."""
        return bisect_left(self._ends, position) + 1


def has_language(text: str) -> bool:
    """Whether there is anything to translate: a letter."""
    return any(map(str.isalpha, text))


_TAG = re.compile(r"<[^<>]*>")


class Line(TypedDict):
    """A warning and its place."""

    kind: WarningKind
    message: str
    part: NotRequired[str]  # of a package
    line: int  # in the file; in a part, the number of the paragraph
    source: str  # the segment
    translation: NotRequired[str]


def report_of(units: Sequence[Unit], translations: Sequence[Translation], notices: Sequence[Notice]) -> list[Line]:
    """Return the warnings of all segments and the notices of the file, in the order of the file."""
    found: list[tuple[str, Line]] = []  # by part
    for unit, translation in zip(units, translations, strict=True):
        targets = {segment.source: segment.target for segment in translation.segments}
        for warning in translation.warnings:
            number = unit.line if unit.part else unit.line + unit.text.count("\n", 0, warning.source.begin)
            source = _shown(unit.text[slice(*warning.source)], unit)
            line = Line(kind=warning.kind, message=warning.message, line=number, source=source)
            if warning.source in targets:
                line["translation"] = _shown(translation.text[slice(*targets[warning.source])], unit)
            found.append((unit.part, line))
    sources = {(unit.part, unit.line): _shown(unit.text, unit) for unit in units} if notices else {}
    for number, message, given, part in notices:
        source = given or sources.get((part, number), "")
        found.append((part, Line(kind=WarningKind.NOT_TRANSLATED, message=message, line=number, source=source)))
    order = {part: number for number, part in enumerate(dict.fromkeys(unit.part for unit in units))}
    found.sort(key=lambda one: (order.get(one[0], 0), one[1]["line"]))
    return [Line(**line, part=part) if part else line for part, line in found]


def place_of(line: Line) -> str:
    """Return where a line of the report is."""
    return f"{line['part']} {line['line']}" if "part" in line else str(line["line"])


def _shown(text: str, unit: Unit) -> str:
    """Return what a reader sees of a text with markup."""
    return text if unit.format is TextFormat.PLAIN else unescape(_TAG.sub("", text))
