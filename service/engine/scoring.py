"""Which translations to score run together: those whose sides are padded to the same lengths.

The lengths that a pair is padded to depend on that pair alone: the shape of a product decides the order of its sums,
and so the last bits of a result that must not depend on the batch.  Pure; knows no model.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import TypeVar

from service.engine.wire import FinishReason, Forced, Hypothesis, Job

MULTIPLE = 16  # that both sides are padded to, end-of-sentence included

_Item = TypeVar("_Item")


def scored_shape(num_source: int, num_target: int) -> tuple[int, int]:
    """Return the lengths that sides of so many tokens are padded to."""
    return -(-num_source // MULTIPLE) * MULTIPLE, -(-num_target // MULTIPLE) * MULTIPLE


def scorer_batches(items: Iterable[_Item], job_of: Callable[[_Item], Job], max_tokens: int) -> Iterator[list[_Item]]:
    """Yield what runs together: of one shape, and no more tokens of both sides than that, padding included."""

    def shape(item: _Item) -> tuple[int, int]:
        job = job_of(item)
        return scored_shape(len(job.source_ids), len(job.scored_ids or ()) + 1)

    for lengths, alike in groupby(sorted(items, key=shape), key=shape):
        batch: list[_Item] = []
        for item in alike:
            if batch and (len(batch) + 1) * sum(lengths) > max_tokens:
                yield batch
                batch = []
            batch.append(item)
        yield batch


def scored_hypothesis(job: Job, forced: Forced) -> Hypothesis:
    """Return the given translation as a search would have returned it."""
    score = math.fsum(forced.log_probs) / len(forced.log_probs) ** job.params.length_penalty
    return Hypothesis(job.scored_ids or (), score, FinishReason.END_OF_SENTENCE)
