"""`dragoman bulk` as a process that can be killed, and a look at what is there of its output."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.fakes.server_process import ROOT

WITHIN_S = 100.0


def bulk(
    source: Path,
    output: Path,
    address: str,
    *options: str,
    program: str = "service",
    variables: Mapping[str, str] | None = None,
) -> "subprocess.Popen[str]":
    """The run.

    Args:
        program: module that takes the command line.
        variables: of its environment, beside those of this process.
    """
    command = [sys.executable, "-m", program, "bulk", str(source), str(output), "--server", address, *options]
    return subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **(variables or {})}, stderr=subprocess.PIPE, text=True
    )


def parts_folder(output: Path) -> Path:
    """Where a run keeps what is done."""
    return output.with_name(f"{output.name}.parts")


def parts_done(output: Path) -> list[Path]:
    """Files of the parts that are there."""
    return sorted(parts_folder(output).glob("*.part"))


def drafts(output: Path) -> list[Path]:
    """Parts that were being written when their run was killed."""
    return sorted(parts_folder(output).glob(".*.part.*.draft"))


def await_parts(output: Path, count: int, process: "subprocess.Popen[str]", within_s: float = WITHIN_S) -> None:
    """Return when so many parts are there."""
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
