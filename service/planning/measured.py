"""What load tests of one replica measured, read from their JSON reports."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from service.planning.simulation import Traffic

QUANTILES = ("p50", "p90", "p95", "p99")  # that a stage must have
_LEAST_CALLS = 30  # a p99 of fewer says nothing
_MAX_FAILED_RATIO = 0.001  # with more, the latency is that of those who were let in
_OVERLOADED_RATIO = 0.02  # failed: the rest is what it can do
_BY_OVERLOAD = ("RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNAVAILABLE")
_KEPT_UP_RATIO = 0.95  # of what was offered, answered in the same time; with less, a queue grew


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStage:
    """One rate at which one replica was loaded."""

    name: str
    traffic: Traffic
    latency_s: Mapping[float, float]  # by probability
    send_delay_s: float  # p99, of the load generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All stages, by rate."""

    stages: tuple[MeasuredStage, ...]  # with which the replica kept up
    capacity: float | None = None  # texts a second that were answered when it did not
    left_out: tuple[str, ...] = ()  # what says nothing, and why

    @property
    def highest_rate(self) -> float:
        """Texts a second with which the replica kept up."""
        return self.stages[-1].traffic.rate

    @property
    def texts_per_call(self) -> int:
        """Texts of each call that was measured."""
        return self.stages[0].traffic.texts_per_call


def read(reports: Iterable[tuple[str, str]]) -> Measured:
    """Return the stages of these reports, each a name and a content; raises ValueError if they are too little."""
    found = [stage for name, text in reports for stage in _stages(name, text)]
    _check(found)
    kept_up = sorted((stage.measured for stage in found if stage.is_kept_up), key=lambda stage: stage.traffic.rate)
    left_out = [str(stage) for stage in found if not (stage.is_kept_up or stage.is_overloaded)]
    if len({stage.traffic.rate for stage in kept_up}) < 2:
        raise ValueError(
            f"the replica kept up with {len(kept_up)} of {len(found)} stages, "
            "at least 2 of different rates are needed: "
            + "".join(f"{line}; " for line in left_out)
            + "measure with `dragoman loadtest --rate A --rate B --report FILE.json`"
        )
    capacity = max((stage.done_rate for stage in found if stage.is_overloaded), default=None)
    highest = kept_up[-1].traffic.rate
    if capacity is not None and capacity < _KEPT_UP_RATIO * highest:
        left_out.append(
            f"an overloaded stage had {capacity:.1f} texts/s answered, but another kept up with {highest:.1f}: "
            "not taken for what the replica can do"
        )
        capacity = None
    return Measured(stages=tuple(kept_up), capacity=capacity, left_out=tuple(left_out))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReportedStage:
    """A stage as it stands in a report."""

    measured: MeasuredStage
    calls: int
    failed: Mapping[str, int]  # by code
    texts_rate: float  # of the calls that began in the stage and were answered at some time
    done_rate: float  # texts answered within the stage, a second
    answered_per_call: float | None  # texts; None without an answer

    @property
    def is_answered(self) -> bool:
        return self.answered_per_call is not None

    @property
    def is_kept_up(self) -> bool:
        return self.is_answered and self._has_few_failures and not self._is_behind

    @property
    def is_overloaded(self) -> bool:
        if not self.is_answered:  # what was done in it are calls of its warm-up
            return False
        by_overload = sum(self.failed.get(code, 0) for code in _BY_OVERLOAD)
        is_failing = by_overload >= _OVERLOADED_RATIO * self.calls and self.done_rate > 0
        return is_failing or (self._has_few_failures and self._is_behind)

    @property
    def _has_few_failures(self) -> bool:
        return sum(self.failed.values()) / self.calls <= _MAX_FAILED_RATIO

    @property
    def _is_behind(self) -> bool:
        """Whether more is unanswered at the end than the calls that are always under way, and chance."""
        traffic, latency_s = self.measured.traffic, self.measured.latency_s
        calls_rate = traffic.rate / traffic.texts_per_call
        missing = (self.texts_rate - self.done_rate) * traffic.duration_s / traffic.texts_per_call
        begun_empty = calls_rate * max(0.0, min(latency_s.values()) - traffic.warm_up_s)
        by_chance = 3 + 3 * (calls_rate * latency_s[0.99]) ** 0.5  # three deviations of how many are under way
        return self.done_rate < _KEPT_UP_RATIO * self.texts_rate and missing > begun_empty + by_chance

    def __str__(self) -> str:
        codes = ", ".join(f"{number} {code}" for code, number in self.failed.items())
        return f"{self.measured.name}: left out, {codes} of {self.calls} calls"


def _check(found: list[_ReportedStage]) -> None:
    sizes = set()
    for stage in found:
        if stage.answered_per_call is None:
            continue  # it is left out
        name, named = stage.measured.name, stage.measured.traffic.texts_per_call
        if stage.calls < _LEAST_CALLS:
            needed = f"at least {_LEAST_CALLS} are needed: measure it again with a longer --duration"
            raise ValueError(f"{name} has {stage.calls} calls, {needed}")
        if abs(stage.answered_per_call - named) > 0.05:
            answered = f"{stage.answered_per_call:.1f} were answered: measure it again"
            raise ValueError(f"{name} is said to have {named} texts a call, but {answered}")
        sizes.add(named)
    if len(sizes) > 1:
        raise ValueError(f"the stages have {sorted(sizes)} texts a call, they must have the same number")


def _stages(name: str, text: str) -> list[_ReportedStage]:
    try:
        report = json.loads(text)
        if report.get("callers"):  # a closed loop: it offers what the server takes
            return []
        return [_stage(report, stage) for stage in report["stages"] if stage["calls"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{name} is no JSON report of `dragoman loadtest`: {error!r}") from None


def _stage(report: Mapping[str, Any], stage: Mapping[str, Any]) -> _ReportedStage:
    answered_per_call = stage["texts_rate"] / stage["ok_rate"] if stage["ok_rate"] else None
    texts_per_call = report.get("texts_per_call") or max(1, round(answered_per_call or 1))
    missing = [name for name in QUANTILES if name not in stage["latency_ms"]]
    if missing and answered_per_call is not None:
        raise KeyError(f"latency_ms without {missing[0]}")
    measured = MeasuredStage(
        name=stage["name"],
        traffic=Traffic(
            rate=stage["offered_rate"] * texts_per_call,
            duration_s=stage["duration_s"],
            warm_up_s=report.get("warm_up_s", 0.0),
            texts_per_call=texts_per_call,
            is_poisson=report.get("arrivals", "poisson") == "poisson",
            is_number_drawn=False,
        ),
        latency_s={float(name[1:]) / 100: ms / 1e3 for name, ms in stage["latency_ms"].items()},
        send_delay_s=stage.get("send_delay_ms_p99", 0.0) / 1e3,
    )
    return _ReportedStage(
        measured=measured,
        calls=stage["calls"],
        failed={code: number for code, number in stage["codes"].items() if code != "OK" and number},
        texts_rate=stage["texts_rate"],
        done_rate=stage.get("done_texts_rate", stage["texts_rate"]),
        answered_per_call=answered_per_call,
    )
