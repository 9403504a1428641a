"""The replica that best explains what was measured: every stage is simulated as it was run, and latencies compared.

The stage of the lowest rate gives the work of a text; capacity and sharing (see `Replica.of`) are searched.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log
from typing import NamedTuple

import numpy as np

from service.planning.measured import Measured, MeasuredStage
from service.planning.simulation import Distribution, Floats, Replica, simulate

COMPARED = (0.5, 0.9, 0.95, 0.99)
_LEAST_CHANCE = 0.03  # of a quantile: of the model's form, and of what else the machine did
_CHANCE_RUNS = 10
_CALLS = 3_000  # simulated for each stage and candidate, in as many runs as that takes
_ROUNDS = 3  # of search and correction of the work
_CAPACITIES = (1.02, 1.15, 1.35, 1.7)  # where the search begins: times the highest rate that was measured ...
_SHARINGS = (1.0, 2.0, 5.0)  # ... and each of these
_FIRST_STEP, _LAST_STEP = log(1.3), log(1.02)
_MAX_CAPACITY, _MAX_SHARING = 4.0, 30.0


@dataclass(frozen=True, slots=True)
class FittedStage:
    """Measured and simulated seconds of a stage, by probability."""

    stage: MeasuredStage
    simulated_s: Mapping[float, float]

    @property
    def p99_error(self) -> float:
        """Error of the simulated p99, as a part of the measured one."""
        return self.simulated_s[0.99] / self.stage.latency_s[0.99] - 1


@dataclass(frozen=True, slots=True)
class Fit:
    """The replica, and how well it explains the stages."""

    replica: Replica
    stages: tuple[FittedStage, ...]
    is_capacity_measured: bool  # else inferred from latency alone


class _Point(NamedTuple):
    """A candidate, in logarithms."""

    capacity: float
    sharing: float

    def replica(self, work: Distribution) -> Replica:
        return Replica.of(work, exp(self.capacity), exp(self.sharing))


def fit(measured: Measured) -> Fit:
    """Return the replica of least error of the logarithms of p50, p90, p95 and p99 over all stages.

    Errors count as multiples of what stages of this length differ by chance: small ones squared, large ones as they
    are, so that a stage in which the machine stood still for a moment does not draw the others away.

    Args:
        measured: two stages at least.
    """
    lowest, known = measured.stages[0], measured.capacity
    capacities = [known] if known else [factor * measured.highest_rate for factor in _CAPACITIES]
    points = [_Point(log(capacity), log(sharing)) for capacity in capacities for sharing in _SHARINGS]
    work = _distribution(lowest.latency_s)
    chances = [np.full(len(COMPARED), 2 * _LEAST_CHANCE) for _ in measured.stages]
    for _ in range(_ROUNDS):
        points = [_Search(measured, work, chances).best(points)]
        work = _corrected(work, lowest, points[0].replica(work))
        chances = [_chance(points[0].replica(work), stage) for stage in measured.stages]
    replica = points[0].replica(work)
    stages = tuple(FittedStage(stage, _quantiles(_simulated(replica, stage))) for stage in measured.stages)
    return Fit(replica, stages, is_capacity_measured=known is not None)


class _Search:
    """Looks for the best point, given the work of a text; each point's error is reckoned once."""

    def __init__(self, measured: Measured, work: Distribution, chances: list[Floats]) -> None:
        self._measured = measured
        self._work = work
        self._chances = chances
        self._errors: dict[_Point, float] = {}

    def best(self, starts: list[_Point]) -> _Point:
        """Go from the best start to the best neighbour, in ever smaller steps."""
        point = min(starts, key=self._error)
        step = _FIRST_STEP if len(starts) > 1 else _FIRST_STEP / 4
        while step > _LAST_STEP:
            neighbours = [self._inside(point.capacity, point.sharing + 2 * sign * step) for sign in (-1, 1)]
            if self._measured.capacity is None:
                neighbours += [self._inside(point.capacity + sign * step / 2, point.sharing) for sign in (-1, 1)]
            better = min(neighbours, key=self._error)
            if self._error(better) < self._error(point):
                point = better
            else:
                step /= 2
        return point

    def _inside(self, capacity: float, sharing: float) -> _Point:
        highest = log(self._measured.highest_rate)
        capacity = min(max(capacity, highest + log(0.8)), highest + log(_MAX_CAPACITY))
        return _Point(capacity, min(max(sharing, 0.0), log(_MAX_SHARING)))

    def _error(self, point: _Point) -> float:
        """Return the mean over the stages."""
        if point not in self._errors:
            replica, means = point.replica(self._work), []
            for stage, by_chance in zip(self._measured.stages, self._chances, strict=True):
                simulated = _quantiles(_simulated(replica, stage))
                errors = np.array([log(simulated[part] / stage.latency_s[part]) for part in COMPARED])
                means.append(float(np.mean(np.hypot(1.0, errors / by_chance) - 1.0)))
            self._errors[point] = float(np.mean(means))
        return self._errors[point]


def _simulated(replica: Replica, stage: MeasuredStage) -> Floats:
    """Return the latencies of the stage run again on this replica, several times over."""
    calls = stage.traffic.rate / stage.traffic.texts_per_call * stage.traffic.duration_s
    runs = max(2, round(_CALLS / calls))
    return np.concatenate([simulate(replica, stage.traffic, seed=seed) for seed in range(runs)])


def _chance(replica: Replica, stage: MeasuredStage) -> Floats:
    """Return by what part each quantile of such a stage differs from run to run, and by how late calls were sent."""
    runs = [_quantiles(simulate(replica, stage.traffic, seed=seed)) for seed in range(_CHANCE_RUNS)]
    spread = np.std([[log(run[part]) for part in COMPARED] for run in runs], axis=0)
    late = np.array([stage.send_delay_s / stage.latency_s[part] for part in COMPARED])
    return np.asarray(np.sqrt(spread**2 + _LEAST_CHANCE**2 + late**2))


def _quantiles(latency_s: Floats) -> dict[float, float]:
    return dict(zip(COMPARED, np.quantile(latency_s, COMPARED).tolist(), strict=True))


def _distribution(latency_s: Mapping[float, float]) -> Distribution:
    """Draw lines through these quantiles; at the lower end the first line goes on, at the upper nothing is longer."""
    inner = sorted(latency_s)
    seconds = [latency_s[probability] for probability in inner]
    slope = (seconds[1] - seconds[0]) / (inner[1] - inner[0])
    lowest = max(seconds[0] / 2, seconds[0] - slope * inner[0])
    return Distribution((0.0, *inner, 1.0), (lowest, *seconds, seconds[-1]))


def _corrected(work: Distribution, lowest: MeasuredStage, replica: Replica) -> Distribution:
    """Return less work, where even at the lowest rate texts slowed each other down."""
    inner = work.probabilities[1:-1]
    simulated = np.quantile(_simulated(replica, lowest), inner)
    factors = [lowest.latency_s[part] / second for part, second in zip(inner, simulated.tolist(), strict=True)]
    return work.times([factors[0], *factors, factors[-1]])
