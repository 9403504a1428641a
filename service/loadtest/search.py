"""The highest rate that still holds a target: double until it breaks, then halve the gap.  Pure but for `try_rate`."""

from collections.abc import Callable
from dataclasses import dataclass

from service.loadtest.records import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """When a rate is held."""

    p99_ms: float
    max_failed_ratio: float = 0.001

    def is_held(self, summary: Summary) -> bool:
        """Whether this stage was within the target."""
        answered = summary.codes.get("OK", 0)
        failed_ratio = 1 - answered / summary.calls if summary.calls else 1.0
        return failed_ratio <= self.max_failed_ratio and summary.latency_ms.get("p99", float("inf")) <= self.p99_ms


def highest_rate(
    try_rate: Callable[[float], Summary], target: Target, *, first: float, precision: float = 0.03
) -> tuple[float, list[tuple[float, Summary]]]:
    """The highest rate tried that held, 0.0 if none did, and every stage in the order of trying.

    Args:
        try_rate: runs a stage at this many calls a second.
        first: where to begin.
        precision: ends when the next rate to try differs by less than this part.
    """
    tried: list[tuple[float, Summary]] = []

    def is_held(rate: float) -> bool:
        tried.append((rate, try_rate(rate)))
        return target.is_held(tried[-1][1])

    held, broken, rate = 0.0, float("inf"), first
    while broken - held > precision * max(held, first * precision):
        if is_held(rate):
            held = rate
        else:
            broken = rate
        rate = 2 * held if broken == float("inf") else (held + broken) / 2
    return held, tried
