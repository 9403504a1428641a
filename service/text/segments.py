"""A text as segments to translate and what stands between them; segments cut into smaller ones.

Pure data; knows no model, no tokens and no format.  Joined, the parts are the text, byte for byte.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from service.records import Span

_POSITION = attrgetter("position")
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
    escape: Callable[[str], str] = str  # language -> as the format writes it: "a < b" is "a &lt; b" in HTML
    quotes: tuple[str, ...] = ()  # as `source` writes those that are escaped: "\\'", "''"

    @property
    def span(self) -> Span:
        """Where the segment stands in the text of the request."""
        return Span(self.begin, self.begin + len(self.source))

    def copies(self, text: str) -> list[Span]:
        """Return where a text, such as a translation, repeats the segment's spans."""
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
        following = bisect_left(self.tags, position, key=_POSITION)
        end = offsets[position] if position < len(offsets) else self.span.end
        if following < len(self.tags) and self.tags[following].position == position:
            end = self.tags[following].begin
        begin = offsets[position - 1]
        written = self.source[begin - self.begin : end - self.begin]
        return begin + len(_SPACE_BEHIND.sub("", written) or written)


Part: TypeAlias = str | Segment  # text that stays, or a segment


_ARE_APART = re.compile(r"[^\W\d_][a-zß-öø-ÿ]{2}[A-ZÀ-ÖØ-Þ\d]")  # "houseSize", "house690"; "d|o|g" is a word


class _Cut(NamedTuple):
    """A place between two code points of a segment's text and between two of its tags."""

    position: int  # in `Segment.text`
    tag: int  # the tags before it
    place: int  # in the text of the request


def trim(segment: Segment) -> list[Part]:
    """Cut off the white space at a segment's ends and the tags there that enclose no part of the text or all of it."""
    text = segment.text
    begin, end = len(text) - len(text.lstrip()), len(text.rstrip())
    language = between([tag.shown for tag in segment.tags], 0, len(text))
    if not any(text[slice(*part)].strip() for part in language):
        return verbatim(segment)
    first, last = _enclosed_tags(segment, begin, end)
    front = _Cut(begin, first, _place(segment, begin, first))
    back = _Cut(end, last, _place_after(segment, end, last))
    return [
        *_verbatim(segment, _start(segment), front),
        _slice(segment, front, back),
        *_verbatim(segment, back, _end(segment)),
    ]


def split(segment: Segment, positions: Sequence[int]) -> list[Part]:
    """Cut a segment before these code points of its text, which are in order, and trim the pieces.

    Opening tags between two pieces go with the second one, closing tags with the first.  What a tag shows is not cut.
    """
    cuts = [_start(segment)]
    for position in positions:
        cut = _cut_near(segment, position)
        if cut.position > cuts[-1].position:
            cuts.append(cut)
    cuts.append(_end(segment))
    pieces = [part for begin, end in pairwise(cuts) for part in trim(_slice(segment, begin, end))]
    return joined(pieces)


def borders(segment: Segment) -> list[int]:
    """Return where one element ends, the next begins, and no word goes on: <b>red house</b><i>690 px</i>."""
    places = list[int]()
    for tag, following in pairwise(segment.tags):
        is_border = tag.kind is TagKind.CLOSE and following.kind is TagKind.OPEN and tag.end == following.begin
        if (
            is_border
            and tag.position == following.position
            and _ARE_APART.match(segment.text, max(0, tag.position - 3))
        ):
            places.append(tag.position)
    return places


def verbatim(segment: Segment) -> list[Part]:
    """Return a segment as it is written, with the language in its tags: values of alt, title, ..."""
    return _verbatim(segment, _start(segment), _end(segment))


def joined(parts: Iterable[Part]) -> list[Part]:
    """Join strings that follow each other, and leave out empty ones."""
    result: list[Part] = []
    strings: list[str] = []
    for part in parts:
        if isinstance(part, Segment):
            result += ["".join(strings), part] if strings else [part]
            strings = []
        elif part:
            strings.append(part)
    return [*result, "".join(strings)] if strings else result


