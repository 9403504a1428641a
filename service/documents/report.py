"""What went wrong in the translation of a file, as a list that people and programs read."""

import re
from collections.abc import Sequence
from html import unescape
from typing import NotRequired, TypedDict

from service.documents.draft import Notice, Unit
from service.records import TextFormat, Translation, WarningKind

_TAG = re.compile(r"<[^<>]*>")
_NOT_WRITTEN = "the translation does not fit into the markup of its place, which stays as it was"


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
    lines: list[Line] = []
    for unit, translation in zip(units, translations, strict=True):
        targets = {segment.source: segment.target for segment in translation.segments}
        for warning in translation.warnings:
            line = unit.line if unit.part else unit.line + unit.text.count("\n", 0, warning.source.begin)
            source = _shown(unit.text[slice(*warning.source)], unit)
            found = Line(kind=warning.kind, message=warning.message, line=line, source=source)
            if warning.source in targets:
                found["translation"] = _shown(translation.text[slice(*targets[warning.source])], unit)
            lines.append(_in_part(found, unit.part))
    sources = {(unit.part, unit.line): _shown(unit.text, unit) for unit in units} if notices else {}
    for notice in notices:
        source = sources.get((notice.part, notice.line), "")
        found = Line(kind=notice.kind, message=_NOT_WRITTEN, line=notice.line, source=source)
        lines.append(_in_part(found, notice.part))
    order = {part: number for number, part in enumerate(dict.fromkeys(unit.part for unit in units))}
    return sorted(lines, key=lambda line: (order.get(line.get("part", ""), 0), line["line"]))


def place_of(line: Line) -> str:
    """Return where a line of the report is."""
    return f"{line['part']} {line['line']}" if "part" in line else str(line["line"])


def _shown(text: str, unit: Unit) -> str:
    """Return what a reader sees of a text with markup."""
    return text if unit.format is TextFormat.PLAIN else unescape(_TAG.sub("", text))


def _in_part(line: Line, part: str) -> Line:
    if part:
        line["part"] = part
    return line
