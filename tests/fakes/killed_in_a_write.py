"""`dragoman`, killed with SIGKILL inside a write of a part: half of the bytes are in its draft, and no more come.

    KILLED_IN_WRITE=3 python -m tests.fakes.killed_in_a_write bulk IN OUT ...    # in the third part that it writes

Nobody can time a kill from outside to this: the write of a part is over within a millisecond.
"""

import io
import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import IO

from service import files
from service.cli.app import app

VARIABLE = "KILLED_IN_WRITE"
MODULE = "tests.fakes.killed_in_a_write"


class HalfWritten(io.FileIO):
    """Takes half of what is written to it, then the process is gone."""

    def write(self, content: bytes) -> int:  # type: ignore[override]  # the one caller has bytes
        super().write(content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("killed")


def opening(number: int) -> Callable[[int, str], IO[bytes] | HalfWritten]:
    """`open` for descriptors, which is deadly for the NUMBERth draft of a part."""
    parts = itertools.count(1)

    def opened(descriptor: int, mode: str) -> IO[bytes] | HalfWritten:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        if ".part." in name and next(parts) == number:
            return HalfWritten(descriptor, mode)
        return open(descriptor, mode)

    return opened


if __name__ == "__main__":
    vars(files)["open"] = opening(int(os.environ[VARIABLE]))
    app()
