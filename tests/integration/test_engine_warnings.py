"""What an engine process finds amiss, but good enough to serve, stands in the server's log."""

import os

from structlog.testing import capture_logs

from model.bundle import default_bundle_dir
from service.engine.spec import EngineSpec
from service.engines.engine_process import start_engine


async def test_an_engine_that_cannot_share_weights_serves_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / f"dragoman-{os.geteuid()}").touch()  # where its directory would be
    spec = EngineSpec(bundle_dir=default_bundle_dir(), shared_weights=True)

    with capture_logs() as lines:
        link = await start_engine(spec, 60.0)
        await link.kill()

    (line,) = lines
    assert (line["event"], line["log_level"], line["pid"]) == ("engine_warning", "warning", link.pid)
    assert "weights are not shared with other engines: FileExistsError" in line["reason"]
