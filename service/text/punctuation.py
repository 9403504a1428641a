"""Runs of punctuation and spaces that models shorten, lengthen or stumble over: `Buy now!!!`, `What?!`, `Save As...`.

    eased("Save As...")                           # -> "Save As", which the model gets
    as_in_source("Save As...", "Speichern als.")  # -> "Speichern als..."

No-break spaces, which models turn into ordinary ones, come back between words that a translation has kept.
Pure; in linear time.
"""

import re
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from service.records import Span
from service.text.alignment import Anchor, Move, mover

_CLOSING = "\"'”’“‘»«)\\]"
_RUN = re.compile(rf"([!?.…]{{2,}}+|…|-{{2,}}+)([{_CLOSING}]*+)\Z")
_END = re.compile(rf"[\s!?.…。！？-]++([{_CLOSING}]*+)\Z")
_DASHES, _DASH = re.compile(r"(?<=\s)--(?=\s)"), re.compile(r"(?<=\s)–(?=\s)")
_LONGEST = 60  # characters of a run with what closes behind it


class AsInSource(NamedTuple):
    """A translation with the punctuation of its source."""

    text: str
    source: Move | None  # from the eased source to the source; None: its places are the same
    target: Move | None  # from the translation as the model gave it


def eased(text: str, spans: Sequence[Span] = (), *, has_tags: bool = False) -> str:
    """Return a text as models read it best: without the points that end it, with one mark for a run, – for --.

    Places stay, but behind a --, which stays beside spans and tags.
    """
    run = _run(text, spans)
    if run and not run[2] and (words := text[: run.start()].rstrip()):
        text = words + ("?" if "?" in run[1] else "!" if "!" in run[1] else "")
    return _DASHES.sub("–", text) if _has_dashes(text) and not (spans or has_tags) else text


def as_in_source(
    source: str, target: str, spans: Sequence[Span] = (), *, has_tags: bool = False, kept: Sequence[str] = ()
) -> AsInSource:
    """Return the translation of an eased text with the run at its end and the dashes of its source.

    Args:
        source: the text before it was eased.
        target: the translation.
        spans: as for `eased`.
        has_tags: as well.
        kept: parts that the translation has to have as it has them.
    """
    if run := _run(source, spans):
        end = _END.search(target, max(0, len(target) - _LONGEST))
        closing = end[1] if end else ""
        words = target[: end.start()] if end else target
        space = " " if run[1][0] == "-" and source[: run.start()][-1:].isspace() else ""
        changed = f"{words}{space}{run[1]}{closing}"
        if words.strip() and (closing or not run[2]) and all(changed.count(one) == target.count(one) for one in kept):
            target = changed
    if not _has_dashes(source) or spans or has_tags:
        return AsInSource(target, None, None)
    written = [Anchor(Span(at - n, at - n + 1), Span(at, at + 2)) for n, at in enumerate(_starts(_DASHES, source))]
    given = [Anchor(Span(at, at + 1), Span(at + n, at + n + 2)) for n, at in enumerate(_starts(_DASH, target))]
    return AsInSource(_DASH.sub("--", target), mover(written), mover(given))


def _has_dashes(text: str) -> bool:
    return "--" in text and "–" not in text and _DASHES.search(text) is not None


def _starts(pattern: re.Pattern[str], text: str) -> list[int]:
    return [match.start() for match in pattern.finditer(text)]


def _run(text: str, spans: Sequence[Span]) -> re.Match[str] | None:
    """Return the run at the end of a text, and what closes behind it, unless it is part of a span."""
    run = _RUN.search(text, max(0, len(text) - _LONGEST)) if text[-1:] in "!?.…-\"'”’“‘»«)]" else None
    return None if run is None or (spans and spans[-1].end > run.start()) else run


_NO_BREAKS = "\u00a0\u2007\u202f"
_NO_BREAK = re.compile(rf"(?<=\S)([{_NO_BREAKS}])(?=\S)")
_SPACES = re.compile(r"(?<=\S) (?=\S)")
_REACH = 40  # characters of a neighbour that are compared
_DIGITS = re.compile(r"\D+")


def with_no_break_spaces(source: str, target: str) -> str:
    """Return a translation with the no-break spaces of its source; its length does not change.

    One stands between the same two words, behind the same number ("10 kg"), or else before the same number or name
    ("§ 5", "Mr. Miller").  Where neither neighbour is there any more, the space stays an ordinary one.
    """
    if source.isascii() or not any(space in source for space in _NO_BREAKS):
        return target
    places = defaultdict[tuple[str, str], deque[int]](deque)
    for space in _SPACES.finditer(target):
        for key in _keys(*_neighbours(target, space.start())):
            places[key].append(space.start())
    characters = list(target)
    for space in _NO_BREAK.finditer(source):
        for key in _keys(*_neighbours(source, space.start())):
            free = places[key]
            while free and characters[free[0]] != " ":
                free.popleft()
            if free:
                characters[free.popleft()] = space[1]
                break
    return "".join(characters)


def _neighbours(text: str, place: int) -> tuple[str, str]:
    """Return the words before and behind the space there."""
    before, behind = text[max(0, place - _REACH) : place], text[place + 1 : place + 1 + _REACH]
    return before.split()[-1], behind.split()[0]


def _keys(before: str, behind: str) -> list[tuple[str, str]]:
    """Return what may be equal of a space in the source and one in the translation, the surest first."""
    before, behind = before.strip("(\"'„“»«"), behind.strip(".,;:!?)\"'“”»«")
    keys = [(before, behind)]
    if digits := _DIGITS.sub("", before):
        keys.append((digits, ""))
    if behind[:1].isupper() or behind[:1].isdigit():
        keys.append(("", behind))
    return keys
