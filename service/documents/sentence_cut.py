"""Where to cut the translation of a text that was joined from pieces, so that each piece gets its own words back.

The text is XLIFF; no cut is inside a tag or between the two tags of a pair.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence

from service.documents.inline_tags import ELEMENT
from service.records import Link, TranslatedSegment, Translation

_PER_LINK = 10.0  # characters that a cut may be off to cross one link less
_SLACK = 0.1  # share of the text that a cut may be off to stand behind punctuation as it does in the source
_PAUSE = re.compile(r"[,;:.!?…\u2014\u2013-]\s*\Z")
_REFERENCE = re.compile(r"&[#\w]+;")


def cut(source: str, begins: Sequence[int], translation: Translation) -> list[str]:
    """Return the translation in as many pieces as the source has; the last is repeated where there are too few words.

    A cut of the source that lies between two segments is one between their translations.  Inside a segment, it goes
    where few links between words cross it, and near the same share of the length.

    Args:
        source: what was translated.
        begins: where in it the second piece and those after it begin.
    """
    text = translation.text
    places = _places(text)
    cuts: list[int] = []
    first = 0
    for number, begin in enumerate(begins):
        allowed = places[first : len(places) - (len(begins) - number - 1)] or places[first:]
        if not allowed:
            break
        cuts.append(_best(allowed, text, source, begin, translation))
        first = bisect_left(places, cuts[-1]) + 1
    pieces = [text[a:b].strip() for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return pieces + pieces[-1:] * (len(begins) + 1 - len(pieces))


def _places(text: str) -> list[int]:
    """Return where a text may be cut: before words or, in a text without spaces, before characters."""
    fixed = [match.span() for match in (*ELEMENT.finditer(text), *_REFERENCE.finditer(text))]
    inside = {place for begin, end in fixed for place in range(begin + 1, end)} | _inside_pairs(text)
    words = [match.end() for match in re.finditer(r"\s+", text)]
    if not words:
        words = list(range(1, len(text)))
    return [place for place in words if place not in inside and 0 < place < len(text)]


def _inside_pairs(text: str) -> set[int]:
    inside: set[int] = set()
    begins: list[int] = []
    for match in ELEMENT.finditer(text):
        if match["open"]:
            begins.append(match.start())
        elif match["close"] and begins:
            inside.update(range(begins.pop() + 1, match.end()))
    return inside


def _best(places: Sequence[int], text: str, source: str, begin: int, translation: Translation) -> int:
    share = begin / max(len(source), 1) * len(text)
    links: tuple[Link, ...] = ()
    for segment in translation.segments:
        if segment.source.end <= begin:
            share = float(segment.target.end)
            links = ()
        elif segment.source.begin < begin:
            share = _share(segment, begin)
            links = segment.links
            break

    slack = _SLACK * len(text) if _PAUSE.search(source[:begin]) else 0.0

    def cost(place: int) -> float:
        crossing = sum((link.source.begin < begin) != (link.target.begin < place) for link in links)
        return _PER_LINK * crossing + abs(place - share) - (slack if _PAUSE.search(text[:place]) else 0.0)

    return min(places, key=cost)


def _share(segment: TranslatedSegment, begin: int) -> float:
    source, target = segment.source, segment.target
    return target.begin + (begin - source.begin) / (source.end - source.begin) * (target.end - target.begin)
