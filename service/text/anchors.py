"""Places in one text and in another that was made from it by replacing parts of it."""

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


def moved(links: Sequence[Link], source: Move | None, target: Move | None) -> list[Link]:
    """Return links with their places in other texts; None: the text is the same."""
    return [
        Link(source(link.source) if source else link.source, target(link.target) if target else link.target)
        for link in links
    ]
