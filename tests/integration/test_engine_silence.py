"""An engine that has stopped, and a server that has none: what is seen from outside."""

import os
import signal

import pytest

from tests.fakes.calls import calling, eventually
from tests.fakes.echo_bundle import write_echo_bundle

GAUGES = ("dragoman_ready", "dragoman_engines", "dragoman_engines_missing")


@pytest.mark.promise("A8")
async def test_silent_engine_is_killed_and_replaced_and_readiness_shows_it(start_server, tmp_path):
    gate = tmp_path / "gate"
    gate.touch()
    server = start_server(DRAGOMAN_LIFECYCLE__ENGINE_SILENCE_S="2", ECHO_GATE=str(gate))
    (engine,) = server.engine_pids()
    gate.unlink()

    os.kill(engine, signal.SIGSTOP)

    await eventually(lambda: server.get("/readyz")[0] == 503)
    assert server.get("/healthz") == (200, "alive\n")
    gate.touch()
    await eventually(lambda: server.get("/readyz")[0] == 200)
    assert engine not in server.engine_pids()
    assert "it stopped answering and was killed" in server.log_text()
    async with calling(server.address) as calls:
        assert await calls.texts("next") == ["next"]


@pytest.mark.promise("A8")
async def test_server_without_any_engine_for_too_long_is_not_alive_until_one_is_back(start_server, tmp_path):
    bundle = write_echo_bundle(tmp_path / "bundle", version="1")
    server = start_server(DRAGOMAN_ENGINE__BUNDLE=str(bundle), DRAGOMAN_LIFECYCLE__UNREADY_EXIT_S="0.3")
    write_echo_bundle(bundle, version="2")  # with this one, the old model's engine is not started again

    os.kill(server.engine_pids()[0], signal.SIGKILL)

    await eventually(lambda: server.get("/healthz") == (503, "no engine for too long\n"))
    away = [server.metric(name) for name in GAUGES]
    server.process.send_signal(signal.SIGHUP)
    await eventually(lambda: server.get("/healthz") == (200, "alive\n"))
    assert server.get("/readyz")[0] == 200
    assert away == [0, 0, 1]
    await eventually(lambda: [server.metric(name) for name in GAUGES] == [1, 1, 0])
