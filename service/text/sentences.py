"""Sentences of a text: what is translated by itself, and the layout between.

Lines end sentences, but for lines of running prose that were wrapped: their line breaks become tags of the segment.
Knows no model and no format; `boundaries.py` says where sentences end.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from service.records import Span
from service.text.boundaries import sentence_begins
from service.text.document import Part, Segment, Tag, TagKind

_ENDS = ".!?…‼⁇⁈⁉。｡．！？।॥؟۔։።။។᠃"
_BREAKS = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
# Where a text without any of these goes on, it is one sentence.
_MAY_END = re.compile(rf"[{_ENDS}]")
_ONE_SENTENCE = re.compile(rf"[^\W\d_](?![).])[^{_ENDS}{_BREAKS}]*[{_ENDS}]?\s*")
_BREAK = re.compile(rf"[{_BREAKS}]")
_LINE = re.compile(rf"[^{_BREAKS}]*(?:\r\n|[{_BREAKS}]|$)")
_MONTHS = "Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
# What may stand before the language of a line: white space, quoting, bullets, numbering, check boxes, headings.
_LAYOUT = re.compile(
    r"(?:\s+|>+(?=\s|$)|[-*+•‣◦▪▫●○■□–—·]+(?=\s)|\[[ xX✓]\](?=\s)|#{1,6}(?=\s)|"
    rf"\(?\d{{1,3}}(?:\.\d{{1,3}})*[.)](?=\s)(?!\s(?:{_MONTHS})\b)|\(?[a-zA-Z]\)(?=\s)|"
    r"(?:[a-z]|[ivx]{2,5})\.(?=\s)(?!\s[a-z]\.))*"
)
_WRAPPED_FROM = 40  # characters; shorter lines end where their author wanted


class _Line(NamedTuple):
    """A line of a text."""

    begin: int
    language: int  # where its layout ends
    stop: int  # where its language ends, without white space
    end: int  # with the line break


def split(block: Segment, language: str, find_spans: Callable[[], Sequence[Span]] = tuple) -> list[Part]:
    """Return a block of plain text, which has no tags, in segments and what stands between them.

    Args:
        block: `text` is `source`.
        language: BCP 47, of the block.
        find_spans: gives the spans of `block.text` in which no sentence ends; asked only where one may.
    """
    text = block.text
    if _ONE_SENTENCE.fullmatch(text):
        stop = len(text.rstrip())
        parts: list[Part] = [_piece(block, 0, stop, [])]
        return [*parts, text[stop:]] if stop < len(text) else parts
    parts = []
    end, spans = 0, find_spans()
    for run in _runs(text, language, spans):
        parts.append(text[end : run[0].language])
        parts += _sentences_of(block, run, language, spans)
        end = run[-1].stop
    parts.append(text[end:])
    return [part for part in parts if part]


def boundaries(text: str, language: str, spans: Sequence[Span] = ()) -> list[int]:
    """Return where the sentences of a text begin, but the first; its line breaks are spaces.

    Args:
        text: a block of running text.
        language: BCP 47.
        spans: in `text`; no sentence ends inside one.
    """
    if not _MAY_END.search(text, 0, max(0, len(text) - 1)):
        return []
    begins, places, index = sentence_begins(text, _primary(language)), list[int](), 0
    for place in begins:
        while index < len(spans) and spans[index].end <= place:
            index += 1
        if index == len(spans) or place <= spans[index].begin:
            places.append(place)
    return places


def _runs(text: str, language: str, spans: Sequence[Span]) -> Iterator[list[_Line]]:
    """Yield lines that belong together: one, or several of wrapped prose; none inside a span of several lines."""
    wide = [span for span in spans if _BREAK.search(text, *span)]
    for begin, end in zip([0, *(span.end for span in wide)], [*(span.begin for span in wide), len(text)], strict=True):
        run: list[_Line] = []
        for line in _lines(text, begin, end):
            if run and not _goes_on(text, run[-1], line, language):
                yield run
                run = []
            if line.language < line.stop:
                run.append(line)
        if run:
            yield run


def _lines(text: str, begin: int, end: int) -> Iterator[_Line]:
    for match in _LINE.finditer(text, begin, end):
        first, last = match.span()
        if first == last:
            return
        stop = first + len(match.group().rstrip())
        layout = _LAYOUT.match(text, first, stop)
        yield _Line(first, layout.end() if layout else first, stop, last)


def _goes_on(text: str, line: _Line, following: _Line, language: str) -> bool:
    """Whether the following line continues the sentence of a line: it was full, had no end, and nothing is set off."""
    is_full = line.stop - line.begin >= _WRAPPED_FROM
    has_end = text[line.stop - 1] in ".!?:;…。！？"
    layout = text[following.begin : following.language]
    first = text[following.language : following.language + 1]
    is_inside = first.isalpha() if _primary(language) == "de" else first.islower()  # any noun may be upper case
    return is_full and not has_end and not layout.strip() and is_inside


def _primary(language: str) -> str:
    """Return the language without script and region: "en" for "en-US"."""
    return language.partition("-")[0].lower()


def _sentences_of(block: Segment, run: Sequence[_Line], language: str, spans: Sequence[Span]) -> Iterator[Part]:
    """Yield the sentences of some lines, with the white space between them."""
    text = block.text
    begin, stop = run[0].language, run[-1].stop
    breaks = [Span(line.stop, after.language) for line, after in pairwise(run)]
    ends = [begin, *(gap.end for gap in breaks)], [*(gap.begin for gap in breaks), stop]
    lines = [text[first:last] for first, last in zip(*ends, strict=True)]
    blanks = [" " * (gap.end - gap.begin) for gap in breaks]  # as long as the line breaks: places stay
    flat = "".join(line + blank for line, blank in zip(lines, [*blanks, ""], strict=True))
    inside = [Span(span.begin - begin, span.end - begin) for span in spans if begin < span.end]
    places = [0, *boundaries(flat, language, inside), len(flat)]
    place = begin
    for sentence in (flat[first:last] for first, last in pairwise(places)):
        end = place + len(sentence)
        first = place + len(sentence) - len(sentence.lstrip())
        last = max(first, place + len(sentence.rstrip()))
        if place < first:
            yield text[place:first]
        if any(map(str.isalpha, text[first:last])):
            yield _piece(block, first, last, breaks)
        elif first < last:
            yield text[first:last]
        if last < end:
            yield text[last:end]
        place = end


def _piece(block: Segment, begin: int, end: int, breaks: Sequence[Span]) -> Segment:
    """Return a part of a block as a segment; the line breaks in it are tags at a space each."""
    inner = [gap for gap in breaks if begin < gap.begin and gap.end < end]
    text = block.text[begin:end]
    if not inner:
        offsets = None if block.offsets is None else block.offsets[begin:end]
        return Segment(text, block.begin + begin, text, offsets=offsets)
    words, offsets_of, tags, place = [], list[int](), list[Tag](), begin
    for gap in inner:
        words.append(block.text[place : gap.begin])
        offsets_of += range(block.begin + place, block.begin + gap.begin)
        source = block.text[gap.begin : gap.end]
        tags.append(Tag(len(offsets_of), source, TagKind.POINT, begin=block.begin + gap.begin))
        words.append(" ")
        offsets_of.append(block.begin + gap.begin)
        place = gap.end
    words.append(block.text[place:end])
    offsets_of += range(block.begin + place, block.begin + end)
    return Segment(text, block.begin + begin, "".join(words), tuple(tags), offsets=tuple(offsets_of))


def rewrap(segment: Segment, target: str) -> str:
    """Return a translation with its segment's line breaks, each in place of the spaces that are nearest to its share.

    Spaces in the segment's spans stay.
    """
    length = max(1, len(segment.text))
    kept = {place for span in segment.copies(target) for place in range(*span)}
    spaces = [match.span() for match in re.finditer(" +", target) if match.start() not in kept]
    pieces, done = list[str](), 0
    for tag in segment.tags:
        wanted = tag.position / length * len(target)
        left = [(begin, end) for begin, end in spaces if begin >= done]
        end_of_text = len(target), len(target)
        begin, end = min(left, key=lambda space: abs(space[0] - wanted), default=end_of_text)
        pieces += [target[done:begin], tag.source]
        done = end
    return "".join([*pieces, target[done:]])
