"""Tags put back into a translation: around the words that belong to what they enclose, each exactly once.

`is_well_formed` looks at what came out: whether a text has the tags that it should have, and whether they are nested.
Knows words and the links between them, no format and no model: tags are found as strings.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from service.records import Link, Span
from service.text.alignment import Range, WordLinks, at_share, words_of
from service.text.protected_spans import found_again, wholes
from service.text.segments import Segment, Tag, TagKind, between


def rewrap(segment: Segment, target: str) -> str:
    """Return a translation with the line breaks of its segment, which has no other tags."""
    pieces, done = list[str](), 0
    for space, source in _places_of_breaks(segment, target):
        pieces += [segment.escape(target[done : space.begin]), source]
        done = space.end
    return "".join([*pieces, segment.escape(target[done:])])


def _places_of_breaks(segment: Segment, target: str) -> list[tuple[Span, str]]:
    """Return each line break of a segment with the spaces of its translation that it stands for.

    They are those nearest to its share of the text, none in the segment's spans; where none is left, the end.
    """
    length = max(1, len(segment.text))
    kept = {place for span in segment.copies(target) for place in range(*span)}
    spaces = [Span(*match.span()) for match in re.finditer(" +", target) if match.start() not in kept]
    places, done = list[tuple[Span, str]](), 0
    for tag in segment.tags:
        if tag.is_break:
            wanted = (tag.position - 1) / length * len(target)
            left = [space for space in spaces if space.begin >= done]
            end = Span(len(target), len(target))
            space = min(left, key=lambda one: abs(one.begin - wanted), default=end)
            places.append((space, tag.source))
            done = space.end
    return places


def is_well_formed(tags: Sequence[Tag], result: str) -> bool:
    """Whether a text has the same tags as a segment, each as often, and nested if they are nested in the segment."""
    sources = [tag.source for tag in tags]
    found = list(_found(frozenset(sources), result))
    if Counter(found) != Counter(sources):
        return False
    return _is_nested(tags, found) or not _is_nested(tags, sources)


def _found(sources: frozenset[str], result: str) -> Iterator[str]:
    lengths = sorted({len(source) for source in sources}, reverse=True)
    firsts = {source[:1] for source in sources}
    place = 0
    while place < len(result):
        found = None
        if result[place] in firsts:
            found = next((result[place : place + n] for n in lengths if result[place : place + n] in sources), None)
        if found is not None:
            yield found
        place += len(found) if found else 1


def _is_nested(tags: Sequence[Tag], sources: Sequence[str]) -> bool:
    """Whether tags in this order are nested: each end tag ends the last start tag that is open."""
    alone = Counter(tag.source for tag in tags if tag.partner is None and tag.kind is not TagKind.POINT)
    ends: dict[str, set[str]] = {}
    for tag in tags:
        if tag.kind is TagKind.OPEN and tag.partner is not None:
            ends.setdefault(tag.source, set()).add(tags[tag.partner].source)
    points = {tag.source for tag in tags if tag.kind is TagKind.POINT}
    closing = {tag.source for tag in tags if tag.kind is TagKind.CLOSE}
    open_tags: list[str] = []
    for source in sources:
        if source in points:
            continue
        if source not in closing:
            open_tags.append(source)
        elif open_tags and source in ends.get(open_tags[-1], ()):
            open_tags.pop()
        elif not open_tags and alone[source] > 0:
            alone[source] -= 1
        else:
            return False
    return not Counter(open_tags) - alone


_POSITION = attrgetter("position")
_LEFT, _RIGHT = 0, 1  # of the white space between two words


def place_tags(segment: Segment, target: str, links: Sequence[Link]) -> str:
    """Return the translation with the tags of its segment.

    Tags that are nested in the source are nested in the result.  A pair that encloses all words does so again; without
    a linked word, a tag stands at the same share of the way.  Start and end tags take and add no white space; a tag
    that stands alone has a space where it had one.
    """
    breaks = _places_of_breaks(segment, target)
    segment = _without_breaks(segment)
    kept = found_again(wholes(segment), segment, target, links)
    source_units = _units(segment, segment.text, [whole.shown for whole in kept])
    words = WordLinks(
        words_of(segment.text, source_units), words_of(target, _units(segment, target, kept.values())), links
    )
    instead = {span: whole.source for whole, span in kept.items()}
    write = _writer(
        target, instead | {space: source for space, source in breaks if space.begin < space.end}, segment.escape
    )
    before, after = _outer_space(segment)
    if not words.target_words or not words.source_words:
        tags, lines = "".join(tag.source for tag in segment.tags), "".join(source for _, source in breaks)
        return before + tags + segment.escape(target) + lines + after
    inside = {index for whole in kept for index in range(whole.first, whole.last + 1)}
    ranges, units = _taken_apart(segment, words, inside)
    _find_ranges(ranges, words)
    marks = [mark for item in ranges for mark in item.marks(segment.tags)]
    marks += [unit.mark(segment, words, number) for number, unit in enumerate(units)]
    too_many = "".join(source for space, source in breaks if space.begin == space.end)
    return before + _written(sorted(marks), target, words, write) + too_many + after


def _without_breaks(segment: Segment) -> Segment:
    """Return a segment with its tags but the line breaks."""
    kept = [index for index, tag in enumerate(segment.tags) if not tag.is_break]
    numbers = {index: number for number, index in enumerate(kept)}
    tags = [segment.tags[index] for index in kept]
    return segment._replace(
        tags=tuple(tag._replace(partner=None if tag.partner is None else numbers[tag.partner]) for tag in tags)
    )


def _units(segment: Segment, text: str, shown: Iterable[Span]) -> list[Span]:
    """Return what no tag may cut in a text: what tags show, and the segment's spans."""
    units = list(shown)
    taken = {place for span in units for place in range(*span)}
    return sorted([*units, *(span for span in segment.copies(text) if taken.isdisjoint(range(*span)))])


