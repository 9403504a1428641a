"""The graphs that the engines of a model share: who writes and removes them, and what becomes of an engine without."""

import asyncio
import os
from asyncio.subprocess import PIPE
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from model.bundle import default_bundle_dir
from service.engine.cpu.native.library import PACKED_NAME
from service.engine.spec import EngineSpec
from service.engines.prepared_graphs import PreparedGraphs
from tests.fakes.native_engine import needs_native_engine

SPEC = EngineSpec(bundle_dir=default_bundle_dir(), shared_weights=True, runtime="onnxruntime")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary files lie in a directory of the test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def directory_of(graphs: PreparedGraphs) -> Path:
    assert graphs.spec.prepared_dir is not None
    return graphs.spec.prepared_dir


@pytest.mark.parametrize(
    "spec",
    [
        EngineSpec(bundle_dir=default_bundle_dir()),
        EngineSpec(bundle_dir=Path("b"), shared_weights=True, runner_factory="a:b"),
    ],
    ids=["not asked for", "another runner"],
)
async def test_nothing_is_prepared_where_no_weights_are_to_be_shared(temporary, spec):
    graphs = PreparedGraphs(spec)

    await graphs.prepare(60.0)
    graphs.remove()

    assert graphs.spec == spec
    assert list(temporary.iterdir()) == []


async def test_graphs_lie_in_a_private_directory_until_they_are_removed(temporary):
    graphs, others = PreparedGraphs(SPEC), PreparedGraphs(SPEC)

    await graphs.prepare(60.0)
    await others.prepare(60.0)

    assert set(temporary.iterdir()) == {directory_of(graphs), directory_of(others)}
    assert directory_of(graphs).stat().st_mode & 0o777 == 0o700
    files = {path.name for path in directory_of(graphs).glob("int8/*")}
    assert files >= {"encoder.onnx", "decoder_step.onnx", "weights.data"}
    graphs.remove()
    assert list(temporary.iterdir()) == [directory_of(others)]


@needs_native_engine
async def test_of_a_model_that_the_native_engine_serves_the_packed_weights_lie_there_and_no_graphs():
    graphs = PreparedGraphs(replace(SPEC, runtime="auto"))

    await graphs.prepare(60.0)

    assert [path.name for path in directory_of(graphs).iterdir()] == [PACKED_NAME]
    graphs.remove()
    assert not directory_of(graphs).exists()


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

    graphs = PreparedGraphs(SPEC)
    await graphs.prepare(60.0)
    await other.communicate(b"\n")

    assert set(temporary.iterdir()) == {*kept, directory_of(graphs)}


@pytest.mark.parametrize(
    ("spec", "timeout_s", "reason"),
    [
        (EngineSpec(bundle_dir=Path("nowhere"), shared_weights=True), 60.0, "BundleError"),
        (SPEC, 0.001, "TimeoutError"),
    ],
)
async def test_a_failure_is_logged_once_and_leaves_a_directory_whose_name_nobody_else_can_take(spec, timeout_s, reason):
    graphs = PreparedGraphs(spec)

    with capture_logs() as lines:
        await graphs.prepare(timeout_s)

    (line,) = lines
    assert (line["event"], line["log_level"]) == ("engine_warning", "warning")
    assert "weights are not shared between engines" in line["reason"]
    assert reason in line["reason"]
    assert list(directory_of(graphs).iterdir()) == []


async def test_cancelling_is_no_failure_to_prepare_also_when_the_process_has_just_ended(monkeypatch):
    begun = asyncio.Event()

    class Ended:
        async def communicate(self, _: bytes) -> None:
            begun.set()
            await asyncio.Event().wait()

        def kill(self) -> None:
            raise ProcessLookupError

        async def wait(self) -> None:
            pass

    async def start(*_: object, **__: object) -> Ended:
        return Ended()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    preparing = asyncio.create_task(PreparedGraphs(SPEC).prepare(60.0))
    await begun.wait()
    preparing.cancel()

    with pytest.raises(asyncio.CancelledError):
        await preparing
