"""No-break spaces, which models turn into ordinary ones, put back between words that a translation has kept."""

import re
from collections import defaultdict, deque

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
