"""Two engines of a server map one copy of the weights, and serve where there can be none."""

import sys
from pathlib import Path

import pytest

from model.bundle import default_bundle_dir
from tests.fakes.calls import calling
from tests.fakes.native_engine import needs_native_engine
from tests.fakes.server_process import ServerProcess, start

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

TEXTS = ("The children are playing in the garden.", "It is raining.", "A red train stops.", "He drinks his coffee.")
REAL_ENGINES = {
    "DRAGOMAN_ENGINE__RUNNER_FACTORY": "",  # with one, whatever it makes, no weights are shared
    "DRAGOMAN_ENGINE__NUM_ENGINES": "2",
    "DRAGOMAN_ENGINE__THREADS": "1",
}


@pytest.fixture
def start_real(tmp_path):
    """Starts a server; kills it at the end."""
    servers: list[ServerProcess] = []

    def start_one(**variables: str) -> ServerProcess:
        servers.append(start(default_bundle_dir(), tmp_path, **REAL_ENGINES, **variables))
        return servers[-1]

    yield start_one
    for server in servers:
        server.process.kill()
        server.process.wait()


def mapped_weights(pid: int) -> set[str]:
    """The inodes of the packed weights that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if "memfd:dragoman-weights" in line}


async def translations(server: ServerProcess) -> list[str]:
    async with calling(server.address) as calls:
        return await calls.texts(*TEXTS)


@needs_native_engine
async def test_both_engines_map_the_same_weights_unless_they_shall_have_their_own(start_real):
    sharing, apart = start_real(), start_real(DRAGOMAN_ENGINE__SHARED_WEIGHTS="false")

    shared, own = ([mapped_weights(pid) for pid in server.engine_pids()] for server in (sharing, apart))
    assert len(shared[0]) == 1
    assert shared[0] == shared[1]
    assert own[0].isdisjoint(own[1])
    assert await translations(sharing) == await translations(apart)
