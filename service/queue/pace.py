"""How fast sentences may start while several clients, or classes of work, share full engines.

Sentences that start together end together, and whoever comes between waits for all of them.  So what takes the places
of those that ended is spread over time, a little faster than places come free on average: nothing stays unused for
long.  Engines with room, and those of one client alone, take everything at once.  Pure and synchronous.
"""

from service.queue.callers import Priority

_SHARED_FOR_S = 1.0  # after work of another than the last one came, the engines count as shared for so long
# With 1.25, the p99 of clients who ask seldom, beside a greedy one, was 1.7 - 1.9 times what it was alone; without any,
# 2.0 - 2.1 (tests/unit/service/queue/test_overload_simulation.py: sentences of equal length).  A running sentence
# keeps its rows: if the greedy client's are 2, 4 or 8 times as long, it is 2.1 - 2.3, 3.5 - 3.7 and 8.5 - 8.6 times.
_FASTER = 1.25


class Pace:
    """Starts on all engines of a model."""

    def __init__(self) -> None:
        self._last: tuple[str, Priority] | None = None
        self._shared_at: float | None = None
        self._credit: float | None = None  # rows that may start; below zero: a pause; None: engines have room
        self._credit_at = 0.0

    def arrived(self, caller: str, priority: Priority, now: float) -> None:
        """Work of this client and class came."""
        if self._last is not None and (caller, priority) != self._last:
            self._shared_at = now
        self._last = caller, priority

    def is_shared(self, now: float) -> bool:
        """Whether several clients or classes have work, or had it a moment ago."""
        return self._shared_at is not None and now - self._shared_at < _SHARED_FOR_S

    def pause_s(self, now: float, *, rows_per_s: float, step_s: float) -> float:
        """Seconds until the next sentence may start, if there is room for it.

        Args:
            rows_per_s: that full engines free on average; 0: not known.
            step_s: of a decoder step: what may start in it need not be spread.
        """
        rate = _FASTER * rows_per_s
        if self._credit is None:
            return 0.0
        if not rate or not self.is_shared(now):
            self._credit, self._credit_at = 0.0, now  # what one client alone has started is nobody's debt later
            return 0.0
        self._credit = min(rate * step_s, self._credit + rate * (now - self._credit_at))
        self._credit_at = now
        return max(0.0, -self._credit / rate)

    def started(self, rows: int) -> None:
        """A sentence went to an engine."""
        if self._credit is not None:
            self._credit -= rows

    def ran_full(self, now: float) -> None:
        """The engines have no room for what waits."""
        if self._credit is None:
            self._credit, self._credit_at = 0.0, now

    def forget(self) -> None:
        """Nothing waits, or nothing runs: the engines have room."""
        self._credit = None
