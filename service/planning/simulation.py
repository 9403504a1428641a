"""Calls to several replicas behind a balancer, event by event, in virtual time: the same seed gives the same figures.

One replica decodes up to so many texts together, a step for all of them at a time; further ones wait in their order.
A step takes longer the more texts are in it, about linearly.  So with n texts inside, each of them goes on at
1 / (1 + growth * (n - 1)) of the speed it has alone.  With growth 0 this is a queue before `rows` servers, with
growth 1 and any number of rows plain processor sharing: batching lies between.

Arrivals are random and independent (Poisson), as those of many callers are.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from service.loadtest.schedule import due_times

Floats = npt.NDArray[np.float64]
Choose = Callable[["list[_Server]"], int]


class Balancer(StrEnum):
    """Who gets the next call."""

    LEAST_REQUEST = "least-request"  # the replica with the fewest calls outstanding
    TWO_CHOICES = "two-choices"  # of two at random, the one with fewer; Envoy's least-request
    RANDOM = "random"  # as many clients that each take turns


@dataclass(frozen=True, slots=True)
class Distribution:
    """A text's seconds by quantile; straight lines between the quantiles."""

    probabilities: tuple[float, ...]  # from 0.0 to 1.0
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        assert len(self.probabilities) == len(self.seconds) >= 2
        assert (self.probabilities[0], self.probabilities[-1]) == (0.0, 1.0)

    @property
    def mean_s(self) -> float:
        """The area under the lines."""
        return float(np.trapezoid(self.seconds, self.probabilities))

    def at(self, probabilities: Floats) -> Floats:
        """Return the quantiles of these probabilities; uniform random numbers give a sample."""
        return np.interp(probabilities, self.probabilities, self.seconds)

    def times(self, factors: Sequence[float]) -> "Distribution":
        """Multiply each quantile by its factor and keep them in order."""
        product = np.multiply(self.seconds, factors)
        return Distribution(self.probabilities, tuple(np.maximum.accumulate(product).tolist()))


