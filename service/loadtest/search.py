"""The highest rate that still holds a target: double until it breaks, then halve the gap.  Pure but for `try_rate`.

A moment without a CPU breaks any rate, also one far below the capacity: the break that ends a search is tried again.
A stage without a single answer ends the search at once, unless overload is why: at a lower rate there may be one.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

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
    held, broken = 0.0, Counter[float]()
    rate: float | None = first
    while rate is not None:
        summary = try_rate(rate)
        tried.append((rate, summary))
        if target.is_held(summary):
            held = max(held, rate)
        else:
            broken[rate] += 1
        is_overload = bool(summary.codes) and summary.codes.keys() <= _BY_OVERLOAD
        lowest = min((other for other in broken if other > held), default=None)
        if not (OK in summary.codes or is_overload):
            rate = None
        elif lowest is None:
            rate = 2 * held
        elif lowest - held > max(precision * held, precision * precision * first):
            rate = (held + lowest) / 2
        else:
            rate = lowest if broken[lowest] == 1 else None
    return held, tried
