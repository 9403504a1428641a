"""How protected spans come back: as they are, in place of a stand-in, by alignment, or cut out of the segment.

Pure steps of a ladder: whoever drives it asks `find_copies` or `is_intact` after each step and goes on to the next.
Knows no model; the spans are those of `spans.find_spans`.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from service.records import Link, Span
from service.text.document import Segment
from service.text.patterns import UNSPACED
from service.text.protect import IN_WORD, Alphabet

_OPENING = frozenset("([{<«‹“„‚‘¿¡")
_CLOSING = frozenset(".,;:!?)]}>»›”’…%。、，；：！？）」』")
_SENTENCE_END = frozenset(".!?:…。！？")
_OF_PLACEHOLDERS = frozenset("{}%$<>`\\/:@#")
_OF_FIXED_LENGTH = "%\\"  # begin placeholders and escapes, right behind which a word may begin: "%dmin", "\\nYes"
_RELATION = re.compile(r"[=<>≤≥≈±]{1,2}\s")  # "Total = 5"
_IN_WORD = re.compile(IN_WORD)
_UNSPACED_CHARACTER = re.compile(f"[{UNSPACED}]")

_MARKS = re.compile(r"[*_~'\[(]++|</?\w[^<>]*+>|\[/?\w[^\[\]]*+\]|\]\([^\s]*+\)")  # belong to the words that they touch
_ESCAPED_SPACE = re.compile(r"(?:\\{1,2}(?:[nrt]|u00a0|u00A0|u0020|xa0|xA0|x20))++")

# Tried in turn.  Of 265 sentences with one or two of them the included models copied the first in 99 % and one of the
# first two in all, "%s" itself in 5 % (bench/quality/stand_ins.py, which has what others came to).
STAND_INS = (
    tuple(f"X{letter}" for letter in "ABPRSTCDNHKMGFWYZ"),
    ("5284", "6937", "9157", "3826", "7391", "8462", "4957", "2683"),
    tuple(f"X{digit}" for digit in range(1, 10)),
)


class Side(StrEnum):
    """Where the words that belong to a sign stand, without a space but for those of `APART`."""

    AFTER = "after"  # "**Note", "[the page"
    BEFORE = "before"
    APART = "apart"  # "fish & chips"


class StandIn(NamedTuple):
    """A short word that a model copies, in place of a span."""

    word: str
    text: str  # of the span
    is_tied_left: bool  # to the word before, without a space; where it is tied, the stand-in has a space all the same
    is_tied_right: bool
    side: Side | None = None

    @property
    def spaced(self) -> str:
        """The word as it stands in the text."""
        return f"{' ' * self.is_tied_left}{self.word}{' ' * self.is_tied_right}"


class Gap(NamedTuple):
    """A place that a span was taken out of."""

    position: int  # in the text without spans
    text: str  # of the span
    is_tied_left: bool  # no space stood between it and what comes before
    is_tied_right: bool


class _Place(NamedTuple):
    position: int  # in the translation
    is_before: bool  # the word that it goes with, rather than after it


def find_copies(texts: Sequence[str], target: str) -> tuple[Span, ...] | None:
    """Return where the texts of spans stand in a translation, in its order; None unless each stands there once.

    A text that several spans have must stand there as often.  Inside another word is not counted.
    """
    wanted = Counter(texts)
    found = find_all(wanted, target)
    if any(len(found[text]) != count for text, count in wanted.items()):
        return None
    return tuple(sorted([span for spans in found.values() for span in spans]))


def find_all(texts: Iterable[str], target: str) -> dict[str, list[Span]]:
    """Return where each text stands in a translation, not in a longer one of them nor inside another word."""
    taken = bytearray(len(target))
    found: dict[str, list[Span]] = {}
    for text in sorted(set(texts), key=len, reverse=True):
        found[text] = [span for span in _occurrences(text, target) if not any(taken[span.begin : span.end])]
        for begin, end in found[text]:
            taken[begin:end] = b"\1" * (end - begin)
    return found


def is_intact(texts: Sequence[str], target: str) -> bool:
    """Whether a translation has each text as often as it is given, and no more often."""
    return find_copies(texts, target) is not None


def with_stand_ins(
    text: str, spans: Sequence[Span], alphabet: Alphabet, *, attempt: int = 0
) -> tuple[str, tuple[StandIn, ...]] | None:
    """Replace each span by a word that is not in the text; None if there are too many spans or no more attempts.

    Args:
        attempt: 0, 1, ...: each takes other words.
    """
    usable = [words for words in STAND_INS if not alphabet.lacks("".join(words))]
    if attempt >= len(usable):
        return None
    words = [word for word in usable[attempt] if word not in text]
    if len(words) < len(spans):
        return None
    stand_ins = tuple(_stand_in(text, span, word) for span, word in zip(spans, words, strict=False))
    return replaced(text, spans, [one.spaced for one in stand_ins]), stand_ins


def with_sentinels(text: str, spans: Sequence[Span], sentinels: Sequence[str]) -> tuple[str, tuple[StandIn, ...]]:
    """Replace each span by a sentinel; escapes of white space are apart from the words around them."""
    stand_ins = tuple(
        made if _ESCAPED_SPACE.fullmatch(made.text) else made._replace(is_tied_left=False, is_tied_right=False)
        for span, sentinel in zip(spans, sentinels, strict=False)
        for made in (_stand_in(text, span, sentinel),)
    )
    return replaced(text, spans, [one.spaced for one in stand_ins]), stand_ins


def put_back(target: str, stand_ins: Sequence[StandIn]) -> str | None:
    """Return a translation with the spans in place of their stand-ins; None if one is missing, doubled or changed."""
    copies = find_copies([one.word for one in stand_ins], target)
    if copies is None or any(target.count(one.word) != 1 for one in stand_ins):
        return None
    by_word = {one.word: one for one in stand_ins}
    found = [by_word[target[copy.begin : copy.end]] for copy in copies]
    wide = [_with_spaces(target, copy, one) for copy, one in zip(copies, found, strict=True)]
    return replaced(target, wide, [_at_side(target, span, one) for span, one in zip(wide, found, strict=True)])


def take_out(text: str, spans: Sequence[Span]) -> tuple[str, tuple[Gap, ...]]:
    """Return the text without the spans and without the spaces that are then too many, and where the spans were."""
    if not spans:
        return text, ()
    without = text[: spans[0].begin]
    gaps = []
    for span, end in zip(spans, [*(span.begin for span in spans[1:]), len(text)], strict=True):
        after = text[span.end : end]
        if not without or without[-1].isspace() or without[-1] in _OPENING:
            after = after.lstrip()
            if after[:1] in _CLOSING:
                without = without.rstrip()
        gaps.append(Gap(len(without), text[span.begin : span.end], *_ties(text, span)))
        without += after
    without = without.rstrip()
    return without, tuple(gap._replace(position=min(gap.position, len(without))) for gap in gaps)


def insert_by_links(without: str, gaps: Sequence[Gap], target: str, links: Sequence[Link]) -> str | None:
    """Return a translation with spans put back before the word linked to the next word, or after that of the last one.

    Args:
        without: the text without spans, and its gaps, from `take_out`.
        target: the translation of `without`.
        links: between the words of both.

    Returns:
        None if no word beside a gap has a link.
    """
    befores, afters = _nearest(links)
    places = [_place(without, gap, target, befores, afters) for gap in gaps]
    found = [(gap, place) for gap, place in zip(gaps, places, strict=True) if place is not None]
    if len(found) < len(gaps):
        return None
    result, end = "", 0
    for gap, place in sorted(found, key=lambda one: one[1].position):
        result += target[end : place.position]
        end = place.position
        left = _space(result[-1:], _OPENING, is_tied=gap.is_tied_left and not place.is_before)
        right = _space(target[end : end + 1], _CLOSING, is_tied=gap.is_tied_right and place.is_before)
        result += f"{left}{gap.text}{right}"
    return result + target[end:]


def cut_at(text: str, spans: Iterable[Span]) -> list[str | Span]:
    """Return the spans and, as they are, the pieces between them, in order; no piece is empty."""
    pieces: list[str | Span] = []
    end = 0
    for span in spans:
        pieces += [text[end : span.begin], span] if end < span.begin else [span]
        end = span.end
    return [*pieces, text[end:]] if end < len(text) else pieces


def strip_outer(segment: Segment) -> tuple[str, Segment | None, str]:
    """Return a segment without the spans at its ends that say nothing in its sentence, and what stood on both sides.

    These are pictures, signs and brackets, and whatever comes after the end of the sentence; a name or a placeholder is
    part of the sentence.  None: nothing else is left.
    """
    begin, end = _ends(segment.text, segment.spans)
    if begin >= end:
        return segment.source, None, ""
    if any(tag.position < begin for tag in segment.tags):
        begin = 0
    if any(tag.shown.end > end for tag in segment.tags):
        end = len(segment.text)
    tags = [tag.begin - segment.begin for tag in segment.tags if tag.position == begin]
    left = min([_source_index(segment, begin), *tags]) if begin else 0
    right = _source_index(segment, end) if end < len(segment.text) else len(segment.source)
    inner = segment._replace(
        source=segment.source[left:right],
        begin=segment.begin + left,
        text=segment.text[begin:end],
        tags=tuple(tag._replace(position=tag.position - begin) for tag in segment.tags),
        spans=tuple(Span(one.begin - begin, one.end - begin) for one in segment.spans if begin <= one.begin < end),
        offsets=segment.offsets and segment.offsets[begin:end],
    )
    return segment.source[:left], inner, segment.source[right:]


def _occurrences(text: str, target: str) -> Iterator[Span]:
    """Yield where a text stands and does not go on as a word at either end."""
    is_tied_left = _is_in_word(text[0])
    is_tied_right = _is_in_word(text[-1]) and text[0] not in _OF_FIXED_LENGTH
    begin = target.find(text)
    while begin >= 0:
        end = begin + len(text)
        is_inside = is_tied_left and _is_in_word(target[begin - 1 : begin] if begin else "")
        if not (is_inside or (is_tied_right and _is_in_word(target[end : end + 1]))):
            yield Span(begin, end)
            begin = target.find(text, end)
        else:
            begin = target.find(text, begin + 1)


def _ties(text: str, span: Span) -> tuple[bool, bool]:
    """Say whether no white space stands before and after a span."""
    before, after = text[: span.begin][-1:], text[span.end : span.end + 1]
    return before != "" and not before.isspace(), after != "" and not after.isspace()


def _stand_in(text: str, span: Span, word: str) -> StandIn:
    """Return the stand-in of a span; it is tied where a letter, a digit or a span touches it."""
    before, after = text[: span.begin][-1:], text[span.end : span.end + 1]
    shown = text[span.begin : span.end]
    return StandIn(word, shown, _is_in_word(before), _is_in_word(after), _side(shown, before, after))


def _side(shown: str, before: str, after: str) -> Side | None:
    if before.isspace() and _RELATION.match(shown):
        return Side.APART
    if before.isspace() and after.isspace():
        return Side.APART if _is_sign(shown) or len(shown) == 1 else None
    if not _MARKS.fullmatch(shown) or _is_in_word(before) is _is_in_word(after):
        return None
    return Side.AFTER if _is_in_word(after) else Side.BEFORE


def _is_in_word(character: str) -> bool:
    """Whether a character makes a word with those beside it."""
    return _IN_WORD.match(character) is not None


def _with_spaces(target: str, copy: Span, stand_in: StandIn) -> Span:
    """Return the place of a stand-in with the space that was put beside it."""
    begin, end = copy
    if stand_in.side is Side.APART:
        begin -= _is_in_word(target[max(0, begin - 2) : begin][:1]) and target[begin - 1] == "-"
        end += target[end : end + 1] == "-" and _is_in_word(target[end + 1 : end + 2])
        return Span(begin, end)
    begin -= (stand_in.is_tied_left or stand_in.side is Side.BEFORE) and target[:begin].endswith(" ")
    end += (stand_in.is_tied_right or stand_in.side is Side.AFTER) and target[end:].startswith(" ")
    return Span(begin, end)


def _at_side(target: str, place: Span, stand_in: StandIn) -> str:
    """Return the text of a span with spaces where it has to be apart from words."""
    if stand_in.side is not Side.APART:
        return stand_in.text
    before, after = target[: place.begin][-1:], target[place.end :][:1]
    return f"{' ' * _is_in_word(before)}{stand_in.text}{' ' * _is_in_word(after)}"


def replaced(text: str, spans: Iterable[Span], replacements: Iterable[str]) -> str:
    """Return the text with other texts in place of the spans."""
    pieces, end = [], 0
    for span, replacement in zip(spans, replacements, strict=True):
        pieces += [text[end : span.begin], replacement]
        end = span.end
    return "".join((*pieces, text[end:]))


def _space(neighbour: str, tight: frozenset[str], *, is_tied: bool) -> str:
    """Return the space that has to stand between a span and the character next to it."""
    is_apart = is_tied or neighbour in tight or neighbour.isspace() or _UNSPACED_CHARACTER.match(neighbour)
    return "" if not neighbour or is_apart else " "


def _nearest(links: Iterable[Link]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the ends of linked words with those of their last targets, and begins with those of the first; sorted."""
    befores: dict[int, int] = {}
    afters: dict[int, int] = {}
    for source, target in links:
        befores[source.end] = max(target.end, befores.get(source.end, 0))
        afters[source.begin] = min(target.begin, afters.get(source.begin, target.begin))
    return dict(sorted(befores.items())), dict(sorted(afters.items()))