def _writer(target: str, kept: Mapping[Span, str], escape: Callable[[str], str]) -> Callable[[int, int], str]:
    """Return a function that writes a part of the translation, with tags in place of what they show."""

    def write(begin: int, end: int) -> str:
        written: list[str] = []
        for span in spans[bisect_left(spans, begin, key=lambda span: span.begin) :]:
            if span.begin >= end:
                break
            written += [escape(target[begin : span.begin]), kept[span]]
            begin = span.end
        return "".join([*written, escape(target[begin:end])])

    spans = sorted(kept)
    return write


@dataclass(slots=True, eq=False)
class _Range:
    """Words between two tags; one of the tags can be missing."""

    source: Range
    parent: "_Range | None"
    start: int | None = None  # indexes in `Segment.tags`
    end: int | None = None
    target: Range = (0, 0)  # an end beyond the words: the tag is missing

    @property
    def rank(self) -> int:
        """The order of ranges with the same words, the outermost first."""
        if self.start is not None:
            return self.start
        return -(self.end or 0)

    def marks(self, tags: Sequence[Tag]) -> "Iterator[_Mark]":
        begin, end = self.target
        if self.start is not None:
            yield _Mark(begin, _RIGHT, (1, -end, self.rank, 0, 0), tags[self.start].source)
        if self.end is not None:
            yield _Mark(end, _LEFT, (0, -begin, -self.rank, 1, 0), tags[self.end].source)


class _Mark(NamedTuple):
    """Tags at a place in the translation."""

    word: int  # that they stand before
    side: int  # of the white space before that word
    order: tuple[int, ...]  # of tags in the same place
    source: str
    is_alone: bool = False
    has_space_before: bool = False
    has_space_after: bool = False
    touches_word: bool = False  # that comes after it


