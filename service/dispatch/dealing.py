"""Which engine takes which of the sentences that start together: the long ones one, the short ones another.

Beside the work for each sentence, an engine's step has a part that costs the same however many there are, and attention
is computed as wide as the longest sentence.  Sentences of similar length together need fewer steps in all, and no
padding.  Pure; knows lengths, neither engines nor texts.
"""

from collections.abc import Sequence
from typing import NamedTuple

# An engine's cost is its source tokens and so many times those of its longest new sentence, for the steps themselves.
# 32 sentences on two engines took 0.91 times as long as with long and short ones mixed (0.94 with 0, 0.93 with 2, 0.98
# with 4 times), 8 sentences 0.87; ARCHITECTURE.md, 22 November 2026.
_LONGEST_COUNTS = 1


class Sentence(NamedTuple):
    """What is dealt."""

    source_tokens: int
    rows: int  # its beam


class Hand(NamedTuple):
    """What an engine has and can take."""

    source_tokens: int
    free_rows: int


def deal(sentences: Sequence[Sentence], hands: Sequence[Hand]) -> list[int] | None:
    """The number of the hand for each sentence, such that the fullest one has as little as possible.

    Each hand gets neighbours in length: the emptiest the longest.  None if the rows do not suffice for that.
    """
    longest_first = sorted(range(len(sentences)), key=lambda number: -sentences[number].source_tokens)
    emptiest_first = sorted(range(len(hands)), key=lambda number: hands[number].source_tokens)
    ranked, filled = [sentences[number] for number in longest_first], [hands[number] for number in emptiest_first]
    too_little = 0
    enough = (1 + _LONGEST_COUNTS) * sum(tokens for tokens, _ in ranked) + max(tokens for tokens, _ in hands)
    if (best := _fill(ranked, filled, enough)) is None:
        return None
    while enough - too_little > 1:
        limit = (too_little + enough) // 2
        found = _fill(ranked, filled, limit)
        if found is None:
            too_little = limit
        else:
            best, enough = found, limit
    dealt = [0] * len(sentences)
    for number, place in zip(longest_first, best, strict=True):
        dealt[number] = emptiest_first[place]
    return dealt


def _fill(ranked: Sequence[Sentence], hands: Sequence[Hand], limit: int) -> list[int] | None:
    """The place of each sentence's hand, none of which costs more than the limit; hands are filled one by one."""
    places: list[int] = []
    place, (cost, rows), is_first = 0, hands[0], True
    for sentence in ranked:
        while rows < sentence.rows or cost + sentence.source_tokens * (1 + is_first * _LONGEST_COUNTS) > limit:
            place, is_first = place + 1, True
            if place == len(hands):
                return None
            cost, rows = hands[place]
        cost += sentence.source_tokens * (1 + is_first * _LONGEST_COUNTS)
        rows -= sentence.rows
        is_first = False
        places.append(place)
    return places
