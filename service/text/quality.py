"""How good a translation probably is, from what its search has found anyway.

Pure, and a few additions.  The estimate is the chrF (Popovic 2015) from 0 to 1 that `tests/quality/fit_quality.py`
expects of such a translation; how far to trust it, and for which models, is in docs/text.md.
"""

import math
from operator import mul

# Of `features`, in their order.  The script prints them.
_WEIGHTS = (-1.0528, 2.1449, 0.2914, -0.4133, 0.0314, 0.0921)
_USUAL_RATIO = -0.1  # logarithm of target / source in characters; what is shorter may lack something


def estimate(source: str, target: str, *, score: float, source_tokens: int, target_tokens: int) -> float:
    """Return the quality of a translation, from 0 to 1.

    Args:
        source: what was translated.
        target: its best translation.
        score: mean log-probability of the translation's tokens.
        source_tokens: of the source, end-of-sentence included.
        target_tokens: of the translation, end-of-sentence included where the model produced one.
    """
    if not target or not source_tokens or not target_tokens:
        return 0.0
    found = features(source, target, score=score, source_tokens=source_tokens, target_tokens=target_tokens)
    expected: float = sum(map(mul, _WEIGHTS, found))
    return min(1.0, max(0.0, expected))


def features(source: str, target: str, *, score: float, source_tokens: int, target_tokens: int) -> tuple[float, ...]:
    """Return what the estimate is a weighted sum of; arguments as for `estimate`, none empty.

    The tokens' mean probability; the logarithm of the source's length, as the same probability says more of a long one;
    both multiplied; characters for each token, as made-up words have many short ones; how much length is missing.
    """
    probability, length = math.exp(score), math.log(source_tokens)
    missing = min(0.0, math.log(len(target) / len(source)) - _USUAL_RATIO)
    return (1.0, probability, length, probability * length, len(target) / target_tokens, missing)
