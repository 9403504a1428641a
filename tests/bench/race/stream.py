"""The third regime: sentences arrive at random times, and how many a second can be kept up with.

Arrivals are a Poisson process; the same seed and rate give both sides the same sentences at the same moments.  A
latency counts from the moment a sentence was due, whether or not it could be submitted then.

A rate is sustained if the p95 latency stays under a bound.  Both sides climb the same ladder of rates under the same
bound.
"""

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from tests.bench.race.contestants import Sentence, Streaming

STEP = 1.04  # from one rate of the ladder to the next
EQUAL_LOADS = (0.5, 0.8)  # of the lower of both highest rates, where latencies are compared
GIVE_UP = 3.0  # bounds: a sentence that waited so long means that the rate is not sustained
_STRIDE = 4  # rungs
_MAX_RUNGS = 80  # away from the guess: a factor of 23


@dataclass(frozen=True, slots=True)
class Arrival:
    """A sentence and when it comes, in seconds from the start."""

    at: float
    sentence: Sentence


@dataclass(frozen=True, slots=True)
class Run:
    """What was seen at one rate."""

    rate: float  # sentences per second
    latencies: tuple[float, ...]  # in seconds, of the sentences that were answered before it was given up
    num_arrivals: int
    bound_s: float
    is_given_up: bool

    @property
    def is_sustained(self) -> bool:
        """Whether the p95 latency stayed under the bound."""
        return not self.is_given_up and self.percentile(95) <= self.bound_s

    @property
    def cost(self) -> float:
        """p95 latency in seconds; when it was given up, the more the fewer were answered until then."""
        if not self.is_given_up:
            return self.percentile(95)
        return GIVE_UP * self.bound_s * self.num_arrivals / max(1, len(self.latencies))

    def percentile(self, percent: float) -> float:
        """Of the latencies, in seconds."""
        return float(np.percentile(self.latencies, percent)) if self.latencies else math.inf

    def record(self) -> dict[str, Any]:
        """As JSON."""
        quantiles = {f"p{percent}_ms": round(self.percentile(percent) * 1e3, 1) for percent in (50, 95, 99)}
        seen = {"sentences": len(self.latencies), "sustained": self.is_sustained, "given_up": self.is_given_up}
        return {"rate": round(self.rate, 2)} | (quantiles if self.latencies else {}) | seen


def arrivals(sentences: Sequence[Sentence], rate: float, duration_s: float, seed: int) -> list[Arrival]:
    """Random sentences at the times of a Poisson process."""
    rng = random.Random(f"{seed} {rate:.6f}")
    coming: list[Arrival] = []
    at = rng.expovariate(rate)
    while at < duration_s:
        coming.append(Arrival(at, rng.choice(sentences)))
        at += rng.expovariate(rate)
    return coming


def run(server: Streaming, coming: Sequence[Arrival], rate: float, bound_s: float) -> Run:
    """Feed the arrivals and note when each is answered; whatever was taken in is done when this returns."""
    feed = _Feed(server, coming)
    while not feed.is_done and not feed.has_waited_longer_than(GIVE_UP * bound_s):
        feed.go_on()
    is_given_up = not feed.is_done
    feed.drain()
    return Run(rate, tuple(feed.latencies), len(coming), bound_s, is_given_up)


class _Feed:
    """Arrivals on their way through one side."""

    def __init__(self, server: Streaming, coming: Sequence[Arrival]) -> None:
        self.latencies: list[float] = []
        self._server = server
        self._coming = coming
        self._next = 0
        self._under_way: dict[int, float] = {}  # number -> due, on the clock; the oldest first
        self._started_at = time.perf_counter()

    @property
    def is_done(self) -> bool:
        return self._next == len(self._coming) and not self._under_way

    def has_waited_longer_than(self, limit_s: float) -> bool:
        oldest = next(iter(self._under_way.values()), math.inf)
        return time.perf_counter() - oldest > limit_s

    def go_on(self) -> None:
        """Submit what is due, then wait until something is answered or due."""
        now = time.perf_counter()
        while self._next < len(self._coming) and (due := self._due) <= now:
            self._under_way[self._next] = due
            self._server.submit(self._next, self._coming[self._next].sentence)
            self._next += 1
        wait_s = self._due - time.perf_counter() if self._next < len(self._coming) else 1.0
        self._receive(max(0.0, wait_s))

    def drain(self) -> None:
        """Wait for what was submitted, without counting it."""
        counted = len(self.latencies)
        while self._under_way:
            self._receive(1.0)
        del self.latencies[counted:]

    @property
    def _due(self) -> float:
        return self._started_at + self._coming[self._next].at

    def _receive(self, timeout_s: float) -> None:
        for number, at in self._server.finished(timeout_s):
            self.latencies.append(at - self._under_way.pop(number))


