"""Which words of a text and of its translation belong together, by the attention between their tokens.

A word is a run of letters, digits and marks, with apostrophes, points and commas inside ("don't", "1,299.99"); every
other character that is no white space is a word of its own, and so is every Chinese or Japanese character.  `Edited`
moves links along with the texts that they are of.  Knows no model: attention comes as the engine sends it
(`TokenScores`), and the places of tokens as the tokenizer says them.

Axes: T target tokens, S source tokens, both with end-of-sentence.  Ranges are pairs of word numbers, begin <= i < end.
"""

import re
import struct
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from service.records import Link, Span
from service.text.languages import IDEOGRAPHS

Move = Callable[[Span], Span]  # a span of one text -> the span of the other


class Edited(NamedTuple):
    """A text that was made from another one by replacing parts of it."""

    text: str
    parts: tuple[tuple[Span, Span], ...] = ()  # of the text before, and what stands in their places, in order

    def moved(self, span: Span) -> Span:
        """Return the place in this text of a span of the text before."""
        return _moved(span, self.parts)

    def origin(self, span: Span) -> Span:
        """Return the place in the text before of a span of this text."""
        return _moved(span, [(after, before) for before, after in self.parts])


def edited(text: str, edits: Iterable[tuple[Span, str]]) -> Edited:
    """Return a text with other ones in the places of parts of it, which are in order and apart from each other."""
    pieces, parts, end, shift = list[str](), list[tuple[Span, Span]](), 0, 0
    for span, written in edits:
        begin = span.begin + shift
        pieces += text[end : span.begin], written
        parts.append((span, Span(begin, begin + len(written))))
        shift += len(written) - (span.end - span.begin)
        end = span.end
    return Edited("".join((*pieces, text[end:])), tuple(parts))


def _moved(span: Span, parts: Sequence[tuple[Span, Span]]) -> Span:
    def move(position: int, *, is_end: bool) -> int:
        shift = 0
        for before, after in parts:
            if position < before.begin + is_end:
                break
            if position < before.end + is_end:
                return after.end if is_end else after.begin
            shift = after.end - before.end
        return position + shift

    return Span(move(span.begin, is_end=False), move(span.end, is_end=True))


def moved(links: Sequence[Link], source: Move | None = None, target: Move | None = None) -> list[Link]:
    """Return links with their places in other texts; None: the text is the same."""
    return [
        Link(source(link.source) if source else link.source, target(link.target) if target else link.target)
        for link in links
    ]


def mover_to_written(text: str, written: str, inserted: Sequence[str], escape: Callable[[str], str]) -> Move:
    """Return where each span of a text stands once the text is written with tags and escapes.

    Args:
        text: language.
        written: the same as its format writes it, with other strings between its code points.
        inserted: those strings.
        escape: language -> as the format writes it.
    """
    if text == written:
        return lambda span: span
    left, places, place = Counter(inserted), list[Span](), 0
    for character in text:
        while tag := next((tag for tag in left if left[tag] and written.startswith(tag, place)), ""):
            left[tag] -= 1
            place += len(tag)
        piece = escape(character)
        if not written.startswith(piece, place):
            piece = ""  # a space for which a line break stands
        places.append(Span(place, place + len(piece)))
        place += len(piece)
    return lambda span: Span(places[span.begin].begin, places[span.end - 1].end)


# Least attention between two words that are linked: `python bench/quality/alignment.py --thresholds`, on sentences that
# are aligned by hand.
THRESHOLD = 0.15

Rows: TypeAlias = Sequence[Sequence[float]]  # [T, S]

_INNER = frozenset("'\u2019.,:")  # between two letters or two digits, part of the word
_JOINERS = frozenset("\u200c\u200d")
_ALONE = re.compile(f"[{IDEOGRAPHS}]")  # each is a word


class WordAttention(NamedTuple):
    """How much each word of a translation attends to each word of the source."""

    source: list[Span]  # words
    target: list[Span]
    weights: list[list[float]]  # [target words, source words]


def matrix(attention: bytes, num_source: int) -> list[tuple[float, ...]]:
    """Return `TokenScores.attention` as rows [T, S], for a source of S tokens."""
    numbers = struct.unpack(f"{len(attention) // 2}e", attention)
    return [numbers[begin : begin + num_source] for begin in range(0, len(numbers), num_source)]


