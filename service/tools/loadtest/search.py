"""The highest rate that still holds a target: double until it breaks, then halve the gap.  Pure but for `try_rate`.

A moment without a CPU breaks any rate, also one far below the capacity: the break that ends a search is tried again.
A stage without a single answer ends the search at once, unless overload is why: at a lower rate there may be one.
"""

from collections import Counter
from collections.abc import Callable

from service.tools.loadtest.records import OK, Summary

_BY_OVERLOAD = {"RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
_MAX_FAILED_RATIO = 0.001


def highest_rate(
    try_rate: Callable[[float], Summary], *, p99_ms: float, first: float, precision: float = 0.03
) -> tuple[float, list[tuple[float, Summary]]]:
    """Return the highest rate tried that held, 0.0 if none did, and every stage in the order of trying.

    Args:
        try_rate: runs a stage at this many calls a second.
        p99_ms: a rate holds if its p99 is within this and next to no call failed.
        first: the rate of the first stage.
        precision: the search ends when the next rate to try differs by less than this part.
    """
    tried: list[tuple[float, Summary]] = []
    held, broken = 0.0, Counter[float]()
    rate: float | None = first
    while rate is not None:
        summary = try_rate(rate)
        tried.append((rate, summary))
        answered = summary.codes.get(OK, 0)
        is_answered = answered > 0 and summary.calls - answered <= _MAX_FAILED_RATIO * summary.calls
        if is_answered and summary.latency_ms["p99"] <= p99_ms:
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
