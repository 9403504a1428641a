"""Where log lines go: a line that cannot be written is counted and forgotten, and nothing else happens.

A full disk or a closed standard error must not fail a call, and a reader that has stopped must not stop the server:
so no buffer that remembers a failed write, no exception, and no waiting.
"""

import os
import select
from collections.abc import Callable
from io import UnsupportedOperation
from typing import TextIO

_ATOMIC_BYTES = select.PIPE_BUF  # a pipe that takes anything takes this much without waiting


class LogStream:
    """A stream for `structlog.WriteLogger`."""

    def __init__(self, stream: TextIO | None, on_drop: Callable[[], None] = lambda: None) -> None:
        """Write to what `stream` writes to.

        Args:
            stream: None where there is none, as Python has it for a process that starts with standard error closed.
            on_drop: called for each line that was lost, in whole or in part.
        """
        self._stream = stream
        self._on_drop = on_drop
        self._descriptor = _descriptor_of(stream)
        self._poll = select.poll()  # for one thread at a time, which the lock of structlog's logger sees to
        if self._descriptor is not None:
            self._poll.register(self._descriptor, select.POLLOUT)

    def write(self, line: str) -> int:
        """Write a line, or count it as lost."""
        try:
            self._write(line)
        except (OSError, ValueError):  # ValueError: the stream was closed
            self._on_drop()
        return len(line)

    def flush(self) -> None:
        """Every line is already where it goes."""

    def isatty(self) -> bool:
        """Whether a person may be reading."""
        return self._stream is not None and self._stream.isatty()

    def _write(self, line: str) -> None:
        if self._stream is None:
            raise OSError
        if self._descriptor is None:
            self._stream.write(line)
            return
        data = line.encode("utf-8", "backslashreplace")
        for begin in range(0, len(data), _ATOMIC_BYTES):
            self._write_now(self._descriptor, data[begin : begin + _ATOMIC_BYTES])

    def _write_now(self, descriptor: int, data: bytes) -> None:
        """Write all of it without waiting, or raise OSError.

        The descriptor is asked first rather than set to non-blocking, which others who share it would notice.
        """
        if not self._poll.poll(0) or os.write(descriptor, data) != len(data):
            raise OSError  # nobody reads the pipe, or the disk got full within the line


def _descriptor_of(stream: TextIO | None) -> int | None:
    """The file descriptor behind a stream, None for one in memory."""
    try:
        return None if stream is None else stream.fileno()
    except (UnsupportedOperation, ValueError):
        return None
