"""No process of ours outlives the one that started it, however that one ends.

Whoever starts a process that could go on alone, be it only for seconds, has it call `end_with_parent` first.
"""

import ctypes
import os
import signal
import sys

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


def bound(code: str) -> str:
    """Return Python code for `python -c` that does the same as this code and ends with this process."""
    return f"from service.parent_process import end_with_parent; end_with_parent({os.getpid()}); {code}"
