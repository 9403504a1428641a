"""`python -m service.ray_serve PID ...` is `dragoman ...` that is told to end (SIGTERM) when its parent, PID, dies.

The imports are inside the guard because engine processes, which are spawned, import this module again.
"""

if __name__ == "__main__":
    import ctypes
    import os
    import signal
    import sys

    from service.commands.cli import app

    PR_SET_PDEATHSIG = 1  # linux/prctl.h
    parent = int(sys.argv.pop(1))
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == parent:  # else it died before that
        app(prog_name="dragoman")