@dataclass(slots=True, eq=False)
class _Unit:
    """Tags in one place that enclose no word, and stay together."""

    position: int
    first: int
    last: int  # indexes in `Segment.tags`
    parent: _Range | None

    def mark(self, segment: Segment, words: WordLinks, number: int) -> _Mark:
        text, position = segment.text, self.position
        space_before = position > 0 and text[position - 1].isspace()
        end = position + segment.tags[self.first].width
        space_after = end < len(text) and text[end].isspace()
        sticks_left = position > 0 and not space_before and not text[end : end + 1].isalnum()
        word, side = _place_of(position, words, sticks_left=sticks_left)
        word, side, order = self._in_parent(word, side, number, len(words.target_words))
        source = "".join(tag.source for tag in segment.tags[self.first : self.last + 1])
        return _Mark(word, side, order, source, True, space_before, space_after, text[end : end + 1].isalnum())

    def _in_parent(self, word: int, side: int, number: int, num_words: int) -> tuple[int, int, tuple[int, ...]]:
        """Move a place into the range around the tags, and return it with the order of the tags there."""
        begin, end = self.parent.target if self.parent else (-1, num_words + 1)
        word = min(max(word, begin), end)
        if self.parent and word == begin:
            return word, _RIGHT, (1, -end, self.parent.rank, 1, number)
        if self.parent and word == end:
            return word, _LEFT, (0, -begin, -self.parent.rank, 0, number)
        if word in (0, num_words):
            side = _LEFT if word else _RIGHT
        return word, side, (0 if side == _RIGHT else 1, number, 0, 0, 0)


def _taken_apart(segment: Segment, words: WordLinks, inside: AbstractSet[int]) -> tuple[list[_Range], list[_Unit]]:
    """Return the tags that enclose words, and those that do not; those inside words stand there already."""
    tags = segment.tags
    ranges: list[_Range] = []
    units: list[_Unit] = []
    open_ranges: list[_Range] = []
    index = 0
    while index < len(tags):
        tag = tags[index]
        parent = open_ranges[-1] if open_ranges else None
        last = tag.partner if tag.kind is TagKind.OPEN else index  # of a unit, if it is one
        if index in inside:
            pass
        elif tag.kind is TagKind.CLOSE and tag.partner is not None:
            open_ranges.pop().end = index
        elif tag.kind is TagKind.CLOSE:
            ranges.append(_Range(words.source_range(0, tag.position), None, end=index))
        elif last is None:
            ranges.append(_Range(words.source_range(tag.position, len(segment.text)), None, start=index))
        elif (source := _words_between(tag, tags[last], words)) is not None:
            ranges.append(_Range(source, parent, start=index))
            open_ranges.append(ranges[-1])
        elif units and _are_joined(segment, units[-1], index, parent):
            units[-1].last = index = last
        else:
            units.append(_Unit(tag.position, index, last, parent))
            index = last
        index += 1
    return ranges, units


def _words_between(start: Tag, end: Tag, words: WordLinks) -> Range | None:
    source = words.source_range(start.position, end.position)
    return source if start.position < end.position and source[0] < source[1] else None


def _are_joined(segment: Segment, unit: _Unit, index: int, parent: _Range | None) -> bool:
    """Whether nothing stands between tags that enclose no word and the next one, in the same element."""
    before, tag = segment.tags[unit.last], segment.tags[index]
    return unit.last == index - 1 and before.end == tag.begin and unit.parent is parent and not before.width


def _find_ranges(ranges: Sequence[_Range], words: WordLinks) -> None:
    """Set the words of the translation for each range: of any two, one contains the other or they are apart."""
    num_words = len(words.target_words)
    border = num_words
    for item in reversed([item for item in ranges if item.start is None]):
        border = words.best_border(item.source, (0, border), is_end=True)
        item.target = (-1, border)
    border = max((item.target[1] for item in ranges), default=0)
    for item in (item for item in ranges if item.end is None):
        border = words.best_border(item.source, (border, num_words), is_end=False)
        item.target = (border, num_words + 1)
    _find_pairs(ranges, words)


