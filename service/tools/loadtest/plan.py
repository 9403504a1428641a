"""How many replicas hold a p99 at a rate, from load tests of one replica.  Pure.

    read(reports)                 the stages with which the replica kept up, by rate
    Measured.highest_rate(p99_s)  what one replica may get, in texts a second; replicas = rate / that, rounded up

A balancer that chooses at random makes of random arrivals random arrivals at each replica (a thinned Poisson process is
one), so n replicas have the latency that one had at an n-th of the rate.  A balancer that looks at outstanding calls
does better.  Between two measured rates the latency is taken to lie on a straight line, which is above the real curve,
since queues grow faster than rates.  Beyond the rates that were measured nothing is said.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

_LEAST_CALLS = 30  # a p99 of fewer says nothing
_MAX_FAILED_RATIO = 0.001  # with more, the latency is that of those who were let in
_OVERLOADED_RATIO = 0.02  # failed: the rest is what it can do
_BY_OVERLOAD = ("RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNAVAILABLE")
_KEPT_UP_RATIO = 0.95  # of what was offered, answered in the same time; with less, a queue grew


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One rate at which one replica was loaded, as a report has it."""

    name: str
    rate: float  # texts a second
    p50_s: float
    p99_s: float
    send_delay_s: float  # p99, of the load generator
    texts_per_call: int
    duration_s: float
    warm_up_s: float
    calls: int
    failed: Mapping[str, int]  # by code
    texts_rate: float  # of the calls that began in the stage and were answered at some time
    done_rate: float  # texts answered within the stage, a second
    answered_per_call: float | None  # texts; None without an answer

    @property
    def is_kept_up(self) -> bool:
        """Whether the replica answered what was offered."""
        return self.answered_per_call is not None and self._has_few_failures and not self._is_behind

    @property
    def is_overloaded(self) -> bool:
        """Whether the replica answered as much as it can, and that was less."""
        if self.answered_per_call is None:  # what was done in it are calls of its warm-up
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
        calls_rate = self.rate / self.texts_per_call
        missing = (self.texts_rate - self.done_rate) * self.duration_s / self.texts_per_call
        begun_empty = calls_rate * max(0.0, self.p50_s - self.warm_up_s)
        by_chance = 3 + 3 * (calls_rate * self.p99_s) ** 0.5  # three deviations of how many are under way
        return self.done_rate < _KEPT_UP_RATIO * self.texts_rate and missing > begun_empty + by_chance

    def __str__(self) -> str:
        codes = ", ".join(f"{number} {code}" for code, number in self.failed.items())
        return f"{self.name}: left out, {codes} of {self.calls} calls"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the reports say of one replica."""

    stages: tuple[Stage, ...]  # with which the replica kept up, by rate
    capacity: float | None = None  # texts a second that were answered when it did not
    left_out: tuple[str, ...] = ()  # what says nothing, and why

    def latency_s(self, rate: float) -> tuple[float, float] | None:
        """Return p50 and p99 at a rate, in seconds; None beyond the rates that were measured.

        Below the lowest rate it is that of the lowest; a stage that was quicker than one of a lower rate was so by
        chance.
        """
        p50_s, p99_s = self._curve(lambda stage: stage.p50_s), self._curve(lambda stage: stage.p99_s)
        if rate <= self.stages[0].rate:
            return p50_s[0], p99_s[0]
        for number, (low, high) in enumerate(pairwise(self.stages)):
            if rate <= high.rate:
                share = (rate - low.rate) / (high.rate - low.rate)
                p50, p99 = (values[number] + share * (values[number + 1] - values[number]) for values in (p50_s, p99_s))
                return p50, p99
        return None

    def highest_rate(self, p99_s: float) -> float:
        """Return the highest rate of one replica at which its p99 holds; raises ValueError if there is none."""
        curve = self._curve(lambda stage: stage.p99_s)
        if curve[0] > p99_s:
            lowest = self.stages[0].rate
            seen = f"it is {curve[0] * 1e3:.0f} ms at {lowest:g} texts/s, the lowest rate that was measured"
            raise ValueError(f"a p99 of {p99_s * 1e3:g} ms cannot be held: {seen}")
        rate = self.stages[0].rate
        for (low, high), (before, after) in zip(pairwise(self.stages), pairwise(curve), strict=True):
            if after > p99_s:
                return low.rate + (high.rate - low.rate) * (p99_s - before) / (after - before)
            rate = high.rate
        return rate

    def _curve(self, latency_s: Callable[[Stage], float]) -> list[float]:
        return list(accumulate(map(latency_s, self.stages), max))


def read(reports: Iterable[tuple[str, str]]) -> Measured:
    """Return what these reports say, each a name and a content; raises ValueError if that is too little."""
    found = [stage for name, text in reports for stage in _stages(name, text)]
    _check(found)
    by_rate = {one.rate: one for one in found if one.is_kept_up}
    kept_up = [by_rate[rate] for rate in sorted(by_rate)]
    left_out = [str(one) for one in found if not (one.is_kept_up or one.is_overloaded)]
    if len(kept_up) < 2:
        raise ValueError(
            f"the replica kept up with {len(kept_up)} of {len(found)} stages, "
            "at least 2 of different rates are needed: "
            + "".join(f"{line}; " for line in left_out)
            + "measure with `dragoman loadtest --rate A --rate B --report FILE.json`"
        )
    capacity = max((one.done_rate for one in found if one.is_overloaded), default=None)
    highest = kept_up[-1].rate
    if capacity is not None and capacity < _KEPT_UP_RATIO * highest:
        left_out.append(
            f"an overloaded stage had {capacity:.1f} texts/s answered, but another kept up with {highest:.1f}: "
            "not taken for what the replica can do"
        )
        capacity = None
    return Measured(stages=tuple(kept_up), capacity=capacity, left_out=tuple(left_out))


def _check(found: list[Stage]) -> None:
    sizes = set()
    for one in found:
        if one.answered_per_call is None:
            continue  # it is left out
        name, named = one.name, one.texts_per_call
        if one.calls < _LEAST_CALLS:
            needed = f"at least {_LEAST_CALLS} are needed: measure it again with a longer --duration"
            raise ValueError(f"{name} has {one.calls} calls, {needed}")
        if abs(one.answered_per_call - named) > 0.05:
            answered = f"{one.answered_per_call:.1f} were answered: measure it again"
            raise ValueError(f"{name} is said to have {named} texts a call, but {answered}")
        sizes.add(named)
    if len(sizes) > 1:
        raise ValueError(f"the stages have {sorted(sizes)} texts a call, they must have the same number")


def _stages(name: str, text: str) -> list[Stage]:
    try:
        report = json.loads(text)
        if report.get("callers"):  # a closed loop: it offers what the server takes
            return []
        return [_stage(report, stage) for stage in report["stages"] if stage["calls"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{name} is no JSON report of `dragoman loadtest`: {error!r}") from None


def _stage(report: Mapping[str, Any], stage: Mapping[str, Any]) -> Stage:
    answered_per_call = stage["texts_rate"] / stage["ok_rate"] if stage["ok_rate"] else None
    texts_per_call = report.get("texts_per_call") or max(1, round(answered_per_call or 1))
    missing = [name for name in ("p50", "p99") if name not in stage["latency_ms"]]
    if missing and answered_per_call is not None:
        raise KeyError(f"latency_ms without {missing[0]}")
    return Stage(
        name=stage["name"],
        rate=stage["offered_rate"] * texts_per_call,
        p50_s=stage["latency_ms"].get("p50", 0.0) / 1e3,
        p99_s=stage["latency_ms"].get("p99", 0.0) / 1e3,
        send_delay_s=stage.get("send_delay_ms_p99", 0.0) / 1e3,
        texts_per_call=texts_per_call,
        duration_s=stage["duration_s"],
        warm_up_s=report.get("warm_up_s", 0.0),
        calls=stage["calls"],
        failed={code: number for code, number in stage["codes"].items() if code != "OK" and number},
        texts_rate=stage["texts_rate"],
        done_rate=stage.get("done_texts_rate", stage["texts_rate"]),
        answered_per_call=answered_per_call,
    )
