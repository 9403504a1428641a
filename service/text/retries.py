"""Which other way of translating a segment is worth a try, and which of two translations the caller gets.

Pure; decides from the faults that `guard.py` finds.
"""

from collections.abc import Sequence
from typing import NamedTuple

from service.engine.job import SearchParams
from service.records import WarningKind
from service.text.guard import Fault

_NO_REPEAT = 3  # tokens
_BETTER_IN_PIECES = frozenset(
    {
        *(WarningKind.REPETITION, WarningKind.TRUNCATED, WarningKind.EMPTY),
        *(WarningKind.LENGTH_RATIO, WarningKind.LOW_COVERAGE),
    }
)
_FEWEST_WORDS_TO_CUT = 8


class Attempt(NamedTuple):
    """A translation of a segment, as far as it decides which one the caller gets."""

    faults: Sequence[Fault]
    score: float  # natural logarithm, length-normalised
    coverage: float | None = None


class Retry(NamedTuple):
    """A way to translate a segment again."""

    params: SearchParams
    in_pieces: bool = False  # each clause by itself: `clauses.cut` with half of the segment's tokens as the limit


def safer(
    source: str, found: Sequence[Fault], params: SearchParams, *, max_target_tokens: int | None = None
) -> Retry | None:
    """Return the way that most likely repairs the faults of a segment; None: no other way is known.

    Args:
        source: the segment.
        found: its faults.
        params: of the search that led to them.
        max_target_tokens: the most that the caller accepts; None: as in `params`.
    """
    kinds = {kind for kind, _ in found}
    if WarningKind.REPETITION in kinds and not 0 < params.no_repeat_ngram_size <= _NO_REPEAT:
        return Retry(params._replace(no_repeat_ngram_size=_NO_REPEAT))
    if WarningKind.TRUNCATED in kinds and params.max_target_tokens < (max_target_tokens or 0):
        return Retry(params._replace(max_target_tokens=max_target_tokens or 0))
    if kinds & _BETTER_IN_PIECES and len(source.split()) >= _FEWEST_WORDS_TO_CUT:
        return Retry(params, in_pieces=True)
    return None


# What is lost or added weighs more than how it reads.
_WEIGHTS = {
    WarningKind.NOT_TRANSLATED: 8,
    WarningKind.EMPTY: 8,
    WarningKind.COPIED: 6,
    WarningKind.WRONG_SCRIPT: 6,
    WarningKind.REPETITION: 5,
    WarningKind.NUMBERS: 5,
    WarningKind.TRUNCATED: 4,
    WarningKind.LENGTH_RATIO: 3,
    WarningKind.LOW_COVERAGE: 3,
}


def better(first: Attempt, second: Attempt) -> bool:
    """Whether the second attempt is better: lighter faults, else more coverage, else the higher score."""
    weights = [sum(_WEIGHTS.get(kind, 1) for kind, _ in attempt.faults) for attempt in (first, second)]
    if weights[0] != weights[1]:
        return weights[1] < weights[0]
    if first.coverage is not None and second.coverage is not None and first.coverage != second.coverage:
        return second.coverage > first.coverage
    return second.score > first.score