def words(text: str) -> list[Span]:
    """Return the words of a text, in order."""
    found: list[Span] = []
    kind_before = ""
    for place, character in enumerate(text):
        kind = _kind(character)
        if kind == "inner" and 0 < place < len(text) - 1:
            around = {_kind(text[place - 1]), _kind(text[place + 1])}
            is_inside = around == {"digit"} or (around == {"letter"} and character in "'\u2019")
            kind = kind_before if is_inside else "single"
        if kind == "mark":
            kind = kind_before or "single"
            extends = bool(found) and found[-1].end == place
        else:
            extends = kind in {"letter", "digit"} and kind_before in {"letter", "digit"} and found[-1].end == place
        if kind == "space":
            kind_before = ""
            continue
        if extends:
            found[-1] = Span(found[-1].begin, place + 1)
        else:
            found.append(Span(place, place + 1))
        kind_before = kind
    return found


def _kind(character: str) -> str:
    if character in _INNER:
        return "inner"
    if character.isspace():
        return "space"
    category = unicodedata.category(character)
    if category[0] == "M" or character in _JOINERS:
        return "mark"
    if not character.isascii() and _ALONE.match(character):
        return "single"
    return {"L": "letter", "N": "digit"}.get(category[0], "single")


def word_attention(
    attention: Rows, source: str, source_tokens: Sequence[Span], target: str, target_tokens: Sequence[Span]
) -> WordAttention:
    """Add up attention between tokens to attention between words; rows sum up to 1 less what goes to no word.

    Args:
        attention: [T, S]; rows and columns beyond the tokens, such as those of end-of-sentence, do not count.
        source_tokens: place of each token in `source`.
        target_tokens: place of each token in `target`.
    """
    source_words, target_words = words(source), words(target)
    columns = _parts(source_tokens, source_words)
    weights = [[0.0] * len(source_words) for _ in target_words]
    shares = [0.0] * len(target_words)
    for row, parts in zip(attention, _parts(target_tokens, target_words), strict=False):
        for target_word, target_share in parts:
            shares[target_word] += target_share
            sums = weights[target_word]
            for weight, of_column in zip(row, columns, strict=False):
                for source_word, source_share in of_column:
                    sums[source_word] += weight * source_share * target_share
    means = [[weight / (share or 1.0) for weight in sums] for sums, share in zip(weights, shares, strict=True)]
    return WordAttention(source_words, target_words, means)


def _parts(tokens: Sequence[Span], found: Sequence[Span]) -> list[list[tuple[int, float]]]:
    """Return the words that each token is part of, with the token's share in each; a lone blank is part of the next."""
    parts: list[list[tuple[int, float]]] = []
    first = 0
    for token in tokens:
        begin, end = token.begin, max(token.end, token.begin + 1)
        while first < len(found) and found[first].end <= begin:
            first += 1
        overlaps: list[tuple[int, int]] = []
        for index in range(first, len(found)):
            overlap = min(end, found[index].end) - max(begin, found[index].begin)
            if overlap <= 0:
                break
            overlaps.append((index, overlap))
        if not overlaps and first < len(found) and found[first].begin == end and token.end > token.begin:
            overlaps.append((first, 1))
        total = sum(overlap for _, overlap in overlaps)
        parts.append([(index, overlap / total) for index, overlap in overlaps])
    return parts


def links(found: WordAttention, *, threshold: float = THRESHOLD) -> list[Link]:
    """Return the links of the translation's words, in the order of the target, then of the source.

    Each word of the translation is linked to the source word that it attends to most, each source word that this leaves
    without a link to the word that attends to it most; never below the threshold.
    """
    pairs: set[tuple[int, int]] = set()
    for target, weights in enumerate(found.weights):
        best = max(range(len(weights)), key=weights.__getitem__, default=0)
        if weights and weights[best] >= threshold:
            pairs.add((target, best))
    linked = {source for _, source in pairs}
    for source in range(len(found.source)):
        if source not in linked and found.target:
            best = max(range(len(found.target)), key=lambda target: found.weights[target][source])
            if found.weights[best][source] >= threshold:
                pairs.add((best, source))
    return [Link(found.source[source], found.target[target]) for target, source in sorted(pairs)]


