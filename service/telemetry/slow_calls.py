"""The log of slow calls: one line each with where the time went, and never more lines than a reader can take.

Holds numbers and names, no texts.
"""

from collections.abc import Callable
from dataclasses import asdict

from service.telemetry.calls import Call
from service.telemetry.logs import LogLimit, get_logger

_MAX_LINES, _PERIOD_S = 20, 20.0


class SlowCalls:
    """Logs calls that took longer than the threshold; a `CallObserver`."""

    def __init__(
        self,
        threshold_s: float,
        *,
        count: Callable[[], None],
        limit: LogLimit | None = None,
    ) -> None:
        """Watch calls.

        Args:
            threshold_s: calls that take longer are slow.
            count: told of each slow call, logged or not.
        """
        self._threshold_s = threshold_s
        self._count = count
        self._limit = limit or LogLimit(max_lines=_MAX_LINES, period_s=_PERIOD_S)

    def __call__(self, call: Call) -> None:
        """Look at a call that has ended; streams, be they texts or a health Watch, last as long as they please."""
        if call.duration_s <= self._threshold_s:
            return
        timings = call.timings()
        if timings is None:
            return
        self._count()
        left_out = self._limit.take()
        if left_out is None:
            return
        phases = {name: round(value, 1) for name, value in asdict(timings).items() if name != "total_ms"}
        get_logger().warning(
            "slow_request",
            request_id=call.request_id,
            method=call.method,
            model=call.model,
            client=call.caller.name,
            client_source=call.caller.source,
            code=call.code,
            duration_ms=round(call.duration_s * 1e3, 1),
            **phases,
            last_phase=call.phase,
            texts=call.texts,
            finished_texts=call.finished_texts,
            source_tokens=call.source_tokens,
            target_tokens=call.target_tokens,
            left_out=left_out,
        )
