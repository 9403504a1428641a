"""What load tests of one replica measured, read from their JSON reports."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from service.planning.simulation import Traffic

QUANTILES = ("p50", "p90", "p95", "p99")  # that a stage must have
_MAX_FAILED_RATIO = 0.001  # with more, the latency is that of those who were let in
_OVERLOADED_RATIO = 0.02  # refused: the rest is what it can do
_KEPT_UP_RATIO = 0.95  # of what was offered, answered in the same time; with less, a queue grew


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStage:
    """One rate at which one replica was loaded."""

    name: str
    traffic: Traffic
    done_rate: float  # texts answered a second
    latency_s: Mapping[
        float, float
    ]  # by probability; empty if the replica was overloaded: it then says how long the stage was
    send_delay_s: float  # p99, of the load generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All stages, by rate."""

    stages: tuple[MeasuredStage, ...]  # with which the replica kept up
    capacity: float | None = None  # texts a second that were answered when it did not

    @property
    def highest_rate(self) -> float:
        """Texts a second with which it kept up."""
        return self.stages[-1].traffic.rate

    @property
    def texts_per_call(self) -> int:
        """As it was measured."""
        return self.stages[0].traffic.texts_per_call


def read(reports: Iterable[tuple[str, str]]) -> Measured:
    """The stages of these reports together.

    Args:
        reports: name, for messages, and content.

    Raises:
        ValueError: one is no report of a load test, or there is too little to go by.
    """
    found = [stage for name, text in reports for stage in _stages(name, text)]
    usable = sorted((stage for stage in found if stage.latency_s), key=lambda stage: stage.traffic.rate)
    if len({stage.traffic.rate for stage in usable}) < 2:
        raise ValueError(
            f"the replica kept up with {len(usable)} of {len(found)} stages, at least 2 of different rates are needed: "
            "measure with `dragoman loadtest --rate A --rate B --report FILE.json`"
        )
    sizes = {stage.traffic.texts_per_call for stage in found}
    if len(sizes) > 1:
        raise ValueError(f"the stages have {sorted(sizes)} texts a call, they must have the same number")
    capacity = max((stage.done_rate for stage in found if not stage.latency_s), default=None)
    return Measured(stages=tuple(usable), capacity=capacity)


def _stages(name: str, text: str) -> list[MeasuredStage]:
    try:
        report = json.loads(text)
        if report.get("callers"):  # a closed loop: it offers what the server takes
            return []
        stages = [_stage(report, stage) for stage in report["stages"] if stage["calls"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{name} is no JSON report of `dragoman loadtest`: {error!r}") from None
    return [stage for stage in stages if stage is not None]


def _stage(report: Mapping[str, Any], stage: Mapping[str, Any]) -> MeasuredStage | None:
    answered_ratio = stage["codes"].get("OK", 0) / stage["calls"]
    is_whole = 1 - answered_ratio <= _MAX_FAILED_RATIO
    is_overloaded = stage["codes"].get("RESOURCE_EXHAUSTED", 0) / stage["calls"] >= _OVERLOADED_RATIO
    if is_whole and stage.get("done_texts_rate", stage["texts_rate"]) < _KEPT_UP_RATIO * stage["texts_rate"]:
        is_whole, is_overloaded = False, True
    if not (is_whole or is_overloaded) or not stage["ok_rate"]:
        return None
    texts_per_call = report.get("texts_per_call") or max(1, round(stage["texts_rate"] / stage["ok_rate"]))
    quantiles = {float(name[1:]) / 100: ms / 1e3 for name, ms in stage["latency_ms"].items()}
    if missing := [name for name in QUANTILES if name not in stage["latency_ms"]]:
        raise KeyError(f"latency_ms without {missing[0]}")
    traffic = Traffic(
        rate=stage["offered_rate"] * texts_per_call,
        duration_s=stage["duration_s"],
        warm_up_s=report.get("warm_up_s", 0.0),
        texts_per_call=texts_per_call,
        is_poisson=report.get("arrivals", "poisson") == "poisson",
    )
    return MeasuredStage(
        name=stage["name"],
        traffic=traffic,
        done_rate=stage.get("done_texts_rate", stage["texts_rate"]),
        latency_s=quantiles if is_whole else {},
        send_delay_s=stage.get("send_delay_ms_p99", 0.0) / 1e3,
    )
