"""Sentences of a text: what is translated by itself, and the layout between.

Lines end sentences, but for lines of running prose that were wrapped: their line breaks become tags of the segment.
So do columns: what tabs, three or more blanks, bars, bullets and arrows part.  So do labels with a stroke, a point or
an angle bracket between them ("Yes / No", "Home > News"): models take them for a sentence, and lose words.  Knows no
model; `boundaries.py` says where sentences end.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from service.records import Segmentation, Span
from service.text.boundaries import sentence_begins
from service.text.document import Part, Segment, Tag, TagKind
from service.text.patterns import SPANS

_ENDS = ".!?…‼⁇⁈⁉。｡．！？।॥؟۔։።။។᠃"
_BREAKS = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
# Where a text without any of these goes on, it is one sentence.
_MAY_END = re.compile(rf"[{_ENDS}]")
_ONE_SENTENCE = re.compile(rf"[^\W\d_](?![).])[^{_ENDS}{_BREAKS}\t|\\\u00a0]*[{_ENDS}]?\s*")
_WIDE_GAPS = "   ", "\u00a0\u00a0\u00a0"  # as between columns
_ESCAPED_BREAKS = re.compile(r"(?:\\[nrt])+")  # in strings of programs: a backslash and a letter
_GAPS = re.compile(  # what may part columns; brackets are passed over
    r"\([^()]{0,100}+\)|\[[^\[\]]{0,100}+\]|\{[^{}]{0,100}+\}|"
    r"(?P<gap>[ \u00a0\t|]++(?:(?:[•‣▪→]|(?P<weak>[/>·]))[ \u00a0]++)?)"
)
_MARKED = re.compile(r"[ \u00a0][•‣▪→/>·][ \u00a0]")
_LABEL = re.compile(r"[^\W\d_][\w'’-]*+(?: [\w'’&-]++){0,2}")
_BREAK = re.compile(rf"[{_BREAKS}]")
_LINE = re.compile(rf"[^{_BREAKS}]*(?:\r\n|[{_BREAKS}]|$)")
_MONTHS = "Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
# What may stand before the language of a line: white space, quoting, bullets, numbering, check boxes, headings.
_LAYOUT = re.compile(
    r"(?:\s+|>+(?=\s|$)|[-*+•‣◦▪▫●○■□–—·]+(?=\s)|\[[ xX✓]\](?=\s)|#{1,6}(?=\s)|"
    rf"\(?\d{{1,3}}(?:\.\d{{1,3}})*[.)](?=\s)(?!\s(?:{_MONTHS})\b)|\(?[a-zA-Z]\)(?=\s)|"
    r"(?:[a-z]|[ivx]{2,5}|[IVX]{1,5})\.(?=\s)(?!\s[a-z]\.))*"
)
_WRAPPED_FROM = 40  # characters; shorter lines end where their author wanted


class _Line(NamedTuple):
    """A line of a text."""

    begin: int
    language: int  # where its layout ends
    stop: int  # where its language ends, without white space
    end: int  # with the line break
    is_column: bool = False  # whether there are others on its line


def split(
    block: Segment,
    language: str,
    find_spans: Callable[[], Sequence[Span]] = tuple,
    segmentation: Segmentation = Segmentation.SENTENCE,
) -> list[Part]:
    """Return a block of plain text, which has no tags, in segments and what stands between them.

    Args:
        block: `text` is `source`.
        language: BCP 47, of the block.
        find_spans: gives the spans of `block.text` in which no sentence ends; asked only where one may.
        segmentation: what ends a segment.
    """
    text = block.text
    if _ONE_SENTENCE.fullmatch(text) and _WIDE_GAPS[0] not in text and not _MARKED.search(text):
        stop = len(text.rstrip())
        parts: list[Part] = [_piece(block, 0, stop, [])]
        return [*parts, text[stop:]] if stop < len(text) else parts
    parts = []
    end, spans = 0, find_spans()
    for run in _runs(text, language, spans, segmentation):
        parts.append(text[end : run[0].language])
        parts += _sentences_of(block, run, language, spans, segmentation)
        end = run[-1].stop
    parts.append(text[end:])
    return [part for part in parts if part]


def cuts(
    block: Segment,
    language: str,
    spans: Sequence[Span] = (),
    segmentation: Segmentation = Segmentation.SENTENCE,
) -> list[int]:
    """Return where in its text to cut a block of marked-up text: between sentences, and around what parts its lines.

    Args:
        block: has a tag and a space at each of its line breaks.
        language: BCP 47.
        spans: in `block.text`; no sentence ends inside one.
        segmentation: what ends a segment.
    """
    text = block.text
    laid_out = _with_line_breaks(block)
    if laid_out == text and not _has_columns(text):
        return [] if segmentation is Segmentation.LINE else boundaries(text, language, spans)
    places = set[int]()
    for run in _runs(laid_out, language, spans, segmentation):
        begin, stop = run[0].language, run[-1].stop
        places |= {begin, stop}
        if segmentation is not Segmentation.LINE:
            places.update(begin + place for place in boundaries(text[begin:stop], language, _shifted(spans, begin)))
    return sorted(places - {0, len(text)})


def _with_line_breaks(block: Segment) -> str:
    """Return the text of a block with its line breaks; a tab stands for a blank line or a wide gap."""
    breaks = [tag for tag in block.tags if tag.is_break and block.text[tag.position - 1 : tag.position] == " "]
    if not breaks:
        return block.text
    characters = list(block.text)
    for tag in breaks:
        num_lines = len(re.findall(r"\r\n|[\r\n]", tag.source)) if tag.source.isspace() else 1
        characters[tag.position - 1] = "\n" if num_lines == 1 else "\t"
    return "".join(characters)


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


def _runs(text: str, language: str, spans: Sequence[Span], segmentation: Segmentation) -> Iterator[list[_Line]]:
    """Yield lines that belong together: one, or several of wrapped prose; none inside a span of several lines."""
    wide = [span for span in spans if _BREAK.search(text, *span)]
    known = [Span(*match.span(1)) for match in SPANS.finditer(text) if match.lastindex] if _has_columns(text) else []
    written = [span for span in known if _ESCAPED_BREAKS.fullmatch(text, *span)]
    if written:
        text, known = _unescaped(text, written), sorted({*known}.difference(written))
    for begin, end in zip([0, *(span.end for span in wide)], [*(span.begin for span in wide), len(text)], strict=True):
        run: list[_Line] = []
        for line in _lines(text, begin, end, known):
            if run and not _goes_on(text, run[-1], line, language, segmentation):
                yield run
                run = []
            if line.language < line.stop:
                run.append(line)
        if run:
            yield run


def _has_columns(text: str) -> bool:
    """Whether a text may have columns or line breaks as programs write them."""
    return (
        "\t" in text
        or "|" in text
        or "\\" in text
        or any(gap in text for gap in _WIDE_GAPS)
        or _MARKED.search(text) is not None
    )


def _unescaped(text: str, written: Sequence[Span]) -> str:
    """Return a text with line breaks and tabs in place of these that are written as in a program, places as before."""
    pieces, place = list[str](), 0
    for span in written:
        breaks = text[slice(*span)].replace("\\n", "\r\n").replace("\\r", "  ").replace("\\t", " \t")
        pieces += [text[place : span.begin], breaks]
        place = span.end
    return "".join([*pieces, text[place:]])


def _lines(text: str, begin: int, end: int, known: Sequence[Span]) -> Iterator[_Line]:
    """Yield the lines and columns between two places.

    Args:
        text: with its line breaks.
        begin: of the first line.
        end: of the last line.
        known: spans of the patterns; no column ends inside one.
    """
    for match in _LINE.finditer(text, begin, end):
        first, last = match.span()
        if first == last:
            return
        stop = first + len(match.group().rstrip())
        layout = _LAYOUT.match(text, first, stop)
        start = layout.end() if layout else first
        gaps = _gaps(text, start, stop, known) if _has_columns(match.group()) else []
        if _is_spaced_out(text, gaps, stop):
            gaps = []
        begins = [start, *(gap.end for gap in gaps)]
        ends = [*(gap.begin for gap in gaps), stop]
        for column, (left, right) in enumerate(zip(begins, ends, strict=True)):
            yield _Line(left if column else first, left, right, right if column < len(gaps) else last, bool(gaps))


def _gaps(text: str, begin: int, end: int, known: Sequence[Span]) -> list[Span]:
    """Return what parts the columns of a line."""
    weak, strong = list[Span](), list[Span]()
    for match in _GAPS.finditer(text, begin, end):
        gap = match["gap"]
        if gap and ("\t" in gap or "|" in gap or len(gap) >= len(_WIDE_GAPS[0])):
            index = bisect_left(known, Span(match.end(), 0)) - 1
            if index < 0 or known[index].end <= match.start() or match.start() <= known[index].begin:
                (weak if match["weak"] else strong).append(Span(*match.span()))
    if weak:
        gaps = sorted([*weak, *strong])
        ends = zip([begin, *(gap.end for gap in gaps)], [*(gap.begin for gap in gaps), end], strict=True)
        return gaps if _are_labels([text[slice(*piece)] for piece in ends]) else strong
    return strong


def _are_labels(pieces: Sequence[str]) -> bool:
    """Whether what strokes part are the words of a menu or of a choice: short, with capitals or single and several."""
    is_list = len(pieces) > 2 and not any(" " in piece for piece in pieces)
    return all(_LABEL.fullmatch(piece) and (is_list or piece[0].isupper()) for piece in pieces)


def _is_spaced_out(text: str, gaps: Sequence[Span], stop: int) -> bool:
    """Whether the gaps of a line stand between the words of one sentence: "The   bus   is   late."."""
    is_sentence = len(gaps) > 1 and text[stop - 1] in ".!?"
    return is_sentence and all(not text[slice(*gap)].strip(" \u00a0") and text[gap.end].islower() for gap in gaps)


def _goes_on(text: str, line: _Line, following: _Line, language: str, segmentation: Segmentation) -> bool:
    """Whether the following line continues the sentence of a line: it was full, had no end, and nothing is set off."""
    if line.is_column or following.is_column or segmentation is Segmentation.SENTENCE_AND_LINE:
        return False
    if segmentation is Segmentation.SENTENCE_ACROSS_LINES:
        is_blank = following.language == following.stop
        return not is_blank and not text[following.begin : following.language].strip()
    is_full = line.stop - line.begin >= _WRAPPED_FROM
    has_end = text[line.stop - 1] in ".!?:;…。！？"
    layout = text[following.begin : following.language]
    first = text[following.language : following.language + 1]
    is_inside = first.isalpha() if _primary(language) == "de" else first.islower()  # any noun may be upper case
    return is_full and not has_end and not layout.strip() and is_inside


def _primary(language: str) -> str:
    """Return the language without script and region: "en" for "en-US"."""
    return language.partition("-")[0].lower()


def _sentences_of(
    block: Segment, run: Sequence[_Line], language: str, spans: Sequence[Span], segmentation: Segmentation
) -> Iterator[Part]:
    """Yield the sentences of some lines, with the white space between them."""
    text = block.text
    begin, stop = run[0].language, run[-1].stop
    breaks = [Span(line.stop, after.language) for line, after in pairwise(run)]
    ends = [begin, *(gap.end for gap in breaks)], [*(gap.begin for gap in breaks), stop]
    lines = [text[first:last] for first, last in zip(*ends, strict=True)]
    blanks = [" " * (gap.end - gap.begin) for gap in breaks]  # as long as the line breaks: places stay
    flat = "".join(line + blank for line, blank in zip(lines, [*blanks, ""], strict=True))
    inner = [] if segmentation is Segmentation.LINE else boundaries(flat, language, _shifted(spans, begin))
    places = [0, *inner, len(flat)]
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


def _shifted(spans: Sequence[Span], begin: int) -> list[Span]:
    """Return the spans of a text in what begins there."""
    return [Span(span.begin - begin, span.end - begin) for span in spans if begin < span.end]


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
        words.append(" ")
        offsets_of.append(block.begin + gap.begin)
        tags.append(Tag(len(offsets_of), source, TagKind.POINT, begin=block.begin + gap.begin, is_break=True))
        place = gap.end
    words.append(block.text[place:end])
    offsets_of += range(block.begin + place, block.begin + end)
    return Segment(text, block.begin + begin, "".join(words), tuple(tags), offsets=tuple(offsets_of))


def rewrap(segment: Segment, target: str) -> str:
    """Return a translation of a segment's text with the line breaks of the segment, whose only tags they are."""
    pieces, done = list[str](), 0
    for space, source in places_of_breaks(segment, target):
        pieces += [segment.escape(target[done : space.begin]), source]
        done = space.end
    return "".join([*pieces, segment.escape(target[done:])])


def places_of_breaks(segment: Segment, target: str) -> list[tuple[Span, str]]:
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
