"""How the spans of a segment survive its translation: a strategy is a text for the model, and how to mend its answer.

    "&" and the like read as words, if the segment has some: `abbreviations.py`
    -> a token that the model copies in the place of each span, if the model has such tokens
    -> a short word in the place of each span -> the segment cut in pieces at its spans

Models lose most spans if they get them as they are (`bench/quality/stand_ins.py`), so that is not tried.  Knows neither
the model nor the engine.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from service.records import Link, Span
from service.text.abbreviations import Read, read
from service.text.alignment import edited, moved
from service.text.protected_spans import IN_WORD, Alphabet
from service.text.segments import Segment
from service.text.span_patterns import EMOTICON

Answer: TypeAlias = tuple[str, Sequence[Link]]  # a translation, and its links with the text that it is of
# From the translation of the strategy's text to that of the segment; None: a span would be lost.
Restore = Callable[[str, Sequence[Link]], Answer | None]

# Words that models copy, tried in turn.  Of 265 sentences with one or two of them the included models copied the first
# in 99 % and one of both in all, "%s" itself in 5 % (bench/quality/stand_ins.py, which has what others came to).
STAND_INS = (
    tuple(f"X{letter}" for letter in "ABPRSTCDNHKMGFWYZ"),
    ("5284", "6937", "9157", "3826", "7391", "8462", "4957", "2683"),
)
_OF_FIXED_LENGTH = "%\\"  # begin placeholders and escapes, right behind which a word may begin: "%dmin", "\\nYes"
_RELATION = re.compile(r"[=<>≤≥≈±]{1,2}\s")  # "Total = 5"
_MARKS = re.compile(r"[*_~'\[(]++|</?\w[^<>]*+>|\[/?\w[^\[\]]*+\]|\]\([^\s]*+\)")  # belong to the words that they touch
_EMOTICON = re.compile(EMOTICON)
_ESCAPED_SPACE = re.compile(r"(?:\\{1,2}(?:[nrt]|u00a0|u00A0|u0020|xa0|xA0|x20))++")
_IN_WORD = re.compile(IN_WORD)


class Strategy(NamedTuple):
    """A way to keep the spans of a segment."""

    text: str  # what the model gets
    restore: Restore
    kept: tuple[str, ...] = ()  # parts of `text` that stay as they are
    is_marked: bool = False  # whether `text` has sentinels
    pieces: tuple[str, ...] = ()  # `text` in pieces that are translated apart; those without language stay


def strategies(
    segment: Segment,
    spans: Sequence[Span],
    alphabet: Alphabet,
    sentinels: Sequence[str] = (),
    written: Mapping[Span, str] = MappingProxyType({}),
    languages: tuple[str, str] = ("", ""),
) -> Iterator[Strategy]:
    """Yield the strategies for a segment, the best first.

    Args:
        segment: with its text, which may have signs that are read as words.
        spans: in the text, in order.
        alphabet: of the model.
        sentinels: tokens that the model copies.
        written: what stands in the translation for spans that do not come back as they are.
        languages: of source and target, BCP 47.
    """
    if (found := read(segment.text, spans, *languages)) is not None:
        forms = {found.spans[span]: form for span, form in written.items() if span in found.spans}
        without = segment._replace(text=found.text)
        strategy = next(_of_spans(without, tuple(found.spans.values()), alphabet, sentinels, forms))
        yield strategy._replace(restore=_with_signs(strategy.restore, found))
    yield from _of_spans(segment, spans, alphabet, sentinels, written)


def _with_signs(restore: Restore, found: Read) -> Restore:
    """Return what restores as well, and writes the signs."""

    def with_signs(target: str, links: Sequence[Link]) -> Answer | None:
        restored = restore(target, links)
        written = None if restored is None else found.written(restored[0])
        if restored is None or written is None:
            return None
        return written.text, moved(restored[1], found.origin, written.moved)

    return with_signs


def _of_spans(
    segment: Segment,
    spans: Sequence[Span],
    alphabet: Alphabet,
    sentinels: Sequence[str],
    written: Mapping[Span, str],
) -> Iterator[Strategy]:
    text = segment.text
    if not spans:
        yield Strategy(text, lambda target, links: (target.strip(), links))
        return
    kept = tuple([written.get(span, text[slice(*span)]) for span in spans])
    counts = _counts(kept, edited(text, zip(spans, kept, strict=True)).text)
    if len(spans) <= len(sentinels):
        yield _with_words(text, spans, kept, counts, sentinels, is_marked=True)
    for words in STAND_INS:
        usable = [word for word in words if word not in text and word not in segment.source]
        if len(usable) >= len(spans) and not alphabet.lacks("".join(words)):
            yield _with_words(text, spans, kept, counts, usable)
    yield _in_pieces(text, spans, kept, counts)


_Counts: TypeAlias = Mapping[str, tuple[int, int]]


def _counts(kept: Sequence[str], text: str) -> _Counts:
    """Return how often a text has each span: anywhere, and outside of other words."""
    return {one: (text.count(one), len(places)) for one, places in find_all(kept, text).items()}


def _in_pieces(text: str, spans: Sequence[Span], kept: tuple[str, ...], counts: _Counts) -> Strategy:
    pieces, end = list[str](), 0
    for span, shown in zip(spans, kept, strict=True):
        pieces += [text[end : span.begin], shown] if end < span.begin else [shown]
        end = span.end
    pieces += [text[end:]] if end < len(text) else []

    def restore(target: str, _: Sequence[Link]) -> Answer | None:
        return (target.strip(), ()) if _counts(kept, target) == counts else None

    return Strategy(text, restore, kept, pieces=tuple(pieces))


class _Side(StrEnum):
    """Where the words that belong to a sign stand, without a space but for those of `APART`."""

    AFTER = "after"  # "**Note", "[the page"
    BEFORE = "before"
    APART = "apart"  # "fish & chips"


class _StandIn(NamedTuple):
    """A word or a sentinel in the place of a span."""

    word: str
    text: str  # what it stands for
    is_tied_left: bool  # to the word before, without a space; where it is tied, the stand-in has a space all the same
    is_tied_right: bool
    side: _Side | None


def _with_words(
    text: str,
    spans: Sequence[Span],
    kept: tuple[str, ...],
    counts: _Counts,
    words: Sequence[str],
    *,
    is_marked: bool = False,
) -> Strategy:
    """Return the strategy that has one of these words in the place of each span."""
    plain = text.translate({ord(sentinel): " " for sentinel in words}) if is_marked else text
    used, others = tuple(words[: len(spans)]), words[len(spans) :] if is_marked else ()
    stand_ins = [_stand_in(text, *one, is_marked=is_marked) for one in zip(spans, used, kept, strict=True)]
    spaced = [f"{' ' * one.is_tied_left}{one.word}{' ' * one.is_tied_right}" for one in stand_ins]
    asked = edited(plain, zip(spans, spaced, strict=True))

    def restore(target: str, links: Sequence[Link]) -> Answer | None:
        edits = list[tuple[Span, str]]()
        for one in stand_ins:
            place = next(occurrences(one.word, target), None)
            if place is None or target.count(one.word) != 1:  # missing, doubled or changed
                return None
            edits += _put_back(target, place, one)
        given = edited(target, sorted(edits))
        if _counts(kept, given.text) != counts or any(other in target for other in others):
            return None
        return given.text.strip(), moved(links, asked.origin, given.moved)

    return Strategy(asked.text, restore, used, is_marked=is_marked)


def _stand_in(text: str, span: Span, word: str, kept: str, *, is_marked: bool) -> _StandIn:
    """Return the stand-in of a span; it is tied where a letter or a digit touches it, a sentinel only for escapes."""
    before, after = text[: span.begin][-1:], text[span.end : span.end + 1]
    shown = text[slice(*span)]
    may_be_tied = not is_marked or _ESCAPED_SPACE.fullmatch(shown) is not None
    ties = may_be_tied and _is_in_word(before), may_be_tied and _is_in_word(after)
    return _StandIn(word, kept, *ties, _side(shown, before, after))


def _side(shown: str, before: str, after: str) -> _Side | None:
    if before.isspace() and _RELATION.match(shown):
        return _Side.APART
    if before.isspace() and after.isspace():
        return _Side.APART if is_sign(shown) or len(shown) == 1 or _EMOTICON.fullmatch(shown) else None
    if not _MARKS.fullmatch(shown) or _is_in_word(before) is _is_in_word(after):
        return None
    return _Side.AFTER if _is_in_word(after) else _Side.BEFORE


def _put_back(target: str, place: Span, one: _StandIn) -> Iterator[tuple[Span, str]]:
    """Yield the edits that put a span in the place of its stand-in, and take or add the spaces around it."""
    begin, end = place
    before, after = target[:begin], target[end : end + 2]
    if one.side is _Side.APART:  # neither part of a compound nor of a word
        takes_left = before[-1:] == "-" and _is_in_word(before[-2:-1])
        takes_right = after[:1] == "-" and _is_in_word(after[1:])
        left = _is_in_word(before[-2:-1] if takes_left else before[-1:])
        right = _is_in_word(after[1:] if takes_right else after[:1])
    else:
        takes_left = (one.is_tied_left or one.side is _Side.BEFORE) and before[-1:] == " "
        takes_right = (one.is_tied_right or one.side is _Side.AFTER) and after[:1] == " "
        left = right = False
    yield Span(begin - takes_left, begin), " " * left
    yield place, one.text
    yield Span(end, end + takes_right), " " * right


def find_all(texts: Iterable[str], target: str) -> dict[str, list[Span]]:
    """Return where each text stands in a translation, not in a longer one of them nor inside another word."""
    taken = bytearray(len(target))
    found: dict[str, list[Span]] = {}
    for text in sorted(set(texts), key=len, reverse=True):
        found[text] = [span for span in occurrences(text, target) if not any(taken[slice(*span)])]
        for begin, end in found[text]:
            taken[begin:end] = b"\1" * (end - begin)
    return found


def occurrences(text: str, target: str) -> Iterator[Span]:
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


def _is_in_word(character: str) -> bool:
    """Whether a character makes a word with those beside it."""
    return _IN_WORD.match(character) is not None


_SENTENCE_END = frozenset(".!?:…。！？")
_OF_PLACEHOLDERS = frozenset("{}%$<>`\\/:@#")


def outer_ends(segment: Segment) -> Span:
    """Return a segment's text without the spans at its ends that say nothing in its sentence, nor stand inside a tag.

    These are pictures, signs and brackets, and whatever comes after the end of the sentence; a name or a placeholder is
    part of the sentence.  The span is empty where nothing else is left.
    """
    text, spans = segment.text, segment.spans
    begin, end = 0, len(text)
    for span in spans:
        is_key_mark = text[slice(*span)] in ("&", "_") and text[span.end : span.end + 1].isalpha()
        if span.begin != begin or is_key_mark or not is_sign(text[slice(*span)]):
            break
        begin = span.end + len(text[span.end :]) - len(text[span.end :].lstrip())
    for span in reversed(spans):
        before = text[: span.begin].rstrip()
        if span.end != end or not (is_sign(text[slice(*span)]) or before[-1:] in _SENTENCE_END):
            break
        end = len(before)
    if begin >= end:
        return Span(end, end)
    if any(tag.position < begin for tag in segment.tags):
        begin = 0
    if any(tag.shown.end > end for tag in segment.tags):
        end = len(text)
    return Span(begin, end)


def is_sign(text: str) -> bool:
    """Whether a text says nothing: it has neither letters nor digits, nor what placeholders are made of."""
    return not any(character.isalnum() or character in _OF_PLACEHOLDERS for character in text)
