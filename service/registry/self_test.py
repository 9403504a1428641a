"""The last question to a model before it serves: does it still say what its bundle says it says?

The bundle's golden sentences are translated as they were when it was made.  One in five may differ, rounded down: on
another processor sums are made in another order, and a near-tie between two words can fall the other way.  A tokenizer,
a vocabulary or weights of another model change them all.  Without golden sentences, one text must give finite scores.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Protocol

from model.bundle import GOLDEN_MAX_TARGET_TOKENS, BundleError, GoldenSentence
from service.engine.job import JobResult, SearchParams
from service.registry.codec import SupportsTokens

ALLOWED_SHARE = 5  # one in so many may differ
_ANY_TEXT = "Test."
_MAX_SHOWN = 80  # characters of a text in a message


class Submitter(Protocol):
    """What runs a sentence: `service.engines.dispatcher.Dispatcher`."""

    def submit(
        self, source_ids: Sequence[int], params: SearchParams, deadline: float | None
    ) -> "asyncio.Future[JobResult]":
        """Queue one sentence."""
        ...


async def run_self_test(
    tokenizer: SupportsTokens,
    engine: Submitter,
    golden: Sequence[GoldenSentence],
    *,
    max_target_tokens: int,
    timeout_s: float,
) -> None:
    """Return when the model has passed; the server's limits on texts are for its callers, not for this.

    Args:
        golden: of the precision that runs; empty for "any finite translation".
        max_target_tokens: the model's own limit.

    Raises:
        BundleError: too many translations differ, or scores are no numbers.
        DragomanError: it gave no translations.
    """
    params = SearchParams(beam_size=1, max_target_tokens=min(GOLDEN_MAX_TARGET_TOKENS, max_target_tokens))
    texts = [sentence.source for sentence in golden] or [_ANY_TEXT]
    deadline = time.monotonic() + timeout_s
    jobs = [engine.submit(tokenizer.encode(text), params, deadline) for text in texts]
    try:
        results = await asyncio.gather(*jobs)
    finally:
        for job in jobs:
            job.cancel()
    best = [result.hypotheses[0] for result in results]
    if not all(math.isfinite(one.score) for one in best):
        raise BundleError("the self-test gave scores that are no numbers")
    judge(golden, [tokenizer.decode(one.token_ids) for one in best])


def judge(golden: Sequence[GoldenSentence], found: Sequence[str]) -> None:
    """Compare translations with what the bundle says.

    Raises:
        BundleError: more than one in ALLOWED_SHARE differ; shows the first.
    """
    if not golden:
        return
    different = [(sentence, text) for sentence, text in zip(golden, found, strict=True) if text != sentence.translation]
    if len(different) > len(golden) // ALLOWED_SHARE:
        sentence, text = different[0]
        wanted, given = (one[:_MAX_SHOWN] for one in (sentence.translation, text))
        raise BundleError(
            f"{len(different)} of {len(golden)} golden sentences differ, at most {len(golden) // ALLOWED_SHARE} may: "
            f"{sentence.source[:_MAX_SHOWN]!a} gave {given!a}, expected is {wanted!a}"
        )
