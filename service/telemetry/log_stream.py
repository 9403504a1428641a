"""Where log lines go: a line that cannot be written is counted and forgotten, and nothing else happens.

A full disk or a closed standard error must not fail a call; so no buffer that remembers a failed write, and no
exception.
"""

import os
from collections.abc import Callable
from io import UnsupportedOperation
from typing import TextIO


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
        if os.write(self._descriptor, data) != len(data):  # the disk got full within the line
            raise OSError


def _descriptor_of(stream: TextIO | None) -> int | None:
    """The file descriptor behind a stream, None for one in memory."""
    try:
        return None if stream is None else stream.fileno()
    except (UnsupportedOperation, ValueError):
        return None
