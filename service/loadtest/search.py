"""The highest rate that still holds a target: double until it breaks, then halve the gap.  Pure but for `try_rate`.

A moment without a CPU breaks any rate, also one far below the capacity: the break that ends a search is tried again.
A stage without a single answer ends the search at once, unless overload is why: at a lower rate there may be one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from service.loadtest.records import OK, Summary

_BY_OVERLOAD = {"RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTarget:
    """When a rate is held."""

    p99_ms: float
    max_failed_ratio: float = 0.001

    def is_held(self, summary: Summary) -> bool:
        """Whether this stage was within the target."""
        answered = summary.codes.get(OK, 0)
        failed_ratio = 1 - answered / summary.calls if summary.calls else 1.0
        return failed_ratio <= self.max_failed_ratio and summary.latency_ms.get("p99", float("inf")) <= self.p99_ms


def highest_rate(
    try_rate: Callable[[float], Summary], target: LatencyTarget, *, first: float, precision: float = 0.03
) -> tuple[float, list[tuple[float, Summary]]]:
    """Return the highest rate tried that held, 0.0 if none did, and every stage in the order of trying.

    Args:
        try_rate: runs a stage at this many calls a second.
        first: the rate of the first stage.
        precision: the search ends when the next rate to try differs by less than this part.
    """
    tried: list[tuple[float, Summary]] = []
    bounds = _Bounds(least_gap=precision * precision * first, precision=precision)
    rate: float | None = first
    while rate is not None:
        tried.append((rate, try_rate(rate)))
        summary = tried[-1][1]
        bounds.note(rate, is_held=target.is_held(summary))
        is_overload = bool(summary.codes) and summary.codes.keys() <= _BY_OVERLOAD
        rate = bounds.next_rate() if OK in summary.codes or is_overload else None
    return bounds.held, tried


@dataclass(slots=True, kw_only=True)
class _Bounds:
    """The rates between which the answer lies."""

    least_gap: float
    precision: float
    held: float = 0.0
    broken: set[float] = field(default_factory=set)  # all above `held`
    broken_twice: set[float] = field(default_factory=set)

    def note(self, rate: float, *, is_held: bool) -> None:
        if is_held:
            self.held = max(self.held, rate)
            self.broken = {other for other in self.broken if other > self.held}
        elif rate in self.broken:
            self.broken_twice.add(rate)
        else:
            self.broken.add(rate)

    def next_rate(self) -> float | None:
        """Return what to try next; None when the answer is known."""
        if not self.broken:
            return 2 * self.held
        lowest = min(self.broken)
        if lowest - self.held > max(self.precision * self.held, self.least_gap):
            return (self.held + lowest) / 2
        return None if lowest in self.broken_twice else lowest