def climb(guess: int, is_sustained: Callable[[int], bool]) -> int:
    """The highest rung of the ladder that is sustained: strides from a guess until it is between two, then halving.

    Raises:
        RuntimeError: nothing near the guess is sustained, or everything.
    """
    stride = _STRIDE if is_sustained(guess) else -_STRIDE
    near, far = guess, guess + stride
    while is_sustained(far) == (stride > 0):
        near, far = far, far + stride
        if abs(far - guess) > _MAX_RUNGS:
            raise RuntimeError(f"no limit between {rate_of(guess):.1f} and {rate_of(far):.1f} sentences/s")
    low, high = sorted((near, far))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_sustained(middle) else (low, middle)
    return low


def rung_of(rate: float) -> int:
    """The rung next to a rate."""
    return round(math.log(rate, STEP))


def rate_of(rung: int) -> float:
    """Sentences per second of a rung."""
    return STEP**rung


@dataclass(frozen=True, slots=True)
class StreamResult:
    """What both sides sustained, and their latencies at the same rates."""

    bound_s: float
    ours: tuple[float, ...]  # highest rate sustained, one for each seed
    theirs: tuple[float, ...]
    ladder: tuple[tuple[str, Run], ...]  # ("ours" or "theirs", what was seen)
    equal_rates: tuple[tuple[Run, Run], ...]  # ours and theirs

    @property
    def rate_ratio(self) -> float:
        """Our highest rate over theirs: median over the seeds."""
        return median(ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True))

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "dragoman_rate": round(median(self.ours), 2),
            "peer_rate": round(median(self.theirs), 2),
            "speedup": round(self.rate_ratio, 3),
            "bound_ms": round(self.bound_s * 1e3, 1),
            "rates": {"dragoman": self.ours, "peer": self.theirs},
            "ladder": [{"side": side} | seen.record() for side, seen in self.ladder],
            "equal_rates": [{"dragoman": ours.record(), "peer": theirs.record()} for ours, theirs in self.equal_rates],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What both sides meet alike."""

    sentences: Sequence[Sentence]
    duration_s: float  # of arrivals at each rate
    bound_s: float  # of the p95 latency

    def try_rate(self, server: Streaming, rate: float, seed: int) -> Run:
        """Run one side at a rate."""
        return run(server, arrivals(self.sentences, rate, self.duration_s, seed), rate, self.bound_s)


def race(
    servers: Mapping[str, Streaming], guesses: Mapping[str, float], conditions: Conditions, seeds: Sequence[int]
) -> StreamResult:
    """Let both climb the ladder, once for each seed, then meet the same arrivals at rates that both sustain.

    Args:
        servers: "ours" and "theirs".
        guesses: rates to begin at.
        conditions: the same for both.
        seeds: of the arrivals; who climbs first changes with each.
    """
    rungs = {side: rung_of(rate) for side, rate in guesses.items()}
    highest: dict[str, list[float]] = {side: [] for side in servers}
    ladder: list[tuple[str, Run]] = []

    def is_sustained(side: str, seed: int, rung: int) -> bool:
        ladder.append((side, conditions.try_rate(servers[side], rate_of(rung), seed)))
        return ladder[-1][1].is_sustained

    for turn, seed in enumerate(seeds):
        for side in servers if turn % 2 == 0 else reversed(list(servers)):
            rungs[side] = climb(rungs[side], partial(is_sustained, side, seed))
            highest[side].append(rate_of(rungs[side]))
    lower = min(median(rates) for rates in highest.values())
    equal = tuple(
        (
            conditions.try_rate(servers["ours"], load * lower, seeds[0]),
            conditions.try_rate(servers["theirs"], load * lower, seeds[0]),
        )
        for load in EQUAL_LOADS
    )
    return StreamResult(conditions.bound_s, tuple(highest["ours"]), tuple(highest["theirs"]), tuple(ladder), equal)
