"""Real servers for the promises, whose books are checked whenever a test is done with them."""

import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from tests.fakes.books import imbalance
from tests.fakes.forked import EXECUTED
from tests.fakes.server_process import ServerProcess, StartServer, echo_bundle
from tests.fakes.server_process import start_server as start_unchecked

__all__ = ["echo_bundle", "seen", "start_paced", "start_server", "start_unchecked"]

Seen = Callable[[str], None]
CAPACITY = 50  # texts a second of a paced server: ten times as many calls are what gRPC can take on a slow machine
SLOW = {"ECHO_STEP_S": "0.02"}
DEFAULTS = {"DRAGOMAN_ENGINE__NUM_ENGINES": "", "DRAGOMAN_ENGINE__RUNNER_FACTORY": ""}  # of a server as it comes
LONG = "some words " * 22 + "in all"  # five seconds when slow; no engine would see a long run of one letter, a span


@contextmanager
def kept_to(cpu: int) -> Iterator[None]:
    """Keeps this process, and what it starts meanwhile, on one CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def p99_ms(waits_s: Iterable[float]) -> float:
    return float(np.quantile(list(waits_s), 0.99)) * 1e3


async def waits_of(call: Callable[[], Awaitable[object]], count: int) -> list[float]:
    """Seconds that each of so many calls takes, one after the other."""
    waits: list[float] = []
    for _ in range(count):
        began = time.monotonic()
        await call()
        waits.append(time.monotonic() - began)
    return waits


def needs_two_cpus() -> None:
    """Skip a test whose sender takes a CPU: on the server's, even a bare server would be late by 100 ms and more."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")


@pytest.fixture(autouse=True)
def executed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have servers executed, not forked: times and memory are what users find."""
    monkeypatch.setenv(EXECUTED, "1")


@pytest.fixture
def seen(record_property: Callable[[str, object], None]) -> Seen:
    """Puts a measured figure into the table's row."""
    return lambda figure: record_property("seen", figure)


@pytest.fixture
def start_server(start_unchecked: StartServer) -> Iterator[StartServer]:
    """Starts servers; those that still run at the end of the test must have books that balance."""
    servers: list[ServerProcess] = []

    def start_one(*options: str, **variables: str) -> ServerProcess:
        servers.append(start_unchecked(*options, **variables))
        return servers[-1]

    yield start_one
    for server in servers:
        if server.process.poll() is None and server.http_port:
            with suppress(OSError):  # it just ended, or has no descriptors left
                assert imbalance(server.get("/metrics")[1]) == {}


@pytest.fixture
def start_paced(start_server: StartServer) -> StartServer:
    """Starts servers that answer 50 texts a second: 10 rows, steps of 20 ms, "abcdefgh" takes 10 steps at beam 1."""

    def start_one(*options: str, **variables: str) -> ServerProcess:
        settings = {
            "DRAGOMAN_ENGINE__MAX_ROWS": "10",
            "ECHO_PACE_S": "0.02",
        }
        return start_server(*options, **{**settings, **variables})

    return start_one


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    directory = tmp_path / "records"
    directory.mkdir()
    return directory
