"""The metrics, logs and traces of a server.

None of them contains texts.
"""

from typing import TYPE_CHECKING

from service.config import TelemetryConfig
from service.extras import how_to_install

if TYPE_CHECKING:
    from service.telemetry.traces import Traces


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
