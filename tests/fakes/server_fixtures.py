"""Fixtures that give tests real servers, each a process of its own; the conftest files of those tests import them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.server_process import ServerProcess, start

StartServer = Callable[..., ServerProcess]


@pytest.fixture(scope="session")
def echo_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle for the echo runner."""
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
    running = start(echo_bundle, tmp_path_factory.mktemp("server"))
    yield running
    running.process.kill()
    running.process.wait()