def _find_pairs(ranges: Sequence[_Range], words: WordLinks) -> None:
    everything = (0, len(words.source_words)), (0, len(words.target_words))
    found: dict[tuple[Range, Range, Range], Range] = {}  # a range by itself, by those of the pair around it
    placed = {item.target for item in ranges if item.start is None or item.end is None}
    for item in ranges:
        if item.start is None or item.end is None:
            continue
        around, within = (item.parent.source, item.parent.target) if item.parent else everything
        if (target := found.get((item.source, around, within))) is None:
            target = words.best_range(item.source, around, within)
            found[item.source, around, within] = target
        item.target = _apart(target, item.source, placed, words)
        placed.add(item.target)


def _apart(target: Range, source: Range, placed: set[Range], words: WordLinks) -> Range:
    """Return the part of a range that crosses no other: where one begins or ends within it, the better side."""
    while True:
        begin, end = target
        crossed = next((a for a in placed if a[0] < begin < a[1] < end or begin < a[0] < end < a[1]), None)
        if crossed is None:
            return target
        border = crossed[0] if begin < crossed[0] else crossed[1]
        target = max((begin, border), (border, end), key=lambda side: words.gain(source, side))


def _place_of(position: int, words: WordLinks, *, sticks_left: bool) -> tuple[int, int]:
    """Return the place in the translation for a code point of the source: the word behind it, and the side."""
    number, _ = words.source_range(position, position)
    before, after = number - 1, number
    if number < len(words.source_words) and words.source_words[number].begin < position:
        before, sticks_left = number, True  # within a word
    for side in (_LEFT, _RIGHT) if sticks_left else (_RIGHT, _LEFT):
        targets = words.targets_of(before if side == _LEFT else after)
        if targets:
            return (max(targets) + 1 if side == _LEFT else min(targets)), side
    return at_share(number / len(words.source_words), (0, len(words.target_words))), _RIGHT


def _outer_space(segment: Segment) -> tuple[str, str]:
    """Return the white space between the tags in front of the text, and between those behind it."""
    if segment.offsets is None:
        return "", ""
    end = len(segment.text)
    first = bisect_right(segment.tags, 0, key=_POSITION)
    last = bisect_left(segment.tags, end, key=_POSITION)
    front = _without_tags(segment, segment.begin, segment.offsets[0], segment.tags[:first])
    behind = segment.origin(Span(end - 1, end)).end
    return front, _without_tags(segment, behind, segment.span.end, segment.tags[last:])


def _without_tags(segment: Segment, begin: int, end: int, tags: Sequence[Tag]) -> str:
    pieces = between([Span(tag.begin, tag.end) for tag in tags], begin, end)
    return "".join(segment.source[b - segment.begin : e - segment.begin] for b, e in pieces)


def _written(marks: Sequence[_Mark], target: str, words: WordLinks, write: Callable[[int, int], str]) -> str:
    written: list[str] = []
    place = 0
    ends_in_space = True
    for mark in marks:
        if mark.side == _LEFT:
            at = words.target_words[mark.word - 1].end if mark.word > 0 else 0
        else:
            at = words.target_words[mark.word].begin if mark.word < len(words.target_words) else len(target)
        if place < at:
            written.append(write(place, at))
            ends_in_space = target[at - 1].isspace()
        if mark.has_space_before and not ends_in_space:
            written.append(" ")
        written.append(mark.source)
        ends_in_space = ends_in_space and not mark.is_alone
        is_before_word = mark.is_alone and target[at : at + 1].isalnum() and not mark.touches_word
        if is_before_word or (mark.has_space_after and mark.side == _RIGHT and at < len(target)):
            written.append(" ")
            ends_in_space = True
        place = at
    return "".join([*written, write(place, len(target))])
