"""What in a text comes back as it is: addresses, placeholders, code, and characters that the tokenizer does not have.

    find_spans("Hello {name}, see https://example.com.", alphabet)  # -> the spans of {name} and https://example.com

Pure, in linear time; `patterns.py` says what addresses and placeholders look like.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

from service.records import Span
from service.text.date_patterns import is_date_pattern
from service.text.document import Segment
from service.text.patterns import SPANS, UNSPACED
from service.text.signs import key_marks
from service.text.wholes import formulas

_MOST_REMEMBERED = 20_000  # characters; callers choose what they send
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
            self._learn(characters)
            lacking &= self._unknown
        return lacking

    def _learn(self, characters: set[str]) -> None:
        if len(self._known) + len(self._unknown) > _MOST_REMEMBERED:
            self._known, self._unknown = set(), set()
        for character in characters - self._known - self._unknown:
            (self._known if self._is_known(character) else self._unknown).add(character)

    def _is_known(self, character: str) -> bool:
        category = unicodedata.category(character)
        if category[0] == "Z" or category in {"Cc", "Cf"}:
            return True
        text = self._read_back(character)
        if text is None:
            return False
        return category[0] in "LM" or character == _ELLIPSIS or text.strip() == character


def find_spans(text: str, alphabet: Alphabet) -> tuple[Span, ...]:
    """Return what has to come back exactly, in order and apart from each other.

    A character that the tokenizer lacks takes its word or its number with it ("$1,299.99", "AT&T", "café"); a bracket,
    and a sign between words, stand alone.  Spans with at most some punctuation between them are one ("%d/%d").
    """
    if is_date_pattern(text):
        return (Span(0, len(text)),)
    spans = [Span(*match.span(1)) for match in SPANS.finditer(text) if match.lastindex]
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
    composed = _CLUSTERS.sub(lambda match: _composed(match[0], alphabet), masked)
    return composed.translate({ord(character): _mask(character) for character in lacking})


def _composed(letters: str, alphabet: Alphabet) -> str:
    """Return as many letters: one that the tokenizer has if it has their composed form."""
    is_known = not alphabet.lacks(unicodedata.normalize("NFC", letters))
    return ("x" if is_known else _LETTER) * len(letters)


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
