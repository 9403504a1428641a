"""Structured logs: one event per line, as JSON or for a terminal.

Texts never enter a log: errors are logged by type and place, because their messages can quote what a caller sent.
A line that cannot be written (disk full, reader gone) is counted and forgotten: no caller of a logger can fail by it.
"""

import logging
import sys
import traceback
from typing import TextIO, cast

import structlog
from structlog.contextvars import bind_contextvars
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from service.config import TelemetryConfig
from service.telemetry.escaping import printable

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _Lenient:
    """A stream whose writer need not care whether it works."""

    num_lost = 0  # lines of all streams

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: it is closed
            _Lenient.num_lost += 1

    def flush(self) -> None:
        """Has been done."""


def num_lost_lines() -> int:
    """Lines of the log that could not be written."""
    return _Lenient.num_lost


def configure_logging(config: TelemetryConfig, stream: TextIO | None = None) -> None:
    """Send every later event of at least the configured level to `stream` (standard error by default)."""
    stream = stream or sys.stderr
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_renderer(config, stream),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.log_level]),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Lenient(stream))),
        cache_logger_on_first_use=False,
    )


def get_logger() -> FilteringBoundLogger:
    """The logger of the process; events are short names, facts are keywords."""
    logger: FilteringBoundLogger = structlog.get_logger()
    return logger


def bind_request(request_id: str, method: str) -> None:
    """Put the request's id and method on every event that this task logs from now on."""
    bind_contextvars(request_id=request_id, method=method)


def describe_error(error: BaseException) -> dict[str, str]:
    """An error as log fields: its type and the places it came through, without its message."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "trace": " < ".join(reversed(places))}


def _renderer(config: TelemetryConfig, stream: TextIO) -> list[Processor]:
    is_console = config.log_format == "console" or (config.log_format == "auto" and stream.isatty())
    if is_console:
        return [_escape_values, structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    return [structlog.processors.JSONRenderer(ensure_ascii=True)]  # also escapes bidi and control characters


def _escape_values(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """JSON escapes for itself; a terminal would obey."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in event.items()}
