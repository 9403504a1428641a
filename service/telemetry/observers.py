"""Who is told of each call that has ended: the log of slow calls, and traces where they are wanted.

Both hold numbers and names, no texts.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from service.call import PHASES, Call
from service.config import TelemetryConfig
from service.extras import how_to_install
from service.telemetry.logs import LogLimit, get_logger

if TYPE_CHECKING:
    from service.telemetry.traces import Traces

CallObserver = Callable[[Call], None]  # told of each call that has ended
_MAX_LINES, _PERIOD_S = 20, 20.0  # what a reader of the log can take


class SlowCalls:
    """Logs calls that took longer than the threshold, a line each with where the time went."""

    def __init__(self, threshold_s: float, *, count: Callable[[], None], limit: LogLimit | None = None) -> None:
        """Watch calls; `count` is told of each that takes longer than `threshold_s`, logged or not."""
        self.threshold_s = threshold_s
        self._count = count
        self._limit = limit or LogLimit(max_lines=_MAX_LINES, period_s=_PERIOD_S)

    def log(self, call: Call) -> None:
        """Log a call that took longer; streams, be they texts or a health Watch, last as long as they please."""
        if not call.has_phases:
            return
        self._count()
        left_out = self._limit.take()
        if left_out is None:
            return
        phases = {f"{name}_ms": round(getattr(call, f"{name}_s") * 1e3, 1) for name in PHASES}
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


def load_traces(config: TelemetryConfig) -> "type[Traces] | None":
    """Return the class that sends traces, or None where nobody wants them; ValueError if its libraries are missing."""
    if config.otlp_endpoint is None:
        return None
    try:
        from service.telemetry.traces import Traces  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        missing = f"{error.name} is not installed: {how_to_install('otel')}"
        raise ValueError(f"telemetry.otlp_endpoint is {config.otlp_endpoint!r} and {missing}") from error
    return Traces
