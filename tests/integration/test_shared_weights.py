"""Two engines of a server map one copy of the weights, and serve where there can be none."""

import os
import sys
from pathlib import Path

import pytest

from model.bundle import default_bundle_dir
from tests.fakes.calls import calling
from tests.fakes.server_process import ServerProcess, start

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

TEXTS = ("The children are playing in the garden.", "It is raining.", "A red train stops.", "He drinks his coffee.")
REAL_ENGINES = {
    "DRAGOMAN_ENGINE__RUNNER_FACTORY": "service.engine.runner:create_runner",
    "DRAGOMAN_ENGINE__NUM_ENGINES": "2",
    "DRAGOMAN_ENGINE__THREADS": "1",
}


@pytest.fixture
def start_real(tmp_path):
    """Starts a server whose temporary files lie in `temporary`; kills it at the end."""
    servers: list[ServerProcess] = []

    def start_one(temporary: Path, **variables: str) -> ServerProcess:
        environment = {**REAL_ENGINES, "TMPDIR": str(temporary), **variables}
        servers.append(start(default_bundle_dir(), tmp_path, **environment))
        return servers[-1]

    yield start_one
    for server in servers:
        server.process.kill()
        server.process.wait()


def shared_files(pid: int, temporary: Path) -> set[str]:
    """What a process has mapped of the prepared weights."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if str(temporary) in line}


async def translations(server: ServerProcess) -> list[str]:
    async with calling(server.address) as calls:
        return await calls.texts(*TEXTS)


async def test_both_engines_map_the_same_weights_and_one_engine_has_its_own(start_real, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()

    two = start_real(temporary)
    one = start_real(temporary, DRAGOMAN_ENGINE__NUM_ENGINES="1")

    first, second = (shared_files(pid, temporary) for pid in two.engine_pids())
    assert first == second
    assert len(first) == 3
    assert [shared_files(pid, temporary) for pid in one.engine_pids()] == [set()]
    assert await translations(two) == await translations(one)


async def test_it_serves_with_weights_of_their_own_for_engines_that_shall_not_share(start_real, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()

    server = start_real(temporary, DRAGOMAN_ENGINE__SHARED_WEIGHTS="false")

    assert all(await translations(server))
    assert not list(temporary.glob("dragoman-*"))


async def test_it_serves_where_the_directory_may_not_be_used(start_real, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (temporary / f"dragoman-{os.geteuid()}").write_text("no directory")

    server = start_real(temporary)

    assert all(await translations(server))
    assert [shared_files(pid, temporary) for pid in server.engine_pids()] == [set(), set()]
