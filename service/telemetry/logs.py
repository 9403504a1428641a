"""Structured logs: one event per line, as JSON or for a terminal.

Texts never enter a log: errors are logged by type and place, because their messages can quote what a caller sent.  A
full disk or a closed standard error must not fail a call, and a reader that has stopped must not stop the server: a
line that cannot be written at once is counted and forgotten.  What Python and the libraries want to say goes the same
way; what gRPC's C++, `faulthandler` or a crash write to standard error goes past the logger, but never waits either.
"""

import logging
import os
import select
import stat
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from io import UnsupportedOperation
from typing import TYPE_CHECKING, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from service.config import TelemetryConfig

if TYPE_CHECKING:
    from service.call import Call

_STDERR = 2  # the descriptor, whatever `sys.stderr` is
_stderr_is_own = False  # whether its flags are the server's alone
_MAX_LIBRARY_LINES = 10  # a minute
_MAX_PLACES = 20  # of an error, innermost first: a recursion that never ended has a thousand
_ATOMIC_BYTES = select.PIPE_BUF  # a pipe that takes anything takes this much without waiting
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

current_call: ContextVar["Call | None"] = ContextVar(
    "current_call", default=None
)  # that the events of a task are about


def configure_logging(
    config: TelemetryConfig, stream: TextIO | None = None, *, on_drop: Callable[[], None] = lambda: None
) -> None:
    """Send later events of the configured level to `stream`; for a line that cannot be written, only `on_drop` runs."""
    lines = LogStream(stream or sys.stderr, on_drop)
    renderer: list[Processor] = [structlog.processors.JSONRenderer(ensure_ascii=True)]  # escapes control characters
    if config.log_format == "console" or (config.log_format == "auto" and lines.isatty()):
        renderer = [_escape_values, structlog.dev.ConsoleRenderer(colors=lines.isatty())]
    structlog.configure(
        processors=[
            _add_call,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.log_level]),
        logger_factory=lambda *_: structlog.WriteLogger(cast("TextIO", lines)),
        cache_logger_on_first_use=False,  # the level can change
    )


def never_wait_for_stderr() -> None:
    """Have each later write to standard error, by this process and its children, fail where it would have to wait."""
    global _stderr_is_own  # noqa: PLW0603 - as standard error itself, one for the process
    with suppress(OSError):  # closed: there is nothing to wait for
        _stderr_is_own = _open_stderr_anew()
    keep_stderr_ready()


def keep_stderr_ready() -> None:
    """Repeat what `never_wait_for_stderr` did: libuv has the standard streams of each child wait, and they are ours."""
    if _stderr_is_own:
        os.set_blocking(_STDERR, False)


def _open_stderr_anew() -> bool:
    """Return whether the flags of the descriptor can be changed without harm to the shell, or whoever writes there."""
    mode = os.fstat(_STDERR).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(_STDERR)):
        return False  # a file, which takes everything at once, or fails
    try:
        opened = os.open(f"/proc/self/fd/{_STDERR}", os.O_WRONLY | os.O_NOCTTY)
    except OSError:  # a socket, or in a container a pipe of another user, which nobody else writes to
        return not os.isatty(_STDERR)
    os.dup2(opened, _STDERR)
    os.close(opened)
    return True


def log_libraries() -> None:
    """Log what Python and libraries would write to standard error, such as warnings; see `LibraryMessages`."""
    messages = LibraryMessages()
    logging.basicConfig(level=logging.WARNING, handlers=[messages])
    warnings.showwarning = messages.warned
    threading.excepthook = lambda failed: messages.failed(failed.exc_value)
    sys.unraisablehook = lambda failed: messages.failed(failed.exc_value)


def log_level() -> str:
    """Return the name of the level in force."""
    number = get_logger().get_effective_level()
    return next(name for name, level in _LEVELS.items() if level == number)


def set_log_level(level: str) -> str:
    """Log events of at least this level from now on and return the name of the level before, or raise ValueError."""
    if level not in _LEVELS:
        raise ValueError(f"level is {level[:40]!a}, there are {', '.join(_LEVELS)}")
    previous = log_level()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]))
    return previous


def get_logger() -> FilteringBoundLogger:
    """Return the logger of the process; events are short names, facts are keywords."""
    logger: FilteringBoundLogger = structlog.get_logger()
    return logger


