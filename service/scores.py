"""What a caller asks for and gets who has translations already and wants to know what a model thinks of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from service.engine.wire import HeadWeights
from service.errors import DragomanError
from service.records import Link, Priority

MAX_SHOWN_TOKENS = 64  # of either side of a pair whose attention is shown; of more, nobody sees anything


class ScorePair(NamedTuple):
    """A text and a translation of it, each taken as one segment."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """Pairs, and the model that is to judge them; see `TranslationRequest`."""

    pairs: Sequence[ScorePair]
    model: str | None = None
    source_language: str = ""
    target_language: str = ""
    priority: Priority | None = None
    return_alignments: bool = False
    return_heads: bool = False  # of sentences of at most `MAX_SHOWN_TOKENS`


class AttentionHeads(NamedTuple):
    """What each attention head looks at: `HeadWeights` with the tokens of both sides, end-of-sentence last, empty."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: HeadWeights


class ScoredToken(NamedTuple):
    """A token of a translation."""

    text: str  # the code points of the target that it covers, white space before a word included; "" for the end
    log_probability: float  # natural logarithm


@dataclass(frozen=True, slots=True, kw_only=True)
class PairScore:
    """What a model thinks of a pair, or an error of its own."""

    tokens: tuple[ScoredToken, ...] = ()  # end-of-sentence last
    links: tuple[Link, ...] = ()  # between words of source and target
    heads: AttentionHeads | None = None
    source_tokens: int = 0  # end-of-sentence included
    error: DragomanError | None = None

    @property
    def log_probability(self) -> float:
        """Sum of the tokens' log-probabilities."""
        return math.fsum(token.log_probability for token in self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreResult:
    """The answer to a `ScoreRequest`."""

    scores: Sequence[PairScore]  # in the order of the pairs
    model: str = ""
    model_version: str = ""
