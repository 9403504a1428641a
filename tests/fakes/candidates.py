"""Candidates of one sentence, as a test writes them down."""

from collections.abc import Sequence

import numpy as np

from service.engine.beam import BeamSearch, Candidates
from tests.fakes.extensions import best_extensions

VOCABULARY = 13


def one_sentence(ranked: Sequence[tuple[float, int, int]], check: float = 0.0) -> Candidates:
    """(score, token, parent) of a sentence's candidates, best first."""
    scores, tokens, parents = zip(*ranked, strict=True)
    return Candidates(
        np.array([scores], np.float32), np.array([tokens]), np.array([parents]), np.array([check], np.float32)
    )


def candidates_of(search: BeamSearch, *rows: dict[int, float]) -> Candidates:
    """One sentence; each row {token: log-probability} of one hypothesis."""
    log_probs = np.full((1, len(rows), VOCABULARY), -99.0, np.float32)
    for hypothesis, row in enumerate(rows):
        log_probs[0, hypothesis, list(row)] = list(row.values())
    return best_extensions(log_probs, search.scores)
