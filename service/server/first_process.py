"""Process 1 of a container: passes signals on to the server, and takes up processes that nobody else waits for.

Whoever loses its parent in the container, such as what a health check has started, becomes a child of process 1, and
stays in the table of processes until that asks how it ended.  The server asks for its own children alone.
"""

import os
import signal
from contextlib import suppress
from typing import NoReturn

_PASSED_ON = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1}


def leave_process_1() -> None:
    """In process 1, go on in a child, and stay in process 1 until that has ended; in any other, do nothing.

    To be called before there are threads, which a child would not have.
    """
    if os.getpid() != 1:
        return
    awaited = {*_PASSED_ON, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    server = os.fork()
    if server:
        _attend(server, awaited)
    os.setpgid(
        0, 0
    )  # a terminal's Ctrl-C reaches process 1 alone, which passes it on: a second one would end it at once
    signal.pthread_sigmask(signal.SIG_UNBLOCK, awaited)


def _attend(server: int, awaited: set[signal.Signals]) -> NoReturn:
    """Live as process 1 until the server has ended, and end as it did."""
    while True:
        number = signal.sigwait(awaited)
        if number in _PASSED_ON:
            with suppress(ProcessLookupError):
                os.kill(server, number)
        pid = -1
        while pid:  # each that has ended; 0 when no other has
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == server:
                code = os.waitstatus_to_exitcode(status)
                os._exit(code if code >= 0 else 128 - code)  # as a shell says it
