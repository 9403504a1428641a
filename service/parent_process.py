"""No process of ours outlives the one that started it, however that one ends.

Whoever starts a process that could go on alone, be it only for seconds, has it call `end_with_parent` first; processes
of a server call `become_child`.
"""

import ctypes
import faulthandler
import os
import signal
import sys
from contextlib import suppress
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
    """Leave the signals of a terminal or process group to the parent, which gets them too; never outlive it.

    Args:
        points: of badness, each a thousandth of the memory there is, by which the kernel kills this process rather than
            its parent where memory is short; nothing happens elsewhere than on Linux.
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
    return f"from service.parent_process import end_with_parent; end_with_parent({os.getpid()}); {code}"
