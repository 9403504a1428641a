"""The log of slow calls: one line each with where the time went, and never more lines than a reader can take.

Holds numbers and names, no texts.
"""

import time
from collections.abc import Callable
from dataclasses import asdict

from service.telemetry.calls import EndedCall
from service.telemetry.logs import get_logger

BURST = 20  # lines at once ...
LINES_PER_S = 1.0  # ... and in the long run


class LineBudget:
    """A token bucket; told the time."""

    def __init__(self, burst: int = BURST, per_s: float = LINES_PER_S) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = float(burst)
        self._counted_at: float | None = None
        self.num_refused = 0  # since the last line that was allowed

    def allows(self, now: float) -> bool:
        """Whether there may be a line now; the answer is counted."""
        elapsed_s = 0.0 if self._counted_at is None else now - self._counted_at
        self._counted_at = now
        self._left = min(self._burst, self._left + elapsed_s * self._per_s)
        if self._left < 1.0:
            self.num_refused += 1
            return False
        self._left -= 1.0
        return True

    def take_refused(self) -> int:
        """How many lines were refused since the last call of this."""
        refused, self.num_refused = self.num_refused, 0
        return refused


class SlowCalls:
    """Logs calls that took longer than the threshold; a `CallObserver`."""

    def __init__(
        self,
        threshold_s: float,
        *,
        count: Callable[[], None],
        budget: LineBudget | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch calls.

        Args:
            threshold_s: calls that take longer are slow.
            count: told of each slow call, logged or not.
        """
        self._threshold_s = threshold_s
        self._count = count
        self._budget = budget or LineBudget()
        self._clock = clock

    def __call__(self, call: EndedCall) -> None:
        """Look at a call that has ended; calls that translate nothing (a health Watch) last as long as they please."""
        progress = call.progress
        timings = progress.timings()
        if call.duration_s <= self._threshold_s or timings is None:
            return
        self._count()
        if not self._budget.allows(self._clock()):
            return
        phases = {name: round(value, 1) for name, value in asdict(timings).items() if name != "total_ms"}
        get_logger().warning(
            "slow_request",
            request_id=call.request_id,
            method=call.method,
            model=call.model,
            client=call.client,
            code=call.code,
            duration_ms=round(call.duration_s * 1e3, 1),
            **phases,
            last_phase=progress.phase,
            texts=progress.texts,
            finished_texts=progress.finished_texts,
            source_tokens=progress.source_tokens,
            target_tokens=progress.target_tokens,
            not_logged=self._budget.take_refused(),
        )
