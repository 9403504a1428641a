"""What in a text comes back as it is: addresses, placeholders, code, and characters that the tokenizer does not have.

    find_spans("Hello {name}, see https://example.com.", alphabet)  # -> the spans of {name} and https://example.com

Some parts come back letter by letter with the tags in them, where they stand:

    H<sub>2</sub>SO<sub>4</sub>   <span class="invisible">https://</span><span>example.org</span>   <code>ls</code>

Pure, in linear time; `span_patterns.py` says what addresses and placeholders look like.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from service.records import Link, Span
from service.text.languages import UNSPACED
from service.text.segments import Segment, Tag, TagKind, span_around
from service.text.span_patterns import CODE, SPANS, is_date_pattern, key_marks

_ENDS = ".,;:!?()[]\"'“”„‚‘’«»‹›…"
_OPERATORS = frozenset("+-\u2212=*/^\u00b7\u00d7<>$€£%")
_WORDS_OF_LANGUAGE = re.compile(r"[^\W\d_]{4}|\d(?:st|nd|rd|th)\b")


class Whole(NamedTuple):
    """A part of a segment with all that is written in it."""

    shown: Span  # in the text of the segment
    source: str
    first: int  # tag in it
    last: int


def wholes(segment: Segment) -> list[Whole]:
    """Return what tags show, and words with tags in them; longer ones go before the words that they hold."""
    found = [Whole(tag.shown, tag.source, index, index) for index, tag in enumerate(segment.tags) if tag.width]
    places = [number for number, tag in enumerate(segment.tags) if _is_inner(segment, tag)]
    return [*found, *dict.fromkeys(whole for number in places for whole in _around(segment, number))]


def formulas(segment: Segment) -> Iterator[Span]:
    """Yield words with tags in them that are no language: "H<sub>2</sub>O", "x<sup>2</sup>+1"."""
    end = 0
    for tag in segment.tags:
        if tag.position >= end and _is_inner(segment, tag):
            for span in _candidates(segment, tag.position):
                text = segment.text[slice(*span)]
                if any(map(str.isdigit, text)) and not _WORDS_OF_LANGUAGE.search(text):
                    end = span.end
                    yield span
                    break


def found_again(candidates: Sequence[Whole], segment: Segment, target: str, links: Sequence[Link]) -> dict[Whole, Span]:
    """Return where a translation has these parts; of several copies those that are linked."""
    by_text: dict[str, list[Whole]] = {}
    for whole in candidates:
        by_text.setdefault(segment.text[slice(*whole.shown)], []).append(whole)
    linked: dict[str, set[int]] = _linked(by_text, links)
    found: dict[Whole, Span] = {}
    taken: set[int] = set()
    taken_tags: set[int] = set()
    # Longer ones first: "ls" is not looked for in "ls -l".
    for text in sorted(by_text, key=len, reverse=True):
        wanted = [one for one in by_text[text] if taken_tags.isdisjoint(range(one.first, one.last + 1))]
        if not wanted:
            continue
        copies = (
            Span(*match.span()) for match in _pattern(segment.text, [one.shown for one in wanted]).finditer(target)
        )
        free = [copy for copy in copies if taken.isdisjoint(range(*copy))]
        is_linked = [not linked[text].isdisjoint(range(*copy)) for copy in free]
        best = sorted(range(len(free)), key=is_linked.__getitem__, reverse=True)
        chosen = sorted([free[index] for index in best[: len(wanted)]])
        for whole, copy in zip(wanted, chosen, strict=False):
            found[whole] = copy
            taken.update(range(*copy))
            taken_tags.update(range(whole.first, whole.last + 1))
    return found


def _linked(by_text: Mapping[str, Sequence[Whole]], links: Sequence[Link]) -> dict[str, set[int]]:
    """Return the places in the translation that are linked to parts with these texts."""
    texts_at: dict[int, list[str]] = {}
    for text, found in by_text.items():
        for whole in found:
            for place in range(*whole.shown):
                texts_at.setdefault(place, []).append(text)
    linked: dict[str, set[int]] = {text: set() for text in by_text}
    for link in links:
        for text in texts_at.get(link.source.begin, ()):
            linked[text].add(link.target.begin)
    return linked


def _is_inner(segment: Segment, tag: Tag) -> bool:
    """Whether a tag stands between two characters of a word, a number or a formula, or in a span."""
    around = segment.text[max(0, tag.position - 1) : tag.position + 1]
    is_inner = len(around) == 2 and all(one.isalnum() or one in _OPERATORS for one in around)
    return (is_inner or span_around(tag.position, segment.spans) is not None) and tag.position > 0 and not tag.width


def _candidates(segment: Segment, position: int) -> Iterator[Span]:
    """Yield what may come back as it is around a place: its span, or what stands between white space; then its word."""
    if (around := span_around(position, segment.spans)) is not None:
        yield around
        return
    text = segment.text
    for begins, is_part in ((str.isspace, False), (lambda one: one.isalnum() or one == "_", True)):
        begin = end = position
        while begin and begins(text[begin - 1]) is is_part:
            begin -= 1
        while end < len(text) and begins(text[end]) is is_part:
            end += 1
        trimmed = text[begin:end]
        begin += len(trimmed) - len(trimmed.lstrip(_ENDS))
        end -= len(trimmed) - len(trimmed.rstrip(_ENDS))
        if begin < position < end:
            yield Span(begin, end)


def _around(segment: Segment, number: int) -> Iterator[Whole]:
    """Yield the parts around a tag whose tags are all inside."""
    for span in _candidates(segment, segment.tags[number].position):
        tags = _tags_in(segment, span)
        if tags is None:
            continue
        first, last = tags
        begin = min(segment.origin(Span(span.begin, span.begin + 1)).begin, segment.tags[first].begin)
        end = max(segment.origin(Span(span.end - 1, span.end)).end, segment.tags[last].end)
        pieces, place = list[str](), begin
        for tag in segment.tags[first : last + 1]:
            pieces += segment.source[place - segment.begin : tag.begin - segment.begin], tag.source
            place = tag.end
        yield Whole(span, "".join((*pieces, segment.source[place - segment.begin : end - segment.begin])), first, last)


def _tags_in(segment: Segment, span: Span) -> tuple[int, int] | None:
    """Return the first and the last tag of those in a span and their partners; None: one reaches beyond it."""
    inner = [number for number, tag in enumerate(segment.tags) if span.begin < tag.position < span.end]
    first, last = inner[0], inner[-1]
    while True:
        partners = [tag.partner for tag in segment.tags[first : last + 1] if tag.partner is not None]
        wanted = min([first, *partners]), max([last, *partners])
        if wanted == (first, last):
            break
        first, last = wanted
    tags = segment.tags[first : last + 1]
    is_whole = all(
        span.begin <= tag.position
        and tag.shown.end <= span.end
        and (tag.partner is not None or tag.kind is TagKind.POINT)
        for tag in tags
    )
    return (first, last) if is_whole else None


def _pattern(text: str, shown: Sequence[Span]) -> re.Pattern[str]:
    """Return what finds spans with the same text in a translation: not as a part of a word unless one of them is."""
    is_in_word = any(re.search(r"\w\w", text[max(0, place - 1) : place + 1]) for span in shown for place in span)
    written = text[slice(*shown[0])]
    if is_in_word:
        return re.compile(re.escape(written))
    left, right = (r"\b" if end.isalnum() else "" for end in (written[0], written[-1]))
    return re.compile(f"{left}{re.escape(written)}{right}")


_MOST_REMEMBERED = 20_000  # characters; callers choose what they send
_OTHER_LETTER = re.compile(".<su[bp]|[\u2100-\u214f]<font>")  # ⁿ is no n; but a ligature is two letters
_ELLIPSIS = "…"  # tokenizers read it as three points, which mean the same

# What takes the place of a character that the tokenizer lacks, by what it does to its neighbours.
_LETTER, _SIGN, _BRACKET, _SPAN = "\uf8f0", "\uf8f1", "\uf8f2", "\n"

# A character that makes a word with those beside it.  In scripts without spaces a rare one is protected without the
# clause around it.
IN_WORD = f"[^\\W{UNSPACED}]"
_JOINED = rf"[^\W_{UNSPACED}{_LETTER}{_SIGN}{_BRACKET}]"
_NUMBER = r"\d++(?:[.,]\d++)*+"
_TOKENS = re.compile(
    # An amount, a word, brackets.
    rf"(?<!\w)({_SIGN}[ \u00a0\u202f]?{_NUMBER}%?|(?<![.,]){_NUMBER}[ \u00a0\u202f]?{_SIGN})(?![\w{_LETTER}])"
    rf"|(?:(?:{_JOINED}|[{_LETTER}{_SIGN}])++(?:[-'’](?=[^\W_]|{_LETTER})|(?<=\d)[.,](?=\d))?+)++"
    rf"|{_BRACKET}++"
)
_SIGNS = re.compile(rf"{_SIGN}++")
_TIES = re.compile(rf"{_LETTER}|{_JOINED}{_SIGN}++{_JOINED}|\d{_SIGN}|{_SIGN}\d")
_CLUSTERS = re.compile(r"[^\W\d_][\u0300-\u036f]++")
_BRACKETS = frozenset({"Ps", "Pe", "Pi", "Pf"})
_GLUE = re.compile(r"[-/:.,|=+*&~x]{0,3}")  # between two spans: they are one


class Alphabet:
    """Which characters a tokenizer gives back as they are.

    Letters may come back in another form (a ligature as two letters); white space and characters that show nothing
    count as known.
    """

    def __init__(self, read_back: Callable[[str], str | None]) -> None:
        """Ask about each character once.

        Args:
            read_back: a character -> the text of its tokens, or None if there is an unknown one among them.
        """
        self._read_back = read_back
        self._known: set[str] = set()
        self._unknown: set[str] = set()

    def lacks(self, text: str) -> set[str]:
        """Return the characters of the text that the tokenizer would lose or change."""
        characters = set(text)
        lacking = characters - self._known
        if not lacking <= self._unknown:
            if len(self._known) + len(self._unknown) > _MOST_REMEMBERED:
                self._known, self._unknown = set(), set()
            for character in characters - self._known - self._unknown:
                (self._known if self._is_known(character) else self._unknown).add(character)
            lacking &= self._unknown
        return lacking

    def _is_known(self, character: str) -> bool:
        category = unicodedata.category(character)
        if category[0] == "Z" or category in {"Cc", "Cf"}:
            return True
        text = self._read_back(character)
        if text is None:
            return False
        if category[0] in "LM":
            return _OTHER_LETTER.match(f"{character}{unicodedata.decomposition(character)}") is None
        return character == _ELLIPSIS or text.strip() == character


def find_spans(text: str, alphabet: Alphabet) -> tuple[Span, ...]:
    """Return what has to come back exactly, in order and apart from each other.

    A character that the tokenizer lacks takes its word or its number with it ("$1,299.99", "AT&T", "café"); a bracket,
    and a sign between words, stand alone.  Spans with at most some punctuation between them are one ("%d/%d").
    """
    if is_date_pattern(text):
        return (Span(0, len(text)),)
    spans = [Span(*match.span(1)) for match in SPANS.finditer(text) if match.lastindex]
    if code := [Span(*match.span(1)) for match in CODE.finditer(text)]:
        spans = list(_joined(text, sorted([*spans, *code])))
    lacking = alphabet.lacks(text)
    if lacking:
        spans = sorted([*spans, *_lost(_masked(text, spans, lacking, alphabet), key_marks(text))])
    return tuple(_joined(text, spans)) if len(spans) > 1 else tuple(spans)


def spans_of(segment: Segment, alphabet: Alphabet) -> tuple[Span, ...]:
    """Return what of a segment's text has to come back exactly: what is found in it, and what its tags show."""
    found = find_spans(segment.text, alphabet)
    shown = [*(tag.shown for tag in segment.tags if tag.width), *formulas(segment)] if segment.tags else []
    return tuple(_joined(segment.text, sorted([*found, *shown]))) if shown else found


