"""The real server as a process of its own, on free ports.

In the tests of `make test` it forks from a process that has imported it; in those of promises, benchmarks and trials it
is executed as users do.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.error import HTTPError

import psutil
import pytest

from model.bundle import default_bundle_dir
from service.config import EngineConfig
from service.server.model_hosting import num_engines
from tests.fakes import echo_runner
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.forked import EXECUTED, Forked, can_fork, fork

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class ServerProcess:
    process: subprocess.Popen[str] | Forked
    log: Path
    grpc_port: int
    http_port: int  # 0: it has none
    admin_port: int = 0  # likewise
    metrics_port: int = 0  # 0: metrics are on the HTTP port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def admin_address(self) -> str:
        return f"127.0.0.1:{self.admin_port}"

    def engine_pids(self) -> list[int]:
        """Process ids of its engines."""
        return self._children("service.engine.worker")

    def edge_pids(self) -> list[int]:
        """Process ids of its edges that listen; none where the only edge runs in the core."""
        return [pid for pid in self._children("service.server.frontend_worker") if self.grpc_port in _listening(pid)]

    def _children(self, module: str) -> list[int]:
        found = []
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.NoSuchProcess):  # it has just ended
                if module in "".join(child.cmdline()):
                    found.append(child.pid)
        return found

    def grpc_connections(self) -> set[int]:
        """The callers' ports of its open gRPC connections."""
        return set().union(*(self.callers_of(pid) for pid in self.edge_pids() or [self.process.pid]))

    def callers_of(self, pid: int) -> set[int]:
        """The callers' ports of the open gRPC connections of one of its processes."""
        return _callers_at(self.grpc_port, pid)

    def http_callers_of(self, pid: int) -> set[int]:
        """The callers' ports of the open HTTP connections of one of its processes."""
        return _callers_at(self.http_port, pid)

    def listening_ports(self) -> set[int]:
        return set().union(*map(_listening, (self.process.pid, *self.edge_pids())))

    def get(self, path: str) -> tuple[int, str]:
        port = (path == "/metrics" and self.metrics_port) or self.http_port
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=120.0) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of this name that have at least these labels; the name must be one that the page has."""
        total = 0.0
        page = self.get("/metrics")[1]
        assert _families(name) & set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)), f"there is no metric {name}"
        for line in page.splitlines():
            series, _, value = line.rpartition(" ")
            is_named = series == name or series.startswith(name + "{")
            if is_named and all(f'{key}="{wanted}"' in series for key, wanted in labels.items()):
                total += float(value)
        return total

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no step of the echo runner end: what the engines have been given runs for as long as this lasts."""
        file = self.log.with_name("held")
        file.touch()
        try:
            yield
        finally:
            file.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float = 120.0) -> int:
        return self.process.wait(timeout_s)

    def log_text(self) -> str:
        """Everything it has written to standard error."""
        return self.log.read_text()


def _callers_at(port: int, pid: int) -> set[int]:
    connections = psutil.Process(pid).net_connections("tcp")
    return {item.raddr.port for item in connections if item.laddr.port == port and item.raddr}


def _listening(pid: int) -> set[int]:
    """The ports on which a process listens; none once it has ended."""
    with suppress(psutil.NoSuchProcess):
        connections = psutil.Process(pid).net_connections("tcp")
        return {item.laddr.port for item in connections if item.status == psutil.CONN_LISTEN}
    return set()


def _families(name: str) -> set[str]:
    """Names under which the page can describe the samples of this name."""
    return {name, name.removesuffix("_sum"), name.removesuffix("_count"), name.removesuffix("_bucket")}


