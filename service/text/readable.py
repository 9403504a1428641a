r"""A segment as a model reads it best: only what a reader sees in its words, and no letter again and again.

    soft hyphens and zero-width characters        are taken out, but where a script needs them
    "sooooooo", "hahahahaha"                      become "sooo", "hahaha"
    "You\'ve", "It''s" in strings of programs     become "You've", "It's"; `spelled` writes a translation as they were

What is a span stays.  Knows no model and no format.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence

from service.records import Link, Span
from service.text.alignment import Anchor, moved, mover
from service.text.document import Segment
from service.text.spans import Alphabet, spans_of

_HIDDEN = "\u00ad\u034f\u2060-\u2064"
_JOINERS = "\u200b-\u200f\u202a-\u202e\ufeff"  # the scripts of Asia and Africa, and pictures, need them
_WITH_JOINERS = "\u0590-\u1dff\u2e80-\U0003ffff"
_UNREADABLE = re.compile(
    rf"[{_HIDDEN}]++|(?<![{_WITH_JOINERS}])[{_JOINERS}]++(?![{_WITH_JOINERS}])"
    r"|(?!\b[A-Z]{4,}\b)(?P<letter>[^\W\d_])(?P=letter){3,}|(?P<syllable>[^\W\d_]{2})(?P=syllable){3,}"
    r"|(?P<quote>\\[\"']|(?<=[^\W\d_])''(?=[^\W\d_]))"
)
_TIMES = 3  # as often a letter or a syllable stays: "Schifffahrt"


def readable(segment: Segment, alphabet: Alphabet) -> Segment:
    """Return a segment whose text is easier to read; each code point of it keeps its place in the request."""
    if not _UNREADABLE.search(segment.text):
        return segment
    spans = [
        span for span in spans_of(segment, alphabet) if segment.text[slice(*span)] != "\\"
    ]  # a lone one: a quote's
    taken = {place for span in spans for place in range(*span)}
    pieces, places, quotes, end = list[str](), list[int](), dict[str, None](), 0
    for match in _UNREADABLE.finditer(segment.text):
        if match.start() in taken:
            continue
        written = match["quote"][-1:] if match["quote"] else _TIMES * (match["letter"] or match["syllable"] or "")
        quotes |= {match[0]: None} if match["quote"] else {}
        pieces += segment.text[end : match.start()], written
        places += [*range(end, match.start()), *range(match.start(), match.start() + len(written))]
        end = match.end()
    text = "".join((*pieces, segment.text[end:]))
    places += range(end, len(segment.text))
    first = len(text) - len(text.lstrip())
    text = text.strip()
    places = places[first : first + len(text)]
    offsets = segment.offsets or range(segment.begin, segment.begin + len(segment.text))
    return segment._replace(
        text=text,
        offsets=tuple([offsets[place] for place in places]),
        tags=tuple([tag._replace(position=bisect_left(places, tag.position)) for tag in segment.tags]),
        quotes=tuple(quotes),
    )


def spelled(segment: Segment, target: str, links: Sequence[Link]) -> tuple[str, tuple[Link, ...]]:
    r"""Return a translation with its quotes as the segment writes them, be it "\'" or "''", and its links."""
    written = {quote[-1]: quote for quote in segment.quotes}
    taken = {place for span in segment.copies(target) for place in range(*span)}
    pieces, anchors, length = list[str](), list[Anchor](), 0
    for place, character in enumerate(target):
        piece = character if place in taken else written.get(character, character)
        if piece != character:
            anchors.append(Anchor(Span(place, place + 1), Span(length, length + len(piece))))
        pieces.append(piece)
        length += len(piece)
    return "".join(pieces), tuple(moved(links, None, mover(anchors)))