def _masked(text: str, spans: Iterable[Span], lacking: Iterable[str], alphabet: Alphabet) -> str:
    """Return the text with signs in place of the characters that are lacking, and nothing where a span is."""
    pieces: list[str] = []
    end = 0
    for span in spans:
        pieces += text[end : span.begin], _SPAN * (span.end - span.begin)
        end = span.end
    masked = "".join((*pieces, text[end:]))
    composed = _CLUSTERS.sub(  # as many letters, known ones if the tokenizer has the composed form
        lambda match: (_LETTER if alphabet.lacks(unicodedata.normalize("NFC", match[0])) else "x") * len(match[0]),
        masked,
    )
    return composed.translate({ord(character): _mask(character) for character in lacking})


def _mask(character: str) -> str:
    category = unicodedata.category(character)
    if category[0] in "LM" or category == "No":
        return _LETTER
    return _BRACKET if category in _BRACKETS else _SIGN


def _lost(masked: str, key_marks: Sequence[int]) -> Iterator[Span]:
    for match in _TOKENS.finditer(masked):
        token = match[0]
        has_mark = any(match.start() <= place < match.end() for place in key_marks)
        is_tied = _LETTER in token if has_mark else _TIES.search(token)
        if is_tied or token[0] == _BRACKET or match.lastindex:
            yield Span(*match.span())
        else:
            yield from (Span(*sign.span()) for sign in _SIGNS.finditer(masked, *match.span()))


def _joined(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    """Yield one span for those that are only a few signs apart."""
    before: Span | None = None
    for span in spans:
        if before is None:
            before = span
        elif span.begin < before.end or _GLUE.fullmatch(text, before.end, span.begin):
            before = Span(before.begin, max(before.end, span.end))
        else:
            yield before
            before = span
    if before is not None:
        yield before
