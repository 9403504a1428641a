"""Sentences of a text: what is translated by itself, and the layout between.

Lines end sentences, but for lines of running prose that were wrapped: their line breaks become tags of the segment.
So do columns: what tabs, three or more blanks, bars, bullets and arrows part.  So do labels with a stroke, a point or
an angle bracket between them ("Yes / No", "Home > News"): models take them for a sentence, and lose words.  Knows no
model; `sentence_boundaries.py` says where sentences end.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise, zip_longest
from typing import NamedTuple
from unicodedata import category

from service.records import Segmentation, Span
from service.text.alignment import edited
from service.text.languages import primary
from service.text.numbers import MONTHS
from service.text.segments import Part, Segment, Tag, TagKind, between, span_around
from service.text.sentence_boundaries import sentence_begins
from service.text.span_patterns import CODE, SPANS

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
# What may stand before the language of a line: white space, quoting, bullets, numbering, check boxes, headings.
_LAYOUT = re.compile(
    r"(?:\s+|>+(?=\s|$)|[-*+•‣◦▪▫●○■□–—·]+(?=\s)|\[[ xX✓]\](?=\s)|#{1,6}(?=\s)|"
    rf"\(?\d{{1,3}}(?:\.\d{{1,3}})*[.)](?=\s)(?!\s(?:{'|'.join(MONTHS['de'])})\b)|\(?[a-zA-Z]\)(?=\s)|"
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
    """Return where in its text to cut a block of marked-up text: between sentences, and around what parts its lines."""
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
    """Return where the sentences of a text begin, but the first; its line breaks are spaces."""
    if not _MAY_END.search(text, 0, max(0, len(text) - 1)):
        return []
    begins, places, index = sentence_begins(text, primary(language)), list[int](), 0
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
    code = [Span(*match.span()) for match in CODE.finditer(text)] if known else []
    written = [
        one for one in known if _ESCAPED_BREAKS.fullmatch(text, *one) and not any(a < one.begin < b for a, b in code)
    ]
    if written:
        text, known = _unescaped(text, written), sorted({*known}.difference(written))
    for begin, end in between(wide, 0, len(text)):
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
    breaks = [text[slice(*span)].replace("\\n", "\r\n").replace("\\r", "  ").replace("\\t", " \t") for span in written]
    return edited(text, zip(written, breaks, strict=True)).text


def _lines(text: str, begin: int, end: int, known: Sequence[Span]) -> Iterator[_Line]:
    """Yield the lines and columns between two places."""
    for match in _LINE.finditer(text, begin, end):
        first, last = match.span()
        if first == last:
            return
        stop = first + len(match.group().rstrip())
        layout = _LAYOUT.match(text, first, stop)
        start = layout.end() if layout else first
        gaps = _gaps(text, start, stop, known) if _has_columns(match.group()) else []
        is_sentence = len(gaps) > 1 and text[stop - 1] in ".!?"  # "The   bus   is   late."
        if is_sentence and all(not text[slice(*gap)].strip(" \u00a0") and text[gap.end].islower() for gap in gaps):
            gaps = []
        for column, (left, right) in enumerate(between(gaps, start, stop)):
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
        pieces = [text[slice(*piece)] for piece in between(gaps, begin, end)]
        # The words of a menu or of a choice are short, with capitals or single and several.
        is_list = len(pieces) > 2 and not any(" " in piece for piece in pieces)
        if all(_LABEL.fullmatch(piece) and (is_list or piece[0].isupper()) for piece in pieces):
            return gaps
    return strong


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
    is_inside = first.isalpha() if primary(language) == "de" else first.islower()  # any noun may be upper case
    return is_full and not has_end and not layout.strip() and is_inside


def _sentences_of(
    block: Segment, run: Sequence[_Line], language: str, spans: Sequence[Span], segmentation: Segmentation
) -> Iterator[Part]:
    """Yield the sentences of some lines, with the white space between them."""
    text, begin = block.text, run[0].language
    breaks = [Span(line.stop, after.language) for line, after in pairwise(run)]
    flat = _BREAK.sub(" ", text[begin : run[-1].stop])
    inner = [] if segmentation is Segmentation.LINE else boundaries(flat, language, _shifted(spans, begin))
    for place, end in pairwise([begin, *(begin + place for place in inner), run[-1].stop]):
        sentence = text[place:end]
        first = end - len(sentence.lstrip())
        last = max(first, place + len(sentence.rstrip()))
        yield text[place:first]
        yield _piece(block, first, last, breaks) if any(map(str.isalpha, sentence)) else text[first:last]
        yield text[last:end]


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
    pieces = between(inner, begin, end)
    offsets_of, tags = list[int](), list[Tag]()
    for piece, gap in zip_longest(pieces, inner):
        offsets_of += range(block.begin + piece.begin, block.begin + piece.end)
        if gap:
            offsets_of.append(block.begin + gap.begin)
            source = block.text[slice(*gap)]
            tags.append(Tag(len(offsets_of), source, TagKind.POINT, begin=block.begin + gap.begin, is_break=True))
    words = " ".join([block.text[slice(*piece)] for piece in pieces])
    return Segment(text, block.begin + begin, words, tuple(tags), offsets=tuple(offsets_of))


# An overlong sentence in pieces.  A place for a cut costs this much, and up to 1 for its distance from where pieces of
# equal length would end: of two commas the nearer one is taken, of a comma and a space the comma, however far.
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


def cut(
    text: str, count_tokens: Callable[[str], int], limit: int, *, language: str = "", spans: Sequence[Span] = ()
) -> list[str]:
    """Return a sentence in pieces of at most `limit` tokens and similar length; joined they are the text.

    Cuts after semicolons, colons and dashes, after commas and before conjunctions; where none is near, at white space,
    and in one endless word or a script without spaces between any two characters.  What one character or one span
    takes more tokens for than the limit stays too long.  Tokens are counted about twice for each part of the text.

    Args:
        text: the sentence.
        count_tokens: gives the number of tokens of a piece; it may count end-of-sentence.
        limit: at least 1.
        language: of the text, BCP 47; empty: without conjunctions.
        spans: parts that stay whole, in order.
    """
    places: list[tuple[int, float]] | None = None
    pieces, waiting = list[str](), [(0, len(text))]
    while waiting:
        begin, end = waiting.pop()
        num_tokens = count_tokens(text[begin:end])
        edges = [begin, end]
        if num_tokens > limit:
            places = _places(text, primary(language), spans) if places is None else places
            edges = _edges(text, places, spans, begin, end, max(2, math.ceil(num_tokens / (limit * _FILL))))
        if len(edges) == 2:
            pieces.append(text[begin:end])
        else:
            waiting.extend(reversed(list(pairwise(edges))))
    return pieces


def _places(text: str, language: str, spans: Sequence[Span]) -> list[tuple[int, float]]:
    """Return the places that the punctuation, the words and the spaces offer, in order, and what each costs."""
    return [
        (match.end(), _COSTS[match.lastgroup or ""])
        for match in _offers(language).finditer(text)
        if 0 < match.end() < len(text) and span_around(match.end(), spans) is None
    ]


@cache
def _offers(language: str) -> re.Pattern[str]:
    kinds = [
        rf"(?P<clause>[;:\u061b]\s+|[{_WIDE_STOPS}]\s*|\s+[-\u2013\u2014]\s+|\u2014\s*)",
        r"(?P<comma>[,\u060c]\s+|[\uff0c\u3001]\s*)",
    ]
    if language in _CONJUNCTIONS:
        kinds.append(rf"(?P<conjunction>\s+(?=(?:{_CONJUNCTIONS[language]})\s))")
    return re.compile("|".join([*kinds, r"(?P<space>\s+)"]), re.IGNORECASE)


def _edges(
    text: str, places: Sequence[tuple[int, float]], spans: Sequence[Span], begin: int, end: int, num_pieces: int
) -> list[int]:
    """Return where so many pieces of text[begin:end] begin and end; fewer where there is no place for a cut."""

    def between(first: int, last: int) -> Sequence[tuple[int, float]]:
        return places[bisect_left(places, (first, 0.0)) : bisect_left(places, (last, 0.0))]

    length = (end - begin) / num_pieces
    edges = [begin]
    for number in range(1, num_pieces):
        wanted = begin + int(number * length)
        reach = int(_REACH * length)
        if near := between(max(edges[-1] + 1, wanted - reach), min(end - 1, wanted + reach) + 1):
            edges.append(min(near, key=lambda place: place[1] + abs(place[0] - wanted) / length)[0])
        elif (position := _between_characters(text, wanted, spans)) in range(edges[-1] + 1, end):
            edges.append(position)
    if len(edges) == 1 and (inside := between(begin + 1, end)):  # a span is in the way
        edges.append(min(inside, key=lambda place: abs(place[0] - (begin + end) // 2))[0])
    return [*edges, end]


def _between_characters(text: str, position: int, spans: Sequence[Span]) -> int:
    """Return the nearest place at or before the position that tears neither a character nor a span apart."""
    while position > 0:
        if span := span_around(position, spans):
            position = span.begin
        elif category(text[position])[0] == "M" or text[position] in _JOINERS or text[position - 1] == "\u200d":
            position -= 1
        else:
            break
    return position