def describe_error(error: BaseException) -> dict[str, str]:
    """Return an error as log fields: its type and the last places it came through, without its message."""
    frames = traceback.extract_tb(error.__traceback__)[-_MAX_PLACES:]
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "trace": " < ".join(reversed(places))}


def printable(text: str, *, max_characters: int | None = None) -> str:
    r"""Return `text` without anything that moves a cursor, turns a line around or ends it; cut after `max_characters`.

    Control characters, line ends and invisible formatting characters become escapes like `\x1b`.
    """
    if max_characters is not None and len(text) > max_characters:
        text = f"{text[: max_characters - 3]}..."
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _add_call(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Say which call the event is about, where it does not say so itself."""
    call = current_call.get()
    return event if call is None else {"request_id": call.request_id, "method": call.method, **event}


def _escape_values(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Escape what a terminal would obey; JSON escapes for itself."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in event.items()}


class LogLimit:
    """Lets `max_lines` through in each period, in one thread: for lines that somebody outside can cause."""

    def __init__(self, *, max_lines: int, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_lines = max_lines
        self._period_s = period_s
        self._clock = clock
        self._period_began = clock()
        self._num_lines = 0
        self._num_left_out = 0

    def take(self) -> int | None:
        """Return how many lines were left out before this one, or None to leave this one out too."""
        now = self._clock()
        if now - self._period_began >= self._period_s:
            self._period_began, self._num_lines = now, 0
        if self._num_lines >= self._max_lines:
            self._num_left_out += 1
            return None
        self._num_lines += 1
        left_out, self._num_left_out = self._num_left_out, 0
        return left_out


class LibraryMessages(logging.Handler):
    """Logs a few lines a minute of what others have to say: where it is said, and not in what words."""

    def __init__(self) -> None:
        super().__init__()
        self._limit = LogLimit(max_lines=_MAX_LIBRARY_LINES, period_s=60.0)

    def emit(self, record: logging.LogRecord) -> None:
        """Log what a library logs, as asyncio does with the error of a task that nobody awaits."""
        error = record.exc_info[1] if record.exc_info else None
        self._log(record.levelno, record.name, f"{record.pathname}:{record.lineno}", error)

    def warned(  # in the place of `warnings.showwarning`
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: object = None,
        line: object = None,
    ) -> None:
        """Log a warning."""
        self._log(logging.WARNING, category.__name__, f"{filename}:{lineno}")

    def failed(self, error: BaseException | None) -> None:
        """Log what a thread or a destructor has raised."""
        self._log(logging.ERROR, "python", "", error)

    def _log(self, level: int, source: str, place: str, error: BaseException | None = None) -> None:
        left_out = self._limit.take()
        if left_out is not None:
            facts = describe_error(error) if error else {}
            get_logger().log(level, "library_message", source=source, place=place, left_out=left_out, **facts)


class LogStream:
    """A stream for `structlog.WriteLogger` that never fails, never waits, and remembers no failed write."""

    def __init__(self, stream: TextIO | None, on_drop: Callable[[], None] = lambda: None) -> None:
        """Write to what `stream` writes to: None where standard error is closed."""
        self._stream = stream
        self._on_drop = on_drop
        self._descriptor: int | None = None  # None: the stream is in memory
        self._poll = select.poll()  # for one thread at a time, which the lock of structlog's logger sees to
        if stream is not None:
            with suppress(UnsupportedOperation, ValueError):
                self._descriptor = stream.fileno()
                self._poll.register(self._descriptor, select.POLLOUT)

    def write(self, line: str) -> int:
        """Write a line, or count it as lost."""
        try:
            if self._stream is None:
                self._on_drop()
            elif self._descriptor is None:
                self._stream.write(line)
            else:
                self._write_now(self._descriptor, line.encode("utf-8", "backslashreplace"))
        except (OSError, ValueError):  # ValueError: the stream was closed
            self._on_drop()
        return len(line)

    def flush(self) -> None:
        """Every line is already where it goes."""

    def isatty(self) -> bool:
        """Whether a person may be reading."""
        return self._stream is not None and self._stream.isatty()

    def _write_now(self, descriptor: int, data: bytes) -> None:
        """Write all of it without waiting, or raise OSError.

        The descriptor is not made non-blocking, because that would change it for other processes that share it.
        """
        for begin in range(0, len(data), _ATOMIC_BYTES):
            piece = data[begin : begin + _ATOMIC_BYTES]
            if not self._poll.poll(0) or os.write(descriptor, piece) != len(piece):
                raise OSError  # nobody reads the pipe, or the disk got full within the line
