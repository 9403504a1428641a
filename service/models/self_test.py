"""The last check of a model before it serves: it must give the translations that its bundle says it gives.

The bundle's golden sentences are translated again.  One in two may differ, rounded down: another engine or processor
rounds otherwise, and a near-tie between two words can fall the other way (of the 16 of en-de, 4 do in the native engine
with AVX2).  With a tokenizer, a vocabulary or weights of another model, all sentences differ.  Without golden
sentences, one text must give finite scores.
"""

import asyncio
import math
import time
from collections.abc import Sequence

from model.bundle import GOLDEN_MAX_TARGET_TOKENS, BundleError, GoldenSentence
from model.tokenizer import SupportsTokens
from service.call import Call
from service.engine.wire import Job, SearchParams
from service.scheduler.pool import EnginePool

ALLOWED_SHARE = 2  # one in so many may differ
_ANY_TEXT = "Test."
_MAX_SHOWN = 80  # characters of a text in a message


async def run_self_test(
    tokenizer: SupportsTokens,
    pool: EnginePool,
    golden: Sequence[GoldenSentence],
    *,
    max_target_tokens: int,
    timeout_s: float,
) -> None:
    """Return when the model has passed, or raise BundleError; the server's limits on texts do not hold here."""
    params = SearchParams(beam_size=1, max_target_tokens=min(GOLDEN_MAX_TARGET_TOKENS, max_target_tokens))
    texts = [sentence.source for sentence in golden] or [_ANY_TEXT]
    now = time.monotonic()
    call = Call(method="self_test", started=now, deadline=now + timeout_s)
    prefix = tuple(tokenizer.target_prefix)
    jobs = [pool.submit(Job(tuple(tokenizer.encode(text)), params, prefix), call) for text in texts]
    try:
        best = [result.hypotheses[0] for result in await asyncio.gather(*jobs)]
    finally:
        for job in jobs:
            job.cancel()
    if not all(math.isfinite(one.score) for one in best):
        raise BundleError("the self-test gave scores that are no numbers")
    found = [tokenizer.decode(one.token_ids) for one in best]
    different = [(one, text) for one, text in zip(golden, found, strict=False) if text != one.translation]
    if len(different) > len(golden) // ALLOWED_SHARE:
        sentence, text = different[0]
        wanted, given = (one[:_MAX_SHOWN] for one in (sentence.translation, text))
        raise BundleError(
            f"{len(different)} of {len(golden)} golden sentences differ, at most {len(golden) // ALLOWED_SHARE} may: "
            f"{sentence.source[:_MAX_SHOWN]!a} gave {given!a}, expected is {wanted!a}"
        )
