"""A text as segments to translate and what stands between them.

Pure data; knows no model, no tokens and no format.  Joined, the parts are the text, byte for byte.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from service.records import Span

_SPACE_BEHIND = re.compile(r"(?:\s|&(?:nbsp|ensp|emsp|thinsp|#160|#8239|#[xX](?:[aA]0|202[fF]));)++\Z")


class TagKind(StrEnum):
    """What a tag does inside a segment."""

    OPEN = "open"
    CLOSE = "close"
    POINT = "point"  # stands alone: <br>, <x id="1"/>, a comment


class Tag(NamedTuple):
    """Markup inside a segment."""

    position: int  # in `Segment.text`: the code point that the tag stands before
    source: str  # as it is written, and as it comes back
    kind: TagKind
    partner: int | None = None  # index in `Segment.tags` of the other end; None: in another segment, or there is none
    begin: int = 0  # place of `source` in the text of the request
    parts: tuple["Part", ...] = ()  # `source`, where it has language in it: the values of alt, title, ...
    width: int = 0  # code points of `Segment.text`, from `position` on, that it shows: "ls" of <code>ls</code>
    is_break: bool = False  # whether it ends a line, with the white space around it; the text has one space before it

    @property
    def shown(self) -> Span:
        """Where `Segment.text` has what a reader sees of the tag; it has to come back as it is."""
        return Span(self.position, self.position + self.width)

    @property
    def end(self) -> int:
        """The place in the text of the request where the tag ends; `source` may be translated, `parts` are not."""
        written = [part if isinstance(part, str) else part.source for part in self.parts] or [self.source]
        return self.begin + sum(map(len, written))


class Segment(NamedTuple):
    """A piece of a text that is translated by itself: mostly a sentence."""

    source: str  # as it is written, with tags and entities
    begin: int  # place of `source` in the text of the request
    text: str  # the language in it, without tags and with entities resolved; no white space at its ends
    tags: tuple[Tag, ...] = ()  # in the order of `source`
    spans: tuple[Span, ...] = ()  # in `text`: what comes back as it is; in order, apart from each other
    offsets: tuple[int, ...] | None = (
        None  # place in the request of each code point of `text`; None: begin, begin + 1, ...
    )
    escape: Callable[[str], str] | None = None  # None: the document's
    quotes: tuple[str, ...] = ()  # as `source` writes those that are escaped: "\\'", "''"

    @property
    def span(self) -> Span:
        """Where the segment stands in the text of the request."""
        return Span(self.begin, self.begin + len(self.source))

    def copies(self, text: str) -> list[Span]:
        """Return where a text, be it a translation, has what the segment's spans have."""
        kept = {self.text[slice(*span)] for span in self.spans}
        if not kept:
            return []
        pattern = "|".join(map(re.escape, sorted(kept, key=len, reverse=True)))
        return [Span(*match.span()) for match in re.finditer(pattern, text)]

    def origin(self, span: Span) -> Span:
        """Return the place in the text of the request of a span of `text` that is not empty."""
        if self.offsets is None:
            return Span(self.begin + span.begin, self.begin + span.end)
        return Span(self.offsets[span.begin], self._end_of(span.end, self.offsets))

    def _end_of(self, position: int, offsets: tuple[int, ...]) -> int:
        # What is written for a code point, such as "&amp;", ends where white space, the next tag or code point begins;
        # several code points can be written as one.
        position = bisect_right(offsets, offsets[position - 1])
        following = bisect_left(self.tags, position, key=lambda tag: tag.position)
        end = offsets[position] if position < len(offsets) else self.span.end
        if following < len(self.tags) and self.tags[following].position == position:
            end = self.tags[following].begin
        begin = offsets[position - 1]
        written = self.source[begin - self.begin : end - self.begin]
        return begin + len(_SPACE_BEHIND.sub("", written) or written)


Part: TypeAlias = str | Segment  # text that stays, or a segment


class Document(NamedTuple):
    """A text in parts."""

    parts: tuple[Part, ...]
    escape: Callable[[str], str]  # language -> as the format writes it: "a < b" is "a &lt; b" in HTML

    @property
    def source(self) -> str:
        """The text that was taken apart."""
        return "".join(part if isinstance(part, str) else part.source for part in self.parts)

    def segments(self) -> Iterator[Segment]:
        """Yield all segments, those in the tags of a segment right behind it."""
        for part in self.parts:
            if isinstance(part, Segment):
                yield part
                yield from (inner for tag in part.tags for inner in tag.parts if isinstance(inner, Segment))
