"""Two engines of a server map one copy of the weights, and serve where there can be none."""

import sys
from pathlib import Path

import pytest

from model.bundle import default_bundle_dir
from service.engine.cpu.native.library import PACKED_NAME
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
    """What a process has mapped of the packed weights."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if str(temporary) in line}


async def translations(server: ServerProcess) -> list[str]:
    async with calling(server.address) as calls:
        return await calls.texts(*TEXTS)


@needs_native_engine
async def test_both_engines_map_the_same_weights_unless_they_shall_have_their_own(start_real, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()

    sharing = start_real(first)
    apart = start_real(second, DRAGOMAN_ENGINE__SHARED_WEIGHTS="false")

    mapped = [shared_files(pid, first) for pid in sharing.engine_pids()]
    assert mapped[0] == mapped[1]
    assert [Path(file).name for file in mapped[0]] == [PACKED_NAME]
    assert not list(second.glob("dragoman-*"))
    assert await translations(sharing) == await translations(apart)
    sharing.process.terminate()
    sharing.process.wait()
    assert not list(first.glob("dragoman-*"))


async def test_it_serves_where_no_weights_can_be_shared(start_real, tmp_path):
    server = start_real(tmp_path / "gone")

    assert all(await translations(server))
    assert [shared_files(pid, tmp_path / "gone") for pid in server.engine_pids()] == [set(), set()]
