"""The words of a text and of its translation, and which range of one belongs to a range of the other.

Ranges are pairs of word numbers, begin <= i < end.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from service.records import Link, Span
from service.text.alignment import words

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
        """Return the words of the source that lie, be it in part, between two code points."""
        return _covered(self.source_words, Span(begin, end))

    def targets_of(self, word: int) -> Sequence[int]:
        """Return the words of the translation that belong to a word of the source."""
        return self._targets[word] if 0 <= word < len(self._targets) else ()

    def best_head(self, source: Range, within: Range) -> int:
        """Return where the words of the translation end that belong to the first words of the source."""
        if not any(self._counts(source)):
            return at_share(source[1] / len(self.source_words), within)
        sums = list(accumulate(self._weights(source), initial=0.0))
        return max(range(within[1], within[0] - 1, -1), key=lambda end: sums[end])

    def best_tail(self, source: Range, within: Range) -> int:
        """Return where the words of the translation begin that belong to the last words of the source."""
        if not any(self._counts(source)):
            return at_share(source[0] / len(self.source_words), within)
        sums = list(accumulate(self._weights(source), initial=0.0))
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
