"""An overlong sentence in pieces that a model is reliable for, cut where clauses end.

Pure; knows neither model nor tokenizer but a callable that counts tokens.  Joined, the pieces are the text.
"""

import math
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from service.records import Span

CountTokens = Callable[[str], int]

# A place costs this much, and up to 1 for its distance from where pieces of equal length would end: of two commas the
# nearer one is taken, of a comma and a space the comma, however far.
_COSTS = {"clause": 0.0, "comma": 0.3, "conjunction": 0.5, "space": 2.0}
_REACH = 0.4  # how far from there a place may lie, in lengths of a piece
_FILL = 0.85  # how much of the limit a piece fills at equal length: where it ends varies
# Words that begin a clause and, in their language, hardly ever anything else.
_CONJUNCTIONS = {
    "de": "und|oder|aber|sondern|denn|weil|dass|wobei|während",
    "en": "and|or|but|because|which|while|although|whereas",
    "es": "y|o|pero|porque|que|aunque",
    "fr": "et|ou|mais|car|parce|qui|que",
    "it": "e|o|ma|perché|che|anche",
    "nl": "en|of|maar|want|omdat|dat",
    "pt": "e|ou|mas|porque|que|embora",
}
_WIDE_STOPS = (
    "\uff1b\uff1a\u3002\uff01\uff1f\u0964"  # of Chinese and Japanese, and the danda of Hindi: no space follows
)
_JOINERS = "\u200d\ufe0e\ufe0f"  # zero width joiner, variation selectors: they belong to the character before them


class _Place(NamedTuple):
    """Where a text can be cut."""

    position: int  # of the first code point after the cut
    cost: float


def cut(
    text: str, count_tokens: CountTokens, limit: int, *, language: str = "", spans: Sequence[Span] = ()
) -> list[str]:
    """Return the text in pieces of at most `limit` tokens and similar length; joined they are the text.

    Cuts after semicolons, colons and dashes, after commas and before conjunctions; where none is near, at white space,
    and in one endless word or a script without spaces between any two characters.  What one character or one span
    takes more tokens for than the limit stays too long.  Tokens are counted about twice for each part of the text.

    Args:
        count_tokens: gives the number of tokens of a piece; it may count end-of-sentence.
        limit: at least 1.
        language: of the text, BCP 47; empty: without conjunctions.
        spans: parts that stay whole, in order.
    """
    places: list[_Place] | None = None
    pieces: list[str] = []
    waiting = [(0, len(text))]
    while waiting:
        begin, end = waiting.pop()
        num_tokens = count_tokens(text[begin:end])
        if num_tokens <= limit:
            pieces.append(text[begin:end])
            continue
        if places is None:
            places = _places(text, language, spans)
        edges = _edges(text, places, spans, begin, end, max(2, math.ceil(num_tokens / (limit * _FILL))))
        if len(edges) == 2:
            pieces.append(text[begin:end])
        else:
            waiting.extend(reversed(list(pairwise(edges))))
    return pieces


def _places(text: str, language: str, spans: Sequence[Span]) -> list[_Place]:
    """Return the places that the punctuation, the words and the spaces offer, in order."""
    primary = language.replace("_", "-").partition("-")[0].lower()
    return [
        _Place(match.end(), _COSTS[match.lastgroup or "space"])
        for match in _pattern(primary).finditer(text)
        if 0 < match.end() < len(text) and _span_around(match.end(), spans) is None
    ]


@cache
def _pattern(language: str) -> re.Pattern[str]:
    kinds = [
        rf"(?P<clause>[;:\u061b]\s+|[{_WIDE_STOPS}]\s*|\s+[-\u2013\u2014]\s+|\u2014\s*)",
        r"(?P<comma>[,\u060c]\s+|[\uff0c\u3001]\s*)",
    ]
    if language in _CONJUNCTIONS:
        kinds.append(rf"(?P<conjunction>\s+(?=(?:{_CONJUNCTIONS[language]})\s))")
    return re.compile("|".join([*kinds, r"(?P<space>\s+)"]), re.IGNORECASE)


def _edges(
    text: str, places: Sequence[_Place], spans: Sequence[Span], begin: int, end: int, num_pieces: int
) -> list[int]:
    """Return where so many pieces of text[begin:end] begin and end; fewer where there is no place for a cut."""
    length = (end - begin) / num_pieces
    edges = [begin]
    for number in range(1, num_pieces):
        wanted = begin + int(number * length)
        low = max(edges[-1] + 1, wanted - int(_REACH * length))
        high = min(end - 1, wanted + int(_REACH * length))
        near = places[bisect_left(places, low, key=_position) : bisect_right(places, high, key=_position)]
        if near:
            edges.append(min(near, key=lambda place: place.cost + abs(place.position - wanted) / length).position)
        elif (position := _between_characters(text, wanted, spans)) in range(edges[-1] + 1, end):
            edges.append(position)
    if len(edges) == 1:  # a span is in the way
        inside = places[bisect_left(places, begin + 1, key=_position) : bisect_left(places, end, key=_position)]
        edges += [min(inside, key=lambda place: abs(place.position - (begin + end) // 2)).position] if inside else []
    return [*edges, end]


def _between_characters(text: str, position: int, spans: Sequence[Span]) -> int:
    """Return the nearest place at or before the position that tears neither a character nor a span apart."""
    while position > 0:
        span = _span_around(position, spans)
        if span is not None:
            position = span.begin
        elif _is_attached(text, position):
            position -= 1
        else:
            break
    return position


def _is_attached(text: str, position: int) -> bool:
    """Whether the code points before and at the position are one character, as people see it."""
    return (
        unicodedata.category(text[position])[0] == "M" or text[position] in _JOINERS or text[position - 1] == "\u200d"
    )


def _span_around(position: int, spans: Sequence[Span]) -> Span | None:
    """Return the span that a cut at the position would tear apart."""
    index = bisect_left(spans, position, key=_begin) - 1
    return spans[index] if index >= 0 and position < spans[index].end else None


_position = attrgetter("position")
_begin = attrgetter("begin")
