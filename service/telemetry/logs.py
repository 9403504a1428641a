"""Structured logs: one event per line, as JSON or for a terminal.

Texts never enter a log: errors are logged by type and place, because their messages can quote what a caller sent.
"""

import logging
import sys
import traceback
from collections.abc import Callable
from typing import TextIO, cast

import structlog
from structlog.contextvars import bind_contextvars
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from service.config import TelemetryConfig
from service.telemetry.escaping import printable
from service.telemetry.log_stream import LogStream

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure_logging(
    config: TelemetryConfig, stream: TextIO | None = None, *, on_drop: Callable[[], None] = lambda: None
) -> None:
    """Send every later event of at least the configured level to `stream` (standard error by default).

    Args:
        on_drop: called for each line that could not be written; nothing else happens then.
    """
    lines = LogStream(stream or sys.stderr, on_drop)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_renderer(config, lines),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.log_level]),
        logger_factory=lambda *_: structlog.WriteLogger(cast("TextIO", lines)),
        cache_logger_on_first_use=False,  # the level can change
    )


def log_level() -> str:
    """The name of the level in force."""
    number = get_logger().get_effective_level()
    return next(name for name, level in _LEVELS.items() if level == number)


def set_log_level(level: str) -> str:
    """Log events of at least this level from now on; the name of the level before.

    Raises:
        ValueError: there is no such level.
    """
    if level not in _LEVELS:
        raise ValueError(f"level is {level[:40]!a}, there are {', '.join(_LEVELS)}")
    previous = log_level()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]))
    return previous


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


def _renderer(config: TelemetryConfig, stream: LogStream) -> list[Processor]:
    is_console = config.log_format == "console" or (config.log_format == "auto" and stream.isatty())
    if is_console:
        return [_escape_values, structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    return [structlog.processors.JSONRenderer(ensure_ascii=True)]  # also escapes bidi and control characters


def _escape_values(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """JSON escapes for itself; a terminal would obey."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in event.items()}
