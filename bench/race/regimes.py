"""How both sides are timed: a closed batch, one sentence at a time, and a stream of sentences at random times.

Within a turn both sides translate the same sentences, and the other side begins in the next turn, so that whatever else
the machine does meets both.  A ratio is the median over the turns.

In a stream, arrivals are a Poisson process; the same seed and rate give both sides the same sentences at the same
moments.  Latency counts from the moment a sentence was due.  A rate is sustained if the p95 latency stays under a
bound; both sides climb the same ladder of rates under the same bound.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple, Protocol

import numpy as np

from bench.race.text import Sentence
from service.tools.loadtest import due_times

REST_S = 0.1  # between two measurements: the OpenMP threads of the side that is done go on spinning for a moment
SENTENCES_A_TURN = 10  # one at a time
STEP = 1.04  # from one rate of the ladder to the next
GIVE_UP = 3.0  # bounds: a sentence that waited so long means that the rate is not sustained
_STRIDE = 4  # rungs
_MAX_RUNGS = 80  # away from the guess: a factor of 23


Clock = Callable[[], float]


class Contestant(Protocol):
    """Something that translates sentences that are all there."""

    def translate(self, sentences: Sequence[Sentence]) -> list[Any]: ...  # an answer to each, in their order
    def tokens(self, answer: Any) -> list[int]: ...  # best hypothesis, without end-of-sentence; outside the clock
    def close(self) -> None: ...


class Finished(NamedTuple):
    """A streamed sentence that is done."""

    number: int
    at: float  # time.perf_counter()


class Streaming(Protocol):
    """Something that translates sentences as they come; called from one thread."""

    def submit(self, number: int, sentence: Sentence) -> None: ...  # does not wait
    def finished(self, timeout_s: float) -> list[Finished]: ...  # since the last call; waits for at least one so long
    def close(self) -> None: ...


@dataclass(slots=True)
class Turns:
    """What each turn took both sides, in seconds, and the tokens that they answered."""

    num_sentences: int  # of a measurement
    clock: Clock = time.perf_counter
    ours_s: list[float] = field(default_factory=list)
    theirs_s: list[float] = field(default_factory=list)
    our_tokens: list[list[int]] = field(default_factory=list)
    their_tokens: list[list[int]] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """Return ratios, agreement and raw times as JSON."""
        ratios = [theirs / ours for ours, theirs in zip(self.ours_s, self.theirs_s, strict=True)]
        same = [ours == theirs for ours, theirs in zip(self.our_tokens, self.their_tokens, strict=True)]
        found: dict[str, Any] = {
            "speedup": round(median(ratios), 3),
            "speedup_min": round(min(ratios), 3),
            "speedup_max": round(max(ratios), 3),
            "sentences": len(same),
            "identical": round(sum(same) / len(same), 4),
            "dragoman_tokens": sum(map(len, self.our_tokens)),
            "peer_tokens": sum(map(len, self.their_tokens)),
        }
        for name, seconds in (("dragoman", self.ours_s), ("peer", self.theirs_s)):
            found[f"{name}_per_s"] = round(self.num_sentences / median(seconds), 2)
            found[f"{name}_p50_ms"], found[f"{name}_p95_ms"] = np.round(
                np.percentile(seconds, [50, 95]) * 1e3, 2
            ).tolist()
            found[f"{name}_s"] = [round(each, 5) for each in seconds]
        return found


def closed(
    ours: Contestant, theirs: Contestant, batches: Sequence[Sequence[Sentence]], clock: Clock = time.perf_counter
) -> Turns:
    """Translate batch after batch; each is there at once, and both sides have translated another batch before."""
    turns = Turns(len(batches[0]), clock)
    for number, batch in enumerate(batches):
        _turn(turns, number, ours, theirs, [batch])
    return turns


def one_at_a_time(
    ours: Contestant, theirs: Contestant, sentences: Sequence[Sentence], clock: Clock = time.perf_counter
) -> Turns:
    """Translate sentence after sentence; a turn is some sentences, the times are of each."""
    turns = Turns(1, clock)
    for number, first in enumerate(range(0, len(sentences), SENTENCES_A_TURN)):
        _turn(turns, number, ours, theirs, [[one] for one in sentences[first : first + SENTENCES_A_TURN]])
    return turns


def _turn(
    turns: Turns, number: int, ours: Contestant, theirs: Contestant, pieces: Sequence[Sequence[Sentence]]
) -> None:
    sides = [(ours, turns.ours_s, turns.our_tokens), (theirs, turns.theirs_s, turns.their_tokens)]
    for contestant, seconds, tokens in sides if number % 2 == 0 else reversed(sides):
        time.sleep(REST_S)
        answers = [answer for piece in pieces for answer in took(contestant, piece, seconds, turns.clock)]
        tokens += [contestant.tokens(answer) for answer in answers]


def took(
    contestant: Contestant, sentences: Sequence[Sentence], seconds: list[float], clock: Clock = time.perf_counter
) -> list[Any]:
    """Return the answers; how long they took is added to `seconds`."""
    began = clock()
    answers = contestant.translate(sentences)
    seconds.append(clock() - began)
    return answers


@dataclass(frozen=True, slots=True)
class Stream:
    """What both sides meet alike."""

    sentences: Sequence[Sentence]
    duration_s: float  # of arrivals at each rate
    bound_s: float  # of the p95 latency

    def cost_s(self, rate: float, seed: int, server: Streaming) -> float:
        """Return the p95 latency at a rate.

        When a sentence waits too long, the rate is given up, and the cost is beyond the bound: the more, the fewer
        sentences were answered until then.  Whatever was taken in is done when this returns.
        """
        rng = np.random.default_rng(seed)
        due = due_times(rate, self.duration_s, rng).tolist()
        chosen = rng.integers(len(self.sentences), size=len(due)).tolist()
        latencies: list[float] = []
        under_way: dict[int, float] = {}  # number -> due, on the clock; the oldest first
        started_at, submitted, is_given_up = time.perf_counter(), 0, False
        while submitted < len(due) or under_way:
            now = time.perf_counter()
            while submitted < len(due) and (at := started_at + due[submitted]) <= now:
                under_way[submitted] = at
                server.submit(submitted, self.sentences[chosen[submitted]])
                submitted += 1
            if now - next(iter(under_way.values()), now) > GIVE_UP * self.bound_s:
                is_given_up, submitted = True, len(due)
            wait_s = started_at + due[submitted] - time.perf_counter() if submitted < len(due) else 1.0
            for number, at in server.finished(max(0.0, wait_s)):
                latency_s = at - under_way.pop(number)
                if not is_given_up:
                    latencies.append(latency_s)
        if is_given_up:
            return GIVE_UP * self.bound_s * len(due) / max(1, len(latencies))
        return float(np.percentile(latencies, 95)) if latencies else math.inf

    def highest_rate(self, server: Streaming, guess: float, seed: int) -> float:
        """Return the highest rate of the ladder that this side sustains, beginning near a guess."""
        return STEP ** climb(
            round(math.log(guess, STEP)), lambda rung: self.cost_s(STEP**rung, seed, server) <= self.bound_s
        )


def climb(guess: int, is_sustained: Callable[[int], bool]) -> int:
    """Return the highest rung that is sustained: strides from a guess until it is between two, then halving.

    Raises:
        RuntimeError: nothing near the guess is sustained, or everything.
    """
    stride = _STRIDE if is_sustained(guess) else -_STRIDE
    near, far = guess, guess + stride
    while is_sustained(far) == (stride > 0):
        near, far = far, far + stride
        if abs(far - guess) > _MAX_RUNGS:
            raise RuntimeError(f"no limit between {STEP**guess:.1f} and {STEP**far:.1f} sentences/s")
    low, high = sorted((near, far))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_sustained(middle) else (low, middle)
    return low
