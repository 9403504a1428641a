"""The server as a whole on the counted GPU: it starts, serves, loads another version, drains; and what it refuses."""

import asyncio
import json
import shutil
import signal
from pathlib import Path

from bench.gpu_counted.counters import Measured, total
from model.bundle import Bundle
from tests.fakes.calls import calling, eventually
from tests.fakes.server_process import start

ON_CUDA = {
    "DRAGOMAN_ENGINE__DEVICE": "cuda",
    "DRAGOMAN_ENGINE__RUNNER_FACTORY": "service.engine.worker:create_runner",
}


def put(bundle: Bundle, repository: Path, version: str) -> None:
    """Add a version to a repository."""
    directory = repository / "en-de" / version
    shutil.copytree(bundle.directory, directory)
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    (directory / "manifest.json").write_text(json.dumps({**manifest, "version": version}), encoding="utf-8")


async def test_the_server_starts_serves_reloads_and_drains(bundle, tmp_path):
    repository = tmp_path / "models"
    put(bundle, repository, "1")
    measured = Measured()
    server = start(None, tmp_path, DRAGOMAN_MODELS__DIRECTORY=str(repository), **ON_CUDA)
    try:
        assert server.metric("dragoman_model_info", provider="cuda") == 1
        async with calling(server.address) as calls:
            answers = await asyncio.gather(*(calls.translate("The cat sleeps.", "It rains.") for _ in range(20)))
            put(bundle, repository, "2")
            server.process.send_signal(signal.SIGHUP)
            await eventually(lambda: server.metric("dragoman_model_info", version="2") == 1, within_s=180.0)
            after = await calls.translate("The cat sleeps.")
    finally:
        server.terminate()
    status = server.wait()

    assert {len(answer.translations) for answer in answers} == {2}
    assert (after.model_version, status) == ("2", 0)
    counts = measured.since()
    assert total(counts, "launch").number > 0
    assert total(counts, "plan").number == 0
    assert "No registered plugin" not in server.log_text()
