"""Processes of `dragoman` that fork from one which has imported it, instead of importing everything once more.

What a server imports, and the model that tells languages, take two seconds of CPU, the same two seconds in each of the
hundreds of servers that the tests start.  Whoever wants a process from its first instruction on sets `EXECUTED`.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXECUTED = "DRAGOMAN_TEST_EXECUTED"  # a variable: not empty, and nothing is forked
_READ_WHEN_IT_RUNS = ("DRAGOMAN_", "ECHO_", "TMPDIR")  # variables; others may be read by Python or by libraries


def can_fork(variables: Mapping[str, str]) -> bool:
    """Return whether a test wants a process with these variables, which would be the same if it were executed."""
    is_wanted = "PYTEST_VERSION" in os.environ and not os.environ.get(EXECUTED)
    return is_wanted and all(name.startswith(_READ_WHEN_IT_RUNS) for name in variables)


class Forked:
    """What tests use of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = os.pidfd_open(pid)  # it is there: whoever has forked it has not asked yet how it ended
        self._asking = threading.Lock()

    def poll(self) -> int | None:
        with self._asking:
            if self.returncode is None and select.select([self._ended], [], [], 0)[0]:
                self.returncode = _origin().status_of(self.pid)
                os.close(self._ended)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.poll() is None and not select.select([self._ended], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("dragoman", timeout or 0.0)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork(arguments: list[str], environment: Mapping[str, str], log: Path) -> Forked:
    """Start `python -m service ARGUMENTS`, which writes to this file and reads nothing."""
    return Forked(_origin().fork(arguments, dict(environment), str(log)))


class _Origin:
    """The process that others fork from, as the tests' process sees it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_READ_WHEN_IT_RUNS)}
        command = [sys.executable, "-m", "tests.fakes.forked", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment | {"PYTHONPATH": str(ROOT)}, pass_fds=[theirs.fileno()]
            )
        self._channel = ours
        self._turn = threading.Lock()
        atexit.register(self._end)

    def fork(self, *request: object) -> int:
        return self._ask(request)

    def status_of(self, pid: int) -> int:
        return self._ask(pid)

    def _end(self) -> None:
        self._channel.close()
        self._process.wait()

    def _ask(self, question: object) -> int:
        with self._turn:
            self._channel.sendall(json.dumps(question).encode())
            return int(self._channel.recv(64))


@cache
def _origin() -> _Origin:
    return _Origin()


def _serve(channel: socket.socket) -> None:
    """Fork when asked to; return in the new process."""
    while question := channel.recv(1 << 20):
        request = json.loads(question)
        if isinstance(request, int):
            answer = os.waitstatus_to_exitcode(os.waitpid(request, 0)[1])
        elif (answer := os.fork()) == 0:
            channel.close()
            _become(*request)
            return
        channel.sendall(str(answer).encode())
    os._exit(0)


def _become(arguments: list[str], environment: dict[str, str], log: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    for descriptor in (1, 2):
        os.dup2(written, descriptor)
    os.close(written)
    sys.argv = ["dragoman", *arguments]


if __name__ == "__main__":
    os.environ["GRPC_VERBOSITY"], os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "ERROR", "0"  # read by an import, as served

    import gc
    import runpy

    import uvloop  # noqa: F401

    import service.cli.app
    import service.cli.serve
    import service.client
    import service.server.main
    import service.server.parts  # noqa: F401
    from service.documents.formats import load_readers
    from service.text.languages import load_ahead

    load_readers()
    load_ahead()
    gc.collect()
    gc.freeze()  # no collection of a server touches what is shared
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("service", run_name="__main__", alter_sys=True)
