"""The replica that best explains what was measured: every stage is simulated as it was run, and latencies compared.

The stage of the lowest rate gives the work of a text; capacity and sharing (see `replica.replica_of`) are searched.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import exp, log

import numpy as np

from service.planning.measured import Measured, MeasuredStage
from service.planning.replica import Distribution, Floats, Replica, replica_of
from service.planning.simulation import simulate

COMPARED = (0.5, 0.9, 0.95, 0.99)
_LEAST_CHANCE = 0.03  # of a quantile: of the model's form, and of what else the machine did
_CHANCE_RUNS = 10
_CALLS = 3_000  # simulated for each stage and candidate, in as many runs as that takes
_ROUNDS = 3  # of search and correction of the work
_CAPACITIES = (1.02, 1.15, 1.35, 1.7)  # where the search begins: times the highest rate that was measured ...
_SHARINGS = (1.0, 2.0, 5.0)  # ... and each of these
_FIRST_STEP, _LAST_STEP = log(1.3), log(1.02)
_MAX_CAPACITY, _MAX_SHARING = 4.0, 30.0

Simulated = dict[str, Floats]


@dataclass(frozen=True, slots=True)
class FittedStage:
    """Measured and simulated seconds of a stage, by probability."""

    stage: MeasuredStage
    simulated_s: Mapping[float, float]

    @property
    def p99_error(self) -> float:
        """Of the simulation, as a part of what was measured."""
        return self.simulated_s[0.99] / self.stage.latency_s[0.99] - 1


@dataclass(frozen=True, slots=True)
class Fit:
    """The replica, and how well it explains the stages."""

    replica: Replica
    stages: tuple[FittedStage, ...]
    is_capacity_measured: bool  # else inferred from latency alone


def fit(measured: Measured, on_progress: Callable[[], None] = lambda: None) -> Fit:
    """The replica of least error of the logarithms of p50, p90, p95 and p99 over all stages.

    Errors count as multiples of what stages of this length differ by chance: small ones squared, large ones as they
    are, so that a stage in which the machine stood still for a moment does not draw the others away.

    Args:
        measured: two stages at least.
        on_progress: called before each candidate.
    """
    lowest = measured.stages[0]
    work = _distribution(lowest.latency_s)
    known = measured.capacity
    search = _Search(measured, on_progress)
    starts = _starts(measured.highest_rate, known)
    for _ in range(_ROUNDS):
        starts = [search.best(work, starts, capacity=known)]
        work = _corrected(work, lowest, _candidate(work, starts[0]))
        search.learn_chance(_candidate(work, starts[0]))
    replica = _candidate(work, starts[0])
    stages = tuple(FittedStage(stage, _quantiles(simulate_stage(replica, stage))) for stage in measured.stages)
    return Fit(replica, stages, is_capacity_measured=known is not None)


def simulate_stage(replica: Replica, stage: MeasuredStage) -> Floats:
    """Latencies of the stage run again on this replica, several times over."""
    calls = stage.traffic.rate / stage.traffic.texts_per_call * stage.traffic.duration_s
    runs = max(2, round(_CALLS / calls))
    return np.concatenate([simulate(replica, stage.traffic, seed=seed) for seed in range(runs)])


def chance(replica: Replica, stage: MeasuredStage) -> Floats:
    """By what part each quantile of such a stage differs from run to run, and by how late its calls were sent."""
    runs = [_quantiles(simulate(replica, stage.traffic, seed=seed)) for seed in range(_CHANCE_RUNS)]
    spread = np.std([[log(run[part]) for part in COMPARED] for run in runs], axis=0)
    late = np.array([stage.send_delay_s / stage.latency_s[part] for part in COMPARED])
    return np.asarray(np.sqrt(spread**2 + _LEAST_CHANCE**2 + late**2))


Point = tuple[float, float]  # logarithms of capacity and sharing


def _starts(highest_rate: float, known: float | None) -> list[Point]:
    capacities = [known] if known else [factor * highest_rate for factor in _CAPACITIES]
    return [(log(capacity), log(sharing)) for capacity in capacities for sharing in _SHARINGS]


def _candidate(work: Distribution, point: Point) -> Replica:
    return replica_of(work, exp(point[0]), exp(point[1]))


@dataclass
class _Search:
    measured: Measured
    on_progress: Callable[[], None]
    errors: dict[tuple[Distribution, Point], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chances = [np.full(len(COMPARED), 2 * _LEAST_CHANCE) for _ in self.measured.stages]

    def learn_chance(self, replica: Replica) -> None:
        """What the next search goes by."""
        self.chances = [chance(replica, stage) for stage in self.measured.stages]
        self.errors.clear()

    def best(self, work: Distribution, starts: list[Point], *, capacity: float | None) -> Point:
        """From the best start, to the best neighbour, in ever smaller steps."""
        point = min(starts, key=lambda start: self.error(work, start))
        step = _FIRST_STEP if len(starts) > 1 else _FIRST_STEP / 4
        while step > _LAST_STEP:
            neighbours = [self._inside((point[0], point[1] + 2 * sign * step)) for sign in (-1, 1)]
            if capacity is None:
                neighbours += [self._inside((point[0] + sign * step / 2, point[1])) for sign in (-1, 1)]
            better = min(neighbours, key=lambda neighbour: self.error(work, neighbour))
            if self.error(work, better) < self.error(work, point):
                point = better
            else:
                step /= 2
        return point

    def _inside(self, point: Point) -> Point:
        highest = log(self.measured.highest_rate)
        capacity = min(max(point[0], highest + log(0.8)), highest + log(_MAX_CAPACITY))
        return capacity, min(max(point[1], 0.0), log(_MAX_SHARING))

    def error(self, work: Distribution, point: Point) -> float:
        """Mean over the stages."""
        if (work, point) not in self.errors:
            self.on_progress()
            replica = _candidate(work, point)
            self.errors[work, point] = float(
                np.mean(
                    [self._of_stage(replica, *pair) for pair in zip(self.measured.stages, self.chances, strict=True)]
                )
            )
        return self.errors[work, point]

    @staticmethod
    def _of_stage(replica: Replica, stage: MeasuredStage, by_chance: Floats) -> float:
        simulated = _quantiles(simulate_stage(replica, stage))
        errors = [log(simulated[part] / stage.latency_s[part]) for part in COMPARED]
        return float(np.mean(np.hypot(1.0, np.array(errors) / by_chance) - 1.0))


def _quantiles(latency_s: Floats) -> dict[float, float]:
    return dict(zip(COMPARED, np.quantile(latency_s, COMPARED).tolist(), strict=True))


def _distribution(latency_s: Mapping[float, float]) -> Distribution:
    """Through these quantiles; at the lower end the first line goes on, at the upper one nothing is longer."""
    inner = sorted(latency_s)
    seconds = [latency_s[probability] for probability in inner]
    slope = (seconds[1] - seconds[0]) / (inner[1] - inner[0])
    lowest = max(seconds[0] / 2, seconds[0] - slope * inner[0])
    return Distribution((0.0, *inner, 1.0), (lowest, *seconds, seconds[-1]))


def _corrected(work: Distribution, lowest: MeasuredStage, replica: Replica) -> Distribution:
    """Less of it, where even the lowest rate had texts slow each other down."""
    inner = work.probabilities[1:-1]
    simulated = np.quantile(simulate_stage(replica, lowest), inner)
    factors = [lowest.latency_s[part] / second for part, second in zip(inner, simulated.tolist(), strict=True)]
    return work.times([factors[0], *factors, factors[-1]])
