"""What `dragoman plan` does: reports read, a replica fitted, replicas simulated.  Knows no option parsing."""

from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from rich.console import Console

from service.planning.balancer import Balancer
from service.planning.fit import Fit, fit
from service.planning.measured import Measured, read
from service.planning.search import Demand, Planner, Prediction

_GOOD_ERROR = 0.15  # of a stage's p99
_LATE = 0.1  # of a stage's p99, by which its calls were sent late: the machine had no time, not only the server
_BUSY = 0.85  # of the capacity; beyond, a small error in either means a long queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the command line says."""

    reports: tuple[Path, ...]
    rate: float  # texts a second
    p99_ms: float
    spare: int = 0
    texts_per_call: int | None = None  # None: as measured
    balancer: Balancer = Balancer.LEAST_REQUEST
    seed: int = 1

    def __post_init__(self) -> None:
        for option, value in (("--rate", self.rate), ("--p99-ms", self.p99_ms)):
            if not (isfinite(value) and value > 0):
                raise ValueError(f"{option} is {value:g}, a finite number above 0 is needed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How many, and why."""

    question: Question
    fit: Fit
    needed: int  # replicas that must be up
    predictions: tuple[Prediction, ...]  # every number that was simulated, ascending
    warnings: tuple[str, ...]

    @property
    def replicas(self) -> int:
        """To run: those needed and the spare ones."""
        return self.needed + self.question.spare


def answer(question: Question, progress: Console) -> Answer:
    """The number of replicas.

    Raises:
        ValueError: a file is no report, or the target cannot be held.
    """
    measured = read((str(file), file.read_text(encoding="utf-8")) for file in question.reports)
    demand = Demand(
        rate=question.rate,
        p99_s=question.p99_ms / 1e3,
        texts_per_call=question.texts_per_call or measured.texts_per_call,
        balancer=question.balancer,
    )
    with progress.status("fitting a model of one replica"):
        fitted = fit(measured)
    with progress.status("simulating replicas"):
        planner = Planner(fitted.replica, demand, seed=question.seed)
        needed = planner.needed()
        for number in {max(1, needed - 1), needed + 1, needed + question.spare}:
            planner.predict(number)
    predictions = tuple(planner.predictions[number] for number in sorted(planner.predictions))
    return Answer(
        question=question,
        fit=fitted,
        needed=needed,
        predictions=predictions,
        warnings=tuple(_warnings(question, measured, fitted, needed)),
    )


def _warnings(question: Question, measured: Measured, fitted: Fit, needed: int) -> list[str]:
    warnings = list(measured.left_out)
    warnings += [
        f"{fitted_stage.stage.name}: the model's p99 is off by {fitted_stage.p99_error:+.0%}"
        for fitted_stage in fitted.stages
        if abs(fitted_stage.p99_error) > _GOOD_ERROR
    ]
    warnings += [
        f"{stage.name}: calls were sent up to {stage.send_delay_s * 1e3:.0f} ms late; measure again, on a quiet machine"
        for stage in measured.stages
        if stage.send_delay_s > _LATE * stage.latency_s[0.99]
    ]
    if not fitted.is_capacity_measured and measured.highest_rate < 0.95 * fitted.replica.capacity:
        warnings.append(
            f"no stage was beyond what the replica can do: its {fitted.replica.capacity:.0f} texts/s are inferred; "
            "measure a higher rate, too"
        )
    each = question.rate / needed
    if each > _BUSY * fitted.replica.capacity:
        more = needed * fitted.replica.capacity / question.rate - 1
        warnings.append(f"{needed} replicas have little room: {more:.0%} more texts would overload them")
    if each > measured.highest_rate:
        warnings.append(f"{each:.1f} texts/s for each replica is more than the {measured.highest_rate:.1f} measured")
    lowest = measured.stages[0].traffic.rate
    if lowest > 0.4 * fitted.replica.capacity:
        warnings.append(f"the lowest rate measured, {lowest:.1f} texts/s, is not low: measure a tenth of the capacity")
    return warnings