@dataclass(frozen=True, slots=True)
class Replica:
    """A server whose load is only that of the simulation."""

    work: Distribution  # seconds that a text takes alone
    rows: int  # texts that go on at the same time; more wait
    growth: float  # of a step for each further text in it, as a part of a step with one

    @classmethod
    def of(cls, work: Distribution, capacity: float, sharing: float) -> "Replica":
        """Return the replica with this capacity.

        Args:
            capacity: texts a second; at least one text after the other.
            sharing: how many times longer a text takes in a full replica than alone.  At 1, texts only wait for a free
                row; with more, there are more rows, which slow each other down.
        """
        together = max(1.0, capacity * work.mean_s)  # texts inside that this takes, if they did not slow each other
        rows = int(np.ceil(together * max(1.0, sharing) - 1e-9))
        growth = (rows / together - 1.0) / (rows - 1) if rows > 1 else 0.0
        return cls(work, rows, growth)

    @property
    def capacity(self) -> float:
        """Texts a second of a full replica."""
        return self.rows * self.speed(self.rows) / self.work.mean_s

    def speed(self, texts: int) -> float:
        """Return the speed of each of so many texts that go on, as a part of its speed alone."""
        return 1.0 / (1.0 + self.growth * (texts - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What comes in, for how long."""

    rate: float  # texts a second
    duration_s: float
    warm_up_s: float = 0.0  # before it, from empty replicas; its calls are not counted
    texts_per_call: int = 1
    is_poisson: bool = True  # else in constant gaps
    is_number_drawn: bool = True  # else as many calls as the rate says, which is what a load test sends

    def lasting(self, num_calls: int) -> "Traffic":
        """Return the same for about so many counted calls, after a warm-up of a fifth as many."""
        duration_s = num_calls * self.texts_per_call / self.rate
        return replace(self, duration_s=duration_s, warm_up_s=duration_s / 5)

    def due(self, rng: np.random.Generator) -> Floats:
        """Return when each call comes."""
        calls_rate, end_s = self.rate / self.texts_per_call, self.warm_up_s + self.duration_s
        if not (self.is_poisson and self.is_number_drawn):
            return due_times(calls_rate, end_s, rng if self.is_poisson else None)
        expected = calls_rate * end_s
        times = np.cumsum(rng.exponential(1 / calls_rate, size=int(expected + 6 * expected**0.5 + 10)))
        return np.asarray(times[times < end_s])


def simulate(
    replica: Replica,
    traffic: Traffic,
    num_replicas: int = 1,
    balancer: Balancer = Balancer.LEAST_REQUEST,
    *,
    seed: int = 1,
) -> Floats:
    """Return the seconds that each counted call took until its last text was done, in order of arrival.

    Every call is followed to its end; nothing is refused.
    """
    rng = np.random.default_rng(seed)
    due = traffic.due(rng)
    work = replica.work.at(rng.random((len(due), traffic.texts_per_call))).tolist()
    servers = [_Server(replica.rows, replica.growth) for _ in range(num_replicas)]
    done = _run(due.tolist(), work, servers, _chooser(balancer, num_replicas, seed))
    return np.asarray((np.array(done) - due)[due >= traffic.warm_up_s])


def _chooser(balancer: Balancer, num_replicas: int, seed: int) -> Choose:
    draw = random.Random(seed).random
    if num_replicas == 1:
        return lambda _: 0
    if balancer is Balancer.RANDOM:
        return lambda _: int(draw() * num_replicas)

    def less_loaded_of_two(servers: "list[_Server]") -> int:
        one, other = int(draw() * num_replicas), int(draw() * (num_replicas - 1))
        other += other >= one  # never the same
        return one if servers[one].calls <= servers[other].calls else other

    def least_loaded(servers: "list[_Server]") -> int:
        loads = [server.calls for server in servers]
        return loads.index(min(loads))

    return less_loaded_of_two if balancer is Balancer.TWO_CHOICES else least_loaded


def _run(due: list[float], work: list[list[float]], servers: "list[_Server]", choose: Choose) -> list[float]:
    """Return when each call is done."""
    done = [0.0] * len(due)
    texts_left = [len(texts) for texts in work]
    events: list[tuple[float, int, int]] = []  # when a text ends, its server, and that server's version of then

    def advance_to(until: float) -> None:
        while events and events[0][0] <= until:
            now, index, version = heappop(events)
            server = servers[index]
            if server.version != version:
                continue  # something came in since: it ends at another time
            call = server.finish(now)
            heappush(events, (server.next_end(), index, server.version))
            texts_left[call] -= 1
            if not texts_left[call]:
                server.calls -= 1
                done[call] = now

    for call, now in enumerate(due):
        advance_to(now)
        index = choose(servers)
        servers[index].take(now, call, work[call])
        heappush(events, (servers[index].next_end(), index, servers[index].version))
        if len(events) > 64 + 4 * len(servers):
            events[:] = [event for event in events if servers[event[1]].version == event[2]]
            heapify(events)
    while any(server.calls for server in servers):
        advance_to(events[0][0])
    return done


@dataclass(slots=True, eq=False)
class _Server:
    """A replica in use.

    All texts in it advance at one speed, so that one number says how far: what a text that began at 0 would have.
    """

    rows: int
    growth: float
    calls: int = 0  # outstanding
    version: int = 0
    at: float = 0.0  # when `advance` was reckoned
    advance: float = 0.0
    running: list[tuple[float, int]] = field(default_factory=list)  # heap: the advance at which it ends, its call
    waiting: "deque[tuple[float, int]]" = field(default_factory=deque)  # work, call

    def take(self, now: float, call: int, texts: list[float]) -> None:
        """Begin the texts of a call, or let them wait."""
        self._advance_to(now)
        self.calls += 1
        for work in texts:
            if len(self.running) < self.rows:
                heappush(self.running, (self.advance + work, call))
            else:
                self.waiting.append((work, call))

    def finish(self, now: float) -> int:
        """End the next text and return its call."""
        self._advance_to(now)
        self.advance, call = heappop(self.running)
        if self.waiting:
            work, waited = self.waiting.popleft()
            heappush(self.running, (self.advance + work, waited))
        return call

    def next_end(self) -> float:
        """Return when the next text ends if nothing else comes."""
        if not self.running:
            return float("inf")
        return self.at + max(0.0, self.running[0][0] - self.advance) * self._seconds_per_advance

    def _advance_to(self, now: float) -> None:
        if self.running:
            self.advance += (now - self.at) / self._seconds_per_advance
        self.at = now
        self.version += 1

    @property
    def _seconds_per_advance(self) -> float:
        return 1.0 + self.growth * (len(self.running) - 1)