def environment(bundle: Path | None, **variables: str) -> dict[str, str]:
    """This environment with settings for a server on free ports with the echo runner, and with `variables`.

    A variable that is empty is not set.

    Args:
        bundle: None: none is named, and the server takes the included ones.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DRAGOMAN_", "ECHO_"))}
    settings = {
        "PYTHONPATH": str(ROOT),
        **(
            {"DRAGOMAN_ENGINE__BUNDLE": str(bundle)} if bundle and "DRAGOMAN_MODELS__DIRECTORY" not in variables else {}
        ),
        "DRAGOMAN_ENGINE__NUM_ENGINES": "1",
        "DRAGOMAN_ENGINE__RUNNER_FACTORY": echo_runner.FACTORY,
        "DRAGOMAN_LIMITS__TRANSLATION_CACHE_MB": "0",  # every sentence reaches an engine
        "DRAGOMAN_LISTEN__GRPC_PORT": "0",
        "DRAGOMAN_LISTEN__HTTP_PORT": "0",
        # An engine that is held, or finds no time on a busy machine, is not lost.
        "DRAGOMAN_LIFECYCLE__ENGINE_SILENCE_S": "" if os.environ.get(EXECUTED) else "300",
        "DRAGOMAN_TELEMETRY__LOG_FORMAT": "json",
    }
    if "DRAGOMAN_MODELS__DIRECTORY" in variables:
        settings["DRAGOMAN_ENGINE__BUNDLE"] = ""
    return {name: value for name, value in {**inherited, **settings, **variables}.items() if value}


def spawn(
    bundle: Path | None, log: Path, *options: str, within: Sequence[str] = (), **variables: str
) -> subprocess.Popen[str] | Forked:
    """A server process that may not be ready yet; it writes its log to `log`.

    Args:
        within: the command line that runs the server's, by `exec`.
    """
    if not within and can_fork(variables):
        return fork(["serve", *options], environment(bundle, **variables), log)
    command = [*within, sys.executable, "-m", "service", "serve", *options]
    with log.open("w") as stream:
        return subprocess.Popen(command, env=environment(bundle, **variables), stdout=stream, stderr=stream, text=True)


def run_to_end(bundle: Path | None, *options: str, **variables: str) -> tuple[int, str]:
    """Exit status and standard error of a server that does not come up."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        process = spawn(bundle, log, *options, **variables)
        try:
            status = process.wait(300)
        finally:
            process.kill()
            process.wait()
        return status, log.read_text()


def start(
    bundle: Path | None, directory: Path, *options: str, within: Sequence[str] = (), **variables: str
) -> ServerProcess:
    log, ports_file = directory / "server.log", directory / "ports.json"
    ports_file.unlink(missing_ok=True)
    own = {"TMPDIR": str(directory), "DRAGOMAN_LIFECYCLE__PORTS_FILE": str(ports_file)}  # leaves nothing elsewhere
    own["ECHO_HELD"] = str(directory / "held")
    process = spawn(bundle, log, *options, within=within, **{**own, **variables})
    deadline = time.monotonic() + 300.0
    while not ports_file.exists():  # another process: there is nothing to await
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(f"the server did not start:\n{log.read_text()}")
        time.sleep(0.01)
    ports = json.loads(ports_file.read_text())
    others = (ports.get(name, 0) for name in ("http_port", "admin_port", "metrics_port"))
    return ServerProcess(process, log, ports["grpc_port"], *others)


StartServer = Callable[..., ServerProcess]


@pytest.fixture(scope="session")
def echo_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_echo_bundle(tmp_path_factory.mktemp("bundle") / "echo")


@pytest.fixture
def start_server(echo_bundle: Path, tmp_path: Path) -> Iterator[StartServer]:
    """Starts servers with options and environment of the test's own; kills what is left of them."""
    servers: list[ServerProcess] = []

    def start_one(*options: str, **variables: str) -> ServerProcess:
        directory = tmp_path / f"server{len(servers)}"
        directory.mkdir()
        servers.append(start(echo_bundle, directory, *options, **variables))
        return servers[-1]

    yield start_one
    for server in servers:
        server.process.kill()
        server.process.wait()


@pytest.fixture(scope="module")
def server(echo_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests of a module that leave it as it was."""
    with start(echo_bundle, tmp_path_factory.mktemp("server")) as running:
        yield running


def start_default(directory: Path) -> ServerProcess:
    """One that serves; what other tests set for its engines is set back."""
    return start(
        default_bundle_dir(),
        directory,
        DRAGOMAN_ENGINE__RUNNER_FACTORY="service.engine.worker:create_runner",
        DRAGOMAN_ENGINE__NUM_ENGINES=str(num_engines(EngineConfig())),
    )
