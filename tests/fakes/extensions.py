"""What the step graph's ranking is to find, the slow and obvious way: every extension of a sentence, sorted.

Not a test.  Axes: B sentences, K hypotheses of a sentence, V tokens, C candidates.
"""

import numpy as np
import numpy.typing as npt

from service.engine.beam import Candidates, num_candidates


def best_extensions(log_probs: npt.NDArray[np.float32], scores: npt.NDArray[np.float32]) -> Candidates:
    """The 2K best of log-probabilities [B, K, V] plus scores [B, K]; of equals the lower hypothesis, then token."""
    num_sentences, beam_size, vocabulary = log_probs.shape
    with np.errstate(invalid="ignore"):  # plus and minus infinity make NaN, as they should
        sums = (scores[:, :, None] + log_probs).reshape(num_sentences, -1)  # [B, K * V]
        check = log_probs.max(axis=2).sum(axis=1)
    order = np.argsort(-sums, axis=1, kind="stable")[:, : num_candidates(beam_size)]
    parents, tokens = np.divmod(order, vocabulary)
    return Candidates(np.take_along_axis(sums, order, axis=1), tokens, parents, check)