Range = tuple[int, int]

# What a word that is linked to another part of the source takes off in a range that would enclose it: less than a
# linked word adds, so that "hat den Apfel gegessen" is one range for "has eaten".
_FOREIGN = 0.5
_UNLINKED = 0.01  # takes off as well: such words do not stand at the ends of a range


class WordLinks:
    """Which words of a text and of its translation belong together."""

    def __init__(self, source: Sequence[Span], target: Sequence[Span], links: Sequence[Link]) -> None:
        self.source_words = source
        self.target_words = target
        self._targets: list[list[int]] = [[] for _ in self.source_words]  # of each word of the source
        for link in links:
            linked = range(*_covered(self.target_words, link.target))
            for word in range(*_covered(self.source_words, link.source)):
                self._targets[word] += linked
        self._num_links = self._counts((0, len(self.source_words)))

    def source_range(self, begin: int, end: int) -> Range:
        """Return the words of the source that lie between two code points, at least in part."""
        return _covered(self.source_words, Span(begin, end))

    def targets_of(self, word: int) -> Sequence[int]:
        """Return the words of the translation that belong to a word of the source."""
        return self._targets[word] if 0 <= word < len(self._targets) else ()

    def best_border(self, source: Range, within: Range, *, is_end: bool) -> int:
        """Return where the words of the translation end, or begin, that belong to the first, or last, of the source."""
        if not any(self._counts(source)):
            return at_share(source[is_end] / len(self.source_words), within)
        sums = list(accumulate(self._weights(source), initial=0.0))
        if is_end:
            return max(range(within[1], within[0] - 1, -1), key=lambda end: sums[end])
        return min(range(within[0], within[1] + 1), key=lambda begin: sums[begin])

    def best_range(self, source: Range, around: Range, within: Range) -> Range:
        """Return the words of the translation that belong to words of the source.

        Args:
            source: The words of the source.
            around: Words of the source, those among them, ...
            within: ... that belong to these words of the translation, one or more.

        Returns:
            One word or more within `within`.
        """
        if source == around:
            return within
        length = around[1] - around[0]
        begin, end = (at_share((place - around[0]) / length, within) for place in source)
        begin = min(begin, within[1] - 1)
        expected = begin, max(begin + 1, end)
        if any(self._counts(source)[within[0] : within[1]]):
            return _heaviest(self._weights(source), within, expected)
        return expected

    def gain(self, source: Range, target: Range) -> float:
        """Return how well words of the translation belong to words of the source."""
        return sum(self._weights(source)[target[0] : target[1]])

    def _counts(self, source: Range) -> list[int]:
        counts = [0] * len(self.target_words)
        for targets in self._targets[source[0] : source[1]]:
            for word in targets:
                counts[word] += 1
        return counts

    def _weights(self, source: Range) -> list[float]:
        return [
            (own - _FOREIGN * (all_ - own)) / all_ if all_ else -_UNLINKED
            for own, all_ in zip(self._counts(source), self._num_links, strict=True)
        ]


def words_of(text: str, units: Sequence[Span] = ()) -> list[Span]:
    """Return where the words of a text stand; each of the units, which are in order, is one word."""
    found = words(text)
    for unit in reversed(units):
        begin, end = _covered(found, unit)
        found[begin:end] = [unit]
    return found


def at_share(share: float, within: Range) -> int:
    """Return the number of words before a place that is so far on the way through a range."""
    return within[0] + round(share * (within[1] - within[0]))


def _covered(words: Sequence[Span], span: Span) -> Range:
    begin = bisect_right(words, span.begin, key=lambda word: word.end)
    end = bisect_left(words, span.end, key=lambda word: word.begin)
    return begin, max(begin, end)


def _heaviest(weights: Sequence[float], within: Range, expected: Range) -> Range:
    """Return the range with the greatest sum; of several, the one nearest to where it is expected, then the longest."""
    candidates: list[tuple[float, int, int, Range]] = []
    begin, total = within[0], 0.0
    for index in range(*within):
        if total < 0:
            begin, total = index, 0.0
        total += weights[index]
        distance = abs(begin + index + 1 - sum(expected))
        candidates.append((round(total, 6), -distance, index - begin, (begin, index + 1)))
    return max(candidates)[3]
