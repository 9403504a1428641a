"""What a command prints: its result, or one line on standard error and an exit code.

Standard input, output and error may be closed, full, or a pipe that nobody reads any more.  A result that cannot be
written fails the command.  What it says on standard error does not: where that cannot be written, nothing else changes.
"""

import errno
import fcntl
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, NoReturn

import typer

from service.errors import (
    DragomanError,
    FailedPrecondition,
    InvalidInput,
    NotFound,
    PermissionDenied,
    Unauthenticated,
)

_INPUT, _OUTPUT, _ERROR = range(3)


class NobodyReads(Exception):
    """Standard output is a pipe whose reader has gone, as of `dragoman translate | head`.

    No BrokenPipeError, for which libraries have exit codes of their own.
    """


def settle(*, has_log: bool) -> None:
    """Make the three streams usable, before anything is opened or printed.

    A descriptor that is closed would be given to the first socket or file that is opened, and what is printed would
    go into that.  In its place comes one on which reading or writing fails, as on the closed one.

    Args:
        has_log: whether standard error takes the log, which counts the lines that cannot be written.
    """
    for descriptor, flags in ((_INPUT, os.O_WRONLY), (_OUTPUT, os.O_RDONLY), (_ERROR, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # the lowest free descriptor is this one
    if sys.stdin is None:
        sys.stdin = open(_INPUT, encoding="utf-8", closefd=False)  # noqa: SIM115 - not a path; it stays open
    encoding = "utf-8" if sys.stdout is None else sys.stdout.encoding
    output = io.BufferedWriter(_Output(_OUTPUT, "wb", closefd=False))
    is_watched = os.isatty(_OUTPUT)
    # An odd locale may lack a character.
    sys.stdout = io.TextIOWrapper(output, encoding, errors="backslashreplace", line_buffering=is_watched)
    if sys.stderr is None or not has_log:
        remarks: Any = io.FileIO(_ERROR, "wb", closefd=False)
        sys.stderr = _Remarks(remarks, encoding="utf-8", errors="backslashreplace", write_through=True)


def standard_input() -> BinaryIO:
    """Return standard input; raises OSError with its name if it is closed."""
    with suppress(io.UnsupportedOperation):  # no descriptor is behind it
        if fcntl.fcntl(sys.stdin.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
            raise OSError(errno.EBADF, "it is closed", "standard input")
    return sys.stdin.buffer


class _Output(io.FileIO):
    """Standard output, whose errors have its name; after one, nothing more is tried."""

    _is_lost = False

    def write(self, data: Any) -> int:
        if self._is_lost:
            return len(data)
        try:
            return super().write(data)
        except BrokenPipeError:
            self._is_lost = True
            raise NobodyReads from None
        except OSError as error:
            self._is_lost = True
            why = "it is closed" if error.errno == errno.EBADF else error.strerror
            raise OSError(error.errno, why, "standard output") from error


class _Remarks(io.TextIOWrapper):
    """Standard error of a command: what cannot be written is not."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


EXIT_SOME_FAILED = 1
EXIT_USAGE = 2
EXIT_NO_ANSWER = 3
EXIT_INTERRUPTED = 130
EXIT_NOBODY_READS = 141  # as a shell says it of a program that SIGPIPE ended

# Calling again changes nothing about these; ValueError is what settings and bundles raise.
_USAGE = (InvalidInput, NotFound, FailedPrecondition, PermissionDenied, ValueError)


@contextmanager
def reported() -> Iterator[None]:
    """Turn what went wrong inside into one line on standard error and an exit code."""
    try:
        with _printed():
            yield
    except Unauthenticated as error:
        fail(f"{error}; commands take it from DRAGOMAN_API_KEY or --api-key-file", EXIT_USAGE)
    except _USAGE as error:
        fail(str(error), EXIT_USAGE)
    except DragomanError as error:
        fail(str(error), EXIT_NO_ANSWER)
    except NobodyReads:
        raise typer.Exit(EXIT_NOBODY_READS) from None
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), EXIT_USAGE)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


@contextmanager
def _printed() -> Iterator[None]:
    """Have everything that was printed written before the end, where an error still has its line and exit code."""
    try:
        yield
    except typer.Exit:
        sys.stdout.flush()
        raise
    sys.stdout.flush()


def fail(message: str, code: int) -> NoReturn:
    """End the command with this line and exit code."""
    typer.echo(f"dragoman: {message}", err=True)
    raise typer.Exit(code)
