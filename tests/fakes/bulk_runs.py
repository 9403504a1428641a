"""`dragoman bulk` as a process that can be killed, and a look at what is there of its output.

    KILLED_IN_WRITE=3 python -m tests.fakes.bulk_runs bulk IN OUT ...

kills itself with SIGKILL inside the write of the third part: half of the bytes are in its draft.  Nobody can time a
kill from outside to this: the write of a part is over within a millisecond.
"""

import io
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import psutil

from model import files
from service.cli.app import app
from tests.fakes.server_process import ROOT

WITHIN_S = 100.0
VARIABLE = "KILLED_IN_WRITE"


def bulk(
    source: Path,
    output: Path,
    address: str,
    *options: str,
    killed_in_write: int | None = None,
) -> "subprocess.Popen[str]":
    """Start the run; `killed_in_write` numbers the part in whose write it is to die."""
    program = "service" if killed_in_write is None else "tests.fakes.bulk_runs"
    command = [sys.executable, "-m", program, "bulk", str(source), str(output), "--server", address, *options]
    variables = {**os.environ, VARIABLE: str(killed_in_write)}
    return subprocess.Popen(command, cwd=ROOT, env=variables, stderr=subprocess.PIPE, text=True)


def parts_folder(output: Path) -> Path:
    """Where a run keeps what is done."""
    return output.with_name(f"{output.name}.parts")


def parts_done(output: Path) -> list[Path]:
    return sorted(parts_folder(output).glob("*.part"))


def drafts(output: Path) -> list[Path]:
    """Parts that were being written when their run was killed."""
    return sorted(parts_folder(output).glob(".*.part.*.draft"))


def await_parts(output: Path, count: int, process: "subprocess.Popen[str]", within_s: float = WITHIN_S) -> None:
    end = time.monotonic() + within_s
    while len(parts_done(output)) < count:  # another process: there is nothing to await
        assert process.poll() is None, "it ended too early"
        assert time.monotonic() < end, "no parts came"
        time.sleep(0.05)


def ray_workers(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    """The processes of a run's own cluster that translate, oldest first."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if any("MapWorker" in word for word in child.cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return sorted(found, key=lambda child: child.create_time())


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
