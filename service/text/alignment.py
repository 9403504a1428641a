"""Which words of a text and of its translation belong together, by the attention between their tokens.

A word is a run of letters, digits and marks, with apostrophes, points and commas inside ("don't", "1,299.99"); every
other character that is no white space is a word of its own, and so is every Chinese or Japanese character.  Pure; knows
no model: attention comes as the engine sends it (`Forced`), and the places of tokens as the tokenizer says them.

Axes: T target tokens, S source tokens, both with end-of-sentence.
"""

import struct
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from service.records import Link, Span

# Least attention between two words that are linked: `python tests/quality/alignment.py --thresholds`, on sentences that
# are aligned by hand.
THRESHOLD = 0.15

Rows: TypeAlias = Sequence[Sequence[float]]  # [T, S]

_INNER = frozenset("'\u2019.,:")  # between two letters or two digits, part of the word
_JOINERS = frozenset("\u200c\u200d")
_SCRIPTS_WITHOUT_SPACES = (
    (0x2E80, 0x303F),  # radicals and punctuation
    (0x3040, 0x30FF),  # hiragana, katakana
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF00, 0xFFEF),
    (0x20000, 0x3FFFF),
)


class WordAttention(NamedTuple):
    """How much each word of a translation attends to each word of the source."""

    source: list[Span]  # words
    target: list[Span]
    weights: list[list[float]]  # [target words, source words]


def matrix(attention: bytes, num_source: int) -> list[tuple[float, ...]]:
    """Return `Forced.attention` as rows [T, S], for a source of S tokens."""
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
    code, category = ord(character), unicodedata.category(character)
    if category[0] == "M" or character in _JOINERS:
        return "mark"
    if code > 0x2E7F and any(low <= code <= high for low, high in _SCRIPTS_WITHOUT_SPACES):
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
