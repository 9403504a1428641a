"""Places in one text and in another that was made from it by replacing parts of it."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from service.records import Link, Span


class Anchor(NamedTuple):
    """A part of a text and what stands for it in the other one."""

    before: Span
    after: Span


Move = Callable[[Span], Span]  # a span of one text -> the span of the other


def mover(anchors: Sequence[Anchor]) -> Move:
    """Return the function from spans of the first text to spans of the second.

    Between two anchors, and at both ends, the texts are equal, but for spaces beside an anchor.

    Args:
        anchors: in the order of the first text.
    """

    def move(position: int, *, is_end: bool) -> int:
        shift = 0
        for before, after in anchors:
            if position < before.begin + is_end:
                break
            if position < before.end + is_end:
                return after.end if is_end else after.begin
            shift = after.end - before.end
        return position + shift

    return lambda span: Span(move(span.begin, is_end=False), move(span.end, is_end=True))


def mover_to_written(text: str, written: str, inserted: Sequence[str], escape: Callable[[str], str]) -> Move:
    """Return the function from spans of a text to spans of what was written of it.

    Args:
        text: language.
        written: the same as its format writes it, with other strings between its code points.
        inserted: those strings.
        escape: language -> as the format writes it.
    """
    if text == written:
        return lambda span: span
    left, places, place = Counter(inserted), list[Span](), 0
    for character in text:
        while tag := next((tag for tag in left if left[tag] and written.startswith(tag, place)), ""):
            left[tag] -= 1
            place += len(tag)
        piece = escape(character)
        if not written.startswith(piece, place):
            piece = ""  # a space for which a line break stands
        places.append(Span(place, place + len(piece)))
        place += len(piece)
    return lambda span: Span(places[span.begin].begin, places[span.end - 1].end)


def moved(links: Sequence[Link], source: Move | None, target: Move | None) -> list[Link]:
    """Return links with their places in other texts; None: the text is the same."""
    return [
        Link(source(link.source) if source else link.source, target(link.target) if target else link.target)
        for link in links
    ]
