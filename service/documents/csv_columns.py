"""CSV: a column of the source language fills one of the target's; without these, cells are translated in place."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from service.documents.draft import Draft, Lines
from service.documents.messages import Message, draft_of_messages, is_language

_SOURCE, _TARGET = {"source", "source text", "original"}, {"target", "target text", "translation"}


class _Cell(NamedTuple):
    begin: int
    end: int
    text: str


def read(text: str, target_language: str = "") -> Draft:
    """Return the draft of a file; raises ValueError if its quotes do not match."""
    first = text.partition("\n")[0]
    delimiter = max(",;\t|", key=first.count) if first else ","

    def write(new: str) -> str:
        needs_quotes = any(character in new for character in f'{delimiter}"\r\n') or new != new.strip()
        return '"' + new.replace('"', '""') + '"' if needs_quotes else new

    rows = list(_rows(text, delimiter))
    head = [cell.text.strip().lower() for cell in rows[0]] if rows else []
    source, target = _columns(head, target_language)
    messages: list[Message] = []
    for row in rows[1:] if target is not None or len(rows) > 1 else rows:
        if source is not None and target is not None:
            if max(source, target) < len(row) and not row[target].text.strip():
                messages.append(Message(row[target].begin, row[target].end, row[source].text, write))
        else:
            messages += (Message(cell.begin, cell.end, cell.text, write) for cell in row)
    return draft_of_messages(text, messages)


def _columns(head: list[str], target_language: str) -> tuple[int | None, int | None]:
    """Return the places of the columns with sources and targets, None where there are none."""
    tag = target_language.lower().replace("_", "-")
    names = [name.replace("_", "-") for name in head]
    target = next(
        (i for i, name in enumerate(names) if name in _TARGET or (tag and name in {tag, tag.partition("-")[0]})), None
    )
    sources = (i for i, name in enumerate(names) if i != target and (name in _SOURCE or is_language(name)))
    return next(sources, None), target


def _rows(text: str, delimiter: str) -> Iterator[list[_Cell]]:
    """Yield the cells of each row that is not empty."""
    cell = re.compile(rf'"(?P<quoted>(?:[^"]|"")*+)"|(?P<bare>(?!")[^{re.escape(delimiter)}\r\n]*+)')
    row: list[_Cell] = []
    at = 0
    while at <= len(text):
        match = cell.match(text, at)
        end = match.end() if match else at
        following = text[end : end + 1]
        if match is None or following not in ("", delimiter, "\r", "\n"):
            raise ValueError(f"line {Lines(text).number(at)} has a quote that is not closed, or text behind one")
        said = match["quoted"].replace('""', '"') if match["quoted"] is not None else match["bare"]
        row.append(_Cell(at, end, said))
        at = end + 1
        if following != delimiter:
            at += text.startswith("\r\n", end)
            if len(row) > 1 or row[0].text:
                yield row
            row = []
