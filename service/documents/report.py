"""What went wrong in the translation of a file, as a list that people and programs read."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from service.documents.draft import Notice, Unit
from service.records import Translation, WarningKind

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
            found = Line(
                kind=warning.kind, message=warning.message, line=line, source=unit.text[slice(*warning.source)]
            )
            if warning.source in targets:
                found["translation"] = translation.text[slice(*targets[warning.source])]
            lines.append(_in_part(found, unit.part))
    for notice in notices:
        source = next((one.text for one in units if (one.part, one.line) == (notice.part, notice.line)), "")
        found = Line(kind=notice.kind, message=_NOT_WRITTEN, line=notice.line, source=source)
        lines.append(_in_part(found, notice.part))
    parts = list(dict.fromkeys(unit.part for unit in units))
    return sorted(lines, key=lambda line: (parts.index(line.get("part", "")), line["line"]))


def place_of(line: Line) -> str:
    """Return where a line of the report is."""
    return f"{line['part']} {line['line']}" if "part" in line else str(line["line"])


def _in_part(line: Line, part: str) -> Line:
    if part:
        line["part"] = part
    return line