def between(spans: Sequence[Span], begin: int, end: int) -> list[Span]:
    """Return what stands before, between and behind spans that follow each other, from `begin` to `end`."""
    begins, ends = [begin, *(span.end for span in spans)], [*(span.begin for span in spans), end]
    return list(map(Span, begins, ends))


def span_around(position: int, spans: Sequence[Span]) -> Span | None:
    """Return the span that a cut at the position would tear apart."""
    index = bisect_left(spans, (position, 0)) - 1
    return spans[index] if index >= 0 and position < spans[index].end else None


def _start(segment: Segment) -> _Cut:
    return _Cut(0, 0, segment.begin)


def _end(segment: Segment) -> _Cut:
    return _Cut(len(segment.text), len(segment.tags), segment.span.end)


def _enclosed_tags(segment: Segment, begin: int, end: int) -> tuple[int, int]:
    """Return the first tag, and the one behind the last, that has to stay with the text from `begin` to `end`."""
    tags = segment.tags
    first, last = bisect_right(tags, begin, key=_POSITION), bisect_left(tags, end, key=_POSITION)
    while True:
        kept = range(first, last)
        front = next((index for index in range(first) if tags[index].width or tags[index].partner in kept), first)
        back = next((index + 1 for index in range(len(tags) - 1, last - 1, -1) if tags[index].partner in kept), last)
        if (front, back) == (first, last):
            return first, last
        first, last = front, back


def _place(segment: Segment, position: int, tag: int) -> int:
    """Return the place of the code point or of the tag, whichever comes first."""
    place = segment.origin(Span(position, position + 1)).begin
    return min(place, segment.tags[tag].begin) if tag < len(segment.tags) else place


def _place_after(segment: Segment, position: int, tag: int) -> int:
    """Return the place behind the code point before `position` or the tag before `tag`, whichever comes last."""
    place = segment.origin(Span(position - 1, position)).end
    return max(place, segment.tags[tag - 1].end) if tag > 0 else place


def _cut_near(segment: Segment, position: int) -> _Cut:
    """Return the place behind the text that ends at or before `position`, and behind the tags that close there."""
    text, tags = segment.text, segment.tags
    before = bisect_left(tags, position, key=_POSITION)
    if before and position < tags[before - 1].shown.end:
        return _start(segment)
    end = begin = position
    while end > 0 and text[end - 1].isspace():
        end -= 1
    while begin < len(text) and text[begin].isspace():
        begin += 1
    if end == 0 or begin == len(text):
        return _start(segment)
    first, last = bisect_left(tags, end, key=_POSITION), bisect_right(tags, begin, key=_POSITION)
    for index in range(last - 1, first - 1, -1):
        if tags[index].kind is TagKind.CLOSE:
            return _Cut(tags[index].position, index + 1, tags[index].end)
    return _Cut(end, first, _place_after(segment, end, 0))


def _slice(segment: Segment, begin: _Cut, end: _Cut) -> Segment:
    return segment._replace(
        source=segment.source[begin.place - segment.begin : end.place - segment.begin],
        begin=begin.place,
        text=segment.text[begin.position : end.position],
        tags=tuple(_moved(tag, begin, end) for tag in segment.tags[begin.tag : end.tag]),
        spans=tuple(
            Span(span.begin - begin.position, span.end - begin.position)
            for span in segment.spans
            if begin.position <= span.begin and span.end <= end.position
        ),
        offsets=None if segment.offsets is None else segment.offsets[begin.position : end.position],
    )


def _moved(tag: Tag, begin: _Cut, end: _Cut) -> Tag:
    partner = tag.partner
    return tag._replace(
        position=min(max(tag.position, begin.position), end.position) - begin.position,
        partner=partner - begin.tag if partner is not None and begin.tag <= partner < end.tag else None,
    )


def _verbatim(segment: Segment, begin: _Cut, end: _Cut) -> list[Part]:
    """Return what is written between two places, with the language in the tags there."""
    parts: list[Part] = []
    place = begin.place
    for tag in segment.tags[begin.tag : end.tag]:
        if tag.parts:
            parts += [segment.source[place - segment.begin : tag.begin - segment.begin], *tag.parts]
            place = tag.end
    return [*parts, segment.source[place - segment.begin : end.place - segment.begin]]