def _place(without: str, gap: Gap, target: str, befores: dict[int, int], afters: dict[int, int]) -> _Place | None:
    goes_with_last = _goes_with_last(without, gap)
    options = []
    ends, begins = list(befores), list(afters)
    if (number := bisect_left(begins, gap.position)) < len(begins):
        begin = begins[number]
        position = afters[begin]
        if not _OPENING.isdisjoint(without[gap.position : begin]):
            position = len(target[:position].rstrip("".join(_OPENING)))
        options.append((begin - gap.position, goes_with_last, _Place(position, is_before=True)))
    if number := bisect_right(ends, gap.position):
        end = ends[number - 1]
        position = befores[end]
        if not _CLOSING.isdisjoint(without[end : gap.position]):
            position = len(target) - len(target[position:].lstrip("".join(_CLOSING)))
        options.append((gap.position - end, not goes_with_last, _Place(position, is_before=False)))
    # Words right beside the gap first, of these the one that the span goes with.
    return min(options, key=lambda one: (max(one[0], 1), one[1]))[2] if options else None


def _goes_with_last(without: str, gap: Gap) -> bool:
    """Whether a span goes with the word before it: it is tied to it, or a sentence or clause ends after the span."""
    after = without[gap.position :].lstrip()[:1]
    is_tied = gap.is_tied_left and _is_in_word(without[: gap.position][-1:])
    return is_tied or not after or after in _CLOSING


def _ends(text: str, spans: Sequence[Span]) -> tuple[int, int]:
    """Return begin and end of a text without the spans at its ends that say nothing in its sentence."""
    begin, end = 0, len(text)
    for span in spans:
        if span.begin != begin or not _is_sign(text[span.begin : span.end]) or _marks_a_key(text, span):
            break
        begin = span.end + len(text[span.end :]) - len(text[span.end :].lstrip())
    for span in reversed(spans):
        before = text[: span.begin].rstrip()
        is_apart = _is_sign(text[span.begin : span.end]) or before[-1:] in _SENTENCE_END
        if span.end != end or not is_apart:
            break
        end = len(before)
    return begin, end


def _marks_a_key(text: str, span: Span) -> bool:
    return text[span.begin : span.end] in ("&", "_") and text[span.end : span.end + 1].isalpha()


def _is_sign(text: str) -> bool:
    return not any(character.isalnum() or character in _OF_PLACEHOLDERS for character in text)


def _source_index(segment: Segment, position: int) -> int:
    """Return where a code point of the segment's text stands in its source."""
    return position if segment.offsets is None else segment.offsets[position] - segment.begin
