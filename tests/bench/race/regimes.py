"""Two regimes, measured in turns: all sentences at once, and one sentence at a time.

Both sides translate the same sentences within a turn, and the other one begins in the next turn, so that whatever else
the machine does meets both.  A ratio is the median over the turns.  `stream.py` has the third regime.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from service.engine.job import JobResult
from tests.bench.race.contestants import Contestant, Sentence

REST_S = 0.1  # between two measurements: the OpenMP threads of the side that is done go on spinning for a moment
SENTENCES_A_TURN = 10  # one at a time


@dataclass(slots=True)
class Agreement:
    """Whether both sides gave the same translations, and how long these were."""

    sentences: int = 0
    identical: int = 0
    our_tokens: int = 0
    their_tokens: int = 0

    def add(self, ours: Sequence[list[int]], theirs: Sequence[list[int]]) -> None:
        """Count the answers to some sentences."""
        self.sentences += len(ours)
        self.identical += sum(our == their for our, their in zip(ours, theirs, strict=True))
        self.our_tokens += sum(map(len, ours))
        self.their_tokens += sum(map(len, theirs))

    @property
    def identical_share(self) -> float:
        """Share of the sentences with the same tokens."""
        return self.identical / self.sentences

    @property
    def length_difference(self) -> float:
        """Our tokens over theirs, minus one."""
        return self.our_tokens / max(1, self.their_tokens) - 1.0


@dataclass(slots=True)
class Work:
    """What a model computed, counted by the engine; the same search makes the other side compute it too."""

    source_tokens: int = 0
    steps: int = 0  # of the decoder, summed over sentences; each is for `beam_size` hypotheses

    def add(self, sentences: Sequence[Sentence], answers: Sequence[JobResult]) -> None:
        """Count some sentences."""
        self.source_tokens += sum(len(sentence.ids) for sentence in sentences)
        self.steps += sum(answer.num_steps for answer in answers)


@dataclass(slots=True)
class Turns:
    """What each turn took both, in seconds, and what they answered."""

    num_sentences: int  # of a measurement
    ours_s: list[float] = field(default_factory=list)
    theirs_s: list[float] = field(default_factory=list)
    agreement: Agreement = field(default_factory=Agreement)
    work: Work = field(default_factory=Work)

    @property
    def speedup(self) -> float:
        """How many times faster we were: median over the turns."""
        return median(theirs / ours for ours, theirs in zip(self.ours_s, self.theirs_s, strict=True))

    @property
    def speedup_range(self) -> tuple[float, float]:
        """The worst and the best turn."""
        ratios = [theirs / ours for ours, theirs in zip(self.ours_s, self.theirs_s, strict=True)]
        return min(ratios), max(ratios)

    def per_s(self, seconds: Sequence[float]) -> float:
        """Sentences per second in the median turn."""
        return self.num_sentences / median(seconds)


def closed(ours: Contestant, theirs: Contestant, batches: Sequence[Sequence[Sentence]]) -> Turns:
    """Each batch is there at once; both have translated another batch before."""
    turns = Turns(len(batches[0]))
    for number, batch in enumerate(batches):
        answers: dict[int, list[Any]] = {}
        sides = [(ours, turns.ours_s), (theirs, turns.theirs_s)]
        for contestant, seconds in sides if number % 2 == 0 else reversed(sides):
            time.sleep(REST_S)
            answers[id(contestant)] = took(contestant, batch, seconds)
        _compare(turns, batch, ours, answers[id(ours)], theirs, answers[id(theirs)])
    return turns


def one_at_a_time(ours: Contestant, theirs: Contestant, sentences: Sequence[Sentence]) -> Turns:
    """The next sentence comes when the last is done; a turn is some sentences, the times are of each."""
    turns = Turns(1)
    for number, first in enumerate(range(0, len(sentences), SENTENCES_A_TURN)):
        some = sentences[first : first + SENTENCES_A_TURN]
        answers: dict[int, list[Any]] = {}
        sides = [(ours, turns.ours_s), (theirs, turns.theirs_s)]
        for contestant, seconds in sides if number % 2 == 0 else reversed(sides):
            time.sleep(REST_S)
            answers[id(contestant)] = [took(contestant, [sentence], seconds)[0] for sentence in some]
        _compare(turns, some, ours, answers[id(ours)], theirs, answers[id(theirs)])
    return turns


def took(contestant: Contestant, sentences: Sequence[Sentence], seconds: list[float]) -> list[Any]:
    """The answers; how long they took is added to `seconds`."""
    began = time.perf_counter()
    answers = contestant.translate(sentences)
    seconds.append(time.perf_counter() - began)
    return answers


def percentile_ms(seconds: Sequence[float], percent: float) -> float:
    """A percentile of times, in milliseconds."""
    return float(np.percentile(seconds, percent)) * 1e3


def _compare(
    turns: Turns,
    sentences: Sequence[Sentence],
    ours: Contestant,
    our_answers: list[Any],
    theirs: Contestant,
    their_answers: list[Any],
) -> None:
    turns.work.add(sentences, our_answers)
    turns.agreement.add(
        [ours.tokens(answer) for answer in our_answers], [theirs.tokens(answer) for answer in their_answers]
    )
