"""Standard input, output and error, which may be closed, full, or a pipe that nobody reads any more.

What a command prints is its result: where it cannot be written, the command fails.  What it says on standard error is
not: where that cannot be written, nothing else changes.
"""

import errno
import fcntl
import io
import os
import sys
from contextlib import suppress
from typing import Any, BinaryIO

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
