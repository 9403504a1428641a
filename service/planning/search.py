"""The number of replicas that holds a target."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from service.planning.simulation import Balancer, Floats, Replica, Traffic, simulate

MAX_REPLICAS = 1_000
_LEAST_RUNS, _MOST_RUNS = 2, 5
_CALLS = 6_000  # counted in each run, at least
_MOST_CALLS = 200_000  # simulated for one prediction, in all its runs
# Settling times counted in each run, at least, after a fifth as many of warm-up.  Where _MOST_CALLS cuts a run, up to
# half of it is warm-up.
_SETTLINGS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What the replicas must do together."""

    rate: float  # texts a second
    p99_s: float
    texts_per_call: int = 1
    balancer: Balancer = Balancer.LEAST_REQUEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Latency of so many replicas under the demand."""

    num_replicas: int
    utilization: float  # texts offered, as a part of those they can do
    p50_s: float = float("inf")  # infinite: they are overloaded
    p99_s: float = float("inf")
    p99_spread_s: tuple[float, float] = (float("inf"), float("inf"))  # lowest and highest of the simulated runs


@dataclass
class Planner:
    """Predictions, each made once."""

    replica: Replica
    demand: Demand
    seed: int = 1
    predictions: dict[int, Prediction] = field(default_factory=dict)

    def needed(self) -> int:
        """Return the fewest replicas that hold the p99; raises ValueError if MAX_REPLICAS do not."""
        demand = self.demand
        calls = Traffic(rate=1e-3 / self.replica.work.mean_s, duration_s=1.0, texts_per_call=demand.texts_per_call)
        alone_s = float(np.quantile(simulate(self.replica, calls.lasting(_CALLS), seed=self.seed), 0.99))
        if alone_s > demand.p99_s:
            target = f"a p99 of {demand.p99_s * 1e3:g} ms"
            raise ValueError(f"{target} cannot be held: without other calls it is {alone_s * 1e3:.0f} ms")
        least = int(demand.rate / self.replica.capacity) + 1
        return fewest(lambda number: self.predict(number).p99_s <= demand.p99_s, least, MAX_REPLICAS)

    def predict(self, num_replicas: int) -> Prediction:
        """Return the latency of so many replicas."""
        if num_replicas not in self.predictions:
            self.predictions[num_replicas] = self._simulated(num_replicas)
        return self.predictions[num_replicas]

    def _simulated(self, num_replicas: int) -> Prediction:
        utilization = self.demand.rate / (num_replicas * self.replica.capacity)
        if utilization >= 1:
            return Prediction(num_replicas=num_replicas, utilization=utilization)
        runs = self._runs(num_replicas)
        p99s = [float(np.quantile(run, 0.99)) for run in runs]
        p50, p99 = np.quantile(np.concatenate(runs), [0.5, 0.99]).tolist()
        return Prediction(
            num_replicas=num_replicas,
            utilization=utilization,
            p50_s=p50,
            p99_s=p99,
            p99_spread_s=(min(p99s), max(p99s)),
        )

    def _runs(self, num_replicas: int) -> list[Floats]:
        """Return the latencies of each of several runs."""
        demand, rate, together = self.demand, self.demand.rate, num_replicas
        if demand.balancer is Balancer.RANDOM:  # each has a Poisson process of its own: one is like the next
            rate, together = rate / num_replicas, 1
        calls_rate = rate / demand.texts_per_call
        counted_s = max(_CALLS / calls_rate, _SETTLINGS * self._settling_s(together, rate))
        num_runs = int(min(max(_MOST_CALLS / calls_rate / (1.2 * counted_s), _LEAST_RUNS), _MOST_RUNS))
        most_s = _MOST_CALLS / calls_rate / num_runs
        warm_up_s = min(counted_s / 5, most_s / 2)
        traffic = Traffic(
            rate=rate,
            duration_s=min(counted_s, most_s - warm_up_s),
            warm_up_s=warm_up_s,
            texts_per_call=demand.texts_per_call,
        )
        seeds = range(self.seed, self.seed + num_runs)
        return [simulate(self.replica, traffic, together, demand.balancer, seed=seed) for seed in seeds]

    def _settling_s(self, num_replicas: int, rate: float) -> float:
        """Return about how long replicas that start empty take until they are as full as they will be, below capacity.

        They fill up in the time of a text in a full one, and the slower the less room there is; the queue that is
        common to all comes and goes with the relaxation time of M/M/1.
        """
        capacity = num_replicas * self.replica.capacity
        utilization = rate / capacity
        filling_s = self.replica.rows / self.replica.capacity / (1 - utilization)
        return filling_s + self.demand.texts_per_call / (capacity * (1 - sqrt(utilization)) ** 2)


def fewest(holds: Callable[[int], bool], least: int, most: int) -> int:
    """Return the smallest number from `least` to `most` that holds, by doubling and halving.

    What holds for a number holds for all above it; raises ValueError if it does not even for `most`.
    """
    broken, step = least - 1, 1
    while (number := min(broken + step, most)) > broken and not holds(number):
        broken, step = number, 2 * step
    if broken >= most:
        raise ValueError(f"more than {most} replicas are needed")
    while number - broken > 1:
        middle = (broken + number) // 2
        broken, number = (broken, middle) if holds(middle) else (middle, number)
    return number
