"""What every child process needs: it ends with the process that started it, and both send records in frames.

A process that could go on alone, if only for seconds, calls `end_with_parent` first; processes of a server call
`become_child`.  A frame is a pickled record behind its length.  An engine process imports this module, so it imports
little.
"""

import ctypes
import faulthandler
import os
import pickle
import signal
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent(parent_pid: int | None = None) -> None:
    """Have the kernel kill this process when the thread that started it ends; on Linux.

    Args:
        parent_pid: of the process that may have ended already; None where the end of a pipe or socket tells.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if parent_pid not in (None, os.getppid()):
            os.kill(os.getpid(), signal.SIGKILL)


def become_child(points: int) -> None:
    """Leave signals of a terminal or process group to the parent, which gets them, too, and never outlive it.

    Args:
        points: of badness, each a thousandth of the memory there is, by which the kernel kills this process rather than
            its parent where memory is short; on Linux only.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.stderr is not None:
        faulthandler.register(signal.SIGUSR1, sys.stderr)  # prints where its threads stand; else it would end here
    end_with_parent()
    score = Path("/proc/self/oom_score_adj")  # what the container's runtime has set, as the parent has it
    with suppress(OSError):
        score.write_text(str(min(int(score.read_text()) + points, 1_000)))


def environment() -> dict[str, str]:
    """Return the environment of a child: the same import path, and one thread in NumPy's own pools."""
    import_path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return {**os.environ, "PYTHONPATH": import_path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def bound(code: str) -> str:
    """Return Python code for `python -c` that does the same as this code and ends with this process."""
    return f"from service.child_process import end_with_parent; end_with_parent({os.getpid()}); {code}"


_LENGTH = struct.Struct("!I")
FRAME_HEADER_BYTES = _LENGTH.size


@dataclass(frozen=True, slots=True)
class Ready:
    """The process works now: an engine has loaded and warmed its model, a frontend takes calls."""

    warnings: tuple[str, ...] = ()  # what is not as it should be, but good enough to serve


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The process cannot work; it exits after this."""

    message: str


def to_frame(record: object) -> bytes:
    """Return the frame of a record."""
    payload = pickle.dumps(record, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(payload)) + payload


def frame_length(header: bytes) -> int:
    """Return the number of bytes that follow the header."""
    return int(_LENGTH.unpack(header)[0])


def from_payload(payload: bytes) -> object:
    """Return the record in a frame."""
    return pickle.loads(payload)  # noqa: S301 - both ends are our own process tree
