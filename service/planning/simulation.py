"""Calls to several replicas behind a balancer, event by event, in virtual time: the same seed gives the same figures.

Arrivals are random and independent (Poisson), as those of many callers are.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush

import numpy as np

from service.arrivals import due_times
from service.planning.balancer import Balancer
from service.planning.replica import Floats, Replica

Choose = Callable[["list[_Server]"], int]
_FOREVER = float("inf")


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
        """The same for about so many counted calls, after a warm-up of a fifth as many."""
        duration_s = num_calls * self.texts_per_call / self.rate
        return replace(self, duration_s=duration_s, warm_up_s=duration_s / 5)


def simulate(
    replica: Replica,
    traffic: Traffic,
    num_replicas: int = 1,
    balancer: Balancer = Balancer.LEAST_REQUEST,
    *,
    seed: int = 1,
) -> Floats:
    """Seconds that each counted call took until its last text was done, in order of arrival.

    Every call is followed to its end; nothing is refused.
    """
    rng = np.random.default_rng(seed)
    due = _due(traffic, rng)
    work = replica.work.at(rng.random((len(due), traffic.texts_per_call))).tolist()
    servers = [_Server(replica.rows, replica.growth) for _ in range(num_replicas)]
    done = _run(due.tolist(), work, servers, _chooser(balancer, num_replicas, seed))
    return np.asarray((np.array(done) - due)[due >= traffic.warm_up_s])


def _due(traffic: Traffic, rng: np.random.Generator) -> Floats:
    calls_rate, end_s = traffic.rate / traffic.texts_per_call, traffic.warm_up_s + traffic.duration_s
    if not (traffic.is_poisson and traffic.is_number_drawn):
        return due_times(calls_rate, end_s, rng if traffic.is_poisson else None)
    expected = calls_rate * end_s
    times = np.cumsum(rng.exponential(1 / calls_rate, size=int(expected + 6 * expected**0.5 + 10)))
    return np.asarray(times[times < end_s])


def _chooser(balancer: Balancer, num_replicas: int, seed: int) -> Choose:
    draw = random.Random(seed).random
    if num_replicas == 1:
        return lambda _: 0
    if balancer is Balancer.RANDOM:
        return lambda _: int(draw() * num_replicas)
    if balancer is Balancer.TWO_CHOICES:
        return lambda servers: _less_loaded(servers, int(draw() * num_replicas), int(draw() * (num_replicas - 1)))
    return _least_loaded


def _least_loaded(servers: "list[_Server]") -> int:
    loads = [server.calls for server in servers]
    return loads.index(min(loads))


def _less_loaded(servers: "list[_Server]", one: int, other: int) -> int:
    other += other >= one  # never the same
    return one if servers[one].calls <= servers[other].calls else other


def _run(due: list[float], work: list[list[float]], servers: "list[_Server]", choose: Choose) -> list[float]:
    """When each call is done."""
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
    """All texts in it advance at one speed, so one number says how far: what a text that began at 0 would have."""

    rows: int
    growth: float
    calls: int = 0  # outstanding
    version: int = 0
    at: float = 0.0  # when `advance` was reckoned
    advance: float = 0.0
    running: list[tuple[float, int]] = field(default_factory=list)  # heap: the advance at which it ends, its call
    waiting: "deque[tuple[float, int]]" = field(default_factory=deque)  # work, call

    def take(self, now: float, call: int, texts: list[float]) -> None:
        """Texts of a call."""
        self._advance_to(now)
        self.calls += 1
        for work in texts:
            if len(self.running) < self.rows:
                heappush(self.running, (self.advance + work, call))
            else:
                self.waiting.append((work, call))

    def finish(self, now: float) -> int:
        """The next text has ended: its call."""
        self._advance_to(now)
        self.advance, call = heappop(self.running)
        if self.waiting:
            work, waited = self.waiting.popleft()
            heappush(self.running, (self.advance + work, waited))
        return call

    def next_end(self) -> float:
        """When, if nothing else comes."""
        if not self.running:
            return _FOREVER
        return self.at + max(0.0, self.running[0][0] - self.advance) * (1.0 + self.growth * (len(self.running) - 1))

    def _advance_to(self, now: float) -> None:
        if self.running:
            self.advance += (now - self.at) / (1.0 + self.growth * (len(self.running) - 1))
        self.at = now
        self.version += 1
