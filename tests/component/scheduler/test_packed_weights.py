"""The weights that the engines of a model share: who writes and removes them, and what becomes of an engine without."""

import asyncio
import os
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from model.bundle import default_bundle_dir
from service.engine.cpu.native.library import PACKED_NAME
from service.engine.wire import EngineSpec
from service.scheduler.packed_weights import PackedWeights
from tests.fakes.native_engine import needs_native_engine

pytestmark = needs_native_engine

SPEC = EngineSpec(bundle_dir=default_bundle_dir(), shared_weights=True)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary files lie in a directory of the test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def directory_of(packed: PackedWeights) -> Path:
    assert packed.spec.prepared_dir is not None
    return packed.spec.prepared_dir


async def test_nothing_is_written_where_no_weights_are_to_be_shared(temporary):
    spec = EngineSpec(bundle_dir=default_bundle_dir())
    packed = PackedWeights(spec)

    await packed.prepare(60.0)
    packed.remove()

    assert packed.spec == spec
    assert list(temporary.iterdir()) == []


async def test_weights_lie_in_a_private_directory_until_they_are_removed(temporary):
    packed, others = PackedWeights(SPEC), PackedWeights(SPEC)

    await packed.prepare(60.0)
    await others.prepare(60.0)

    assert set(temporary.iterdir()) == {directory_of(packed), directory_of(others)}
    assert directory_of(packed).stat().st_mode & 0o777 == 0o700
    assert [path.name for path in directory_of(packed).iterdir()] == [PACKED_NAME]
    packed.remove()
    assert list(temporary.iterdir()) == [directory_of(others)]


async def test_directories_of_processes_that_were_killed_are_removed(temporary):
    ended = await asyncio.create_subprocess_exec("true")
    await ended.wait()
    pids = (ended.pid, os.getpid(), os.getppid(), 10**10 - 1)  # of another container, processes can have the same
    abandoned = [temporary / f"dragoman-weights-{pid}-0123456789abcdef" for pid in pids]
    mine = (f"dragoman-{ended.pid}-backup", f"dragoman-weights-{ended.pid}-notes", f"dragoman-weights-{ended.pid}")
    used = temporary / f"dragoman-weights-{os.getpid()}-fedcba9876543210"
    kept = [used, *(temporary / name for name in mine)]
    for path in (*abandoned, *kept):
        path.mkdir()
    command = ("flock", "--exclusive", str(used), "sh", "-c", "echo locked; read line")
    other = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert other.stdout is not None
    await other.stdout.readline()

    packed = PackedWeights(SPEC)
    await packed.prepare(60.0)
    await other.communicate(b"\n")

    assert set(temporary.iterdir()) == {*kept, directory_of(packed)}


@pytest.mark.parametrize(
    ("spec", "timeout_s", "reason"),
    [
        (EngineSpec(bundle_dir=Path("nowhere"), shared_weights=True), 60.0, "BundleError"),
        (SPEC, 0.001, "TimeoutError"),
    ],
)
async def test_a_failure_is_logged_once_and_leaves_a_directory_whose_name_nobody_else_can_take(spec, timeout_s, reason):
    packed = PackedWeights(spec)

    with capture_logs() as lines:
        await packed.prepare(timeout_s)

    (line,) = lines
    assert (line["event"], line["log_level"]) == ("engine_warning", "warning")
    assert "weights are not shared between engines" in line["reason"]
    assert reason in line["reason"]
    assert list(directory_of(packed).iterdir()) == []
