"""The server process: how it starts, refuses to start, drains and dies."""

import asyncio
import json
import os
import signal
import socket

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2

from tests.fakes.calls import TRANSLATE, calling, code_of, eventually, failure
from tests.fakes.echo_bundle import ModelRepository, write_echo_bundle
from tests.fakes.http_requests import post_multipart
from tests.fakes.server_process import run_to_end, spawn

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


OK, UNAVAILABLE = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE


class TestStart:
    @pytest.mark.promise("A10")
    def test_second_server_never_shares_a_port_of_the_first_and_says_so_in_one_line(self, start_server, echo_bundle):
        first = start_server("--admin-port", "0")
        ports = {"grpc": first.grpc_port, "http": first.http_port, "admin": first.admin_port}
        for name, port in ports.items():
            setting = f"listen.{name}_port"
            status, errors = run_to_end(echo_bundle, "--set", f"{setting}={port}")

            (line,) = errors.splitlines()  # no engine was started
            assert status == 1
            assert line.startswith(f"dragoman: cannot listen on 127.0.0.1:{port} ({setting}): Address already in use; ")
            assert f"sport = :{port}" in line

    @pytest.mark.promise("A11")
    @pytest.mark.parametrize(
        ("variables", "message"),
        [
            ({"DRAGOMAN_LISTEN__GRPC_PORT": "70000"}, "listen.grpc_port is '70000'"),
            ({"DRAGOMAN_ENGINE__PRECISION": "int8"}, "has no graphs in 'int8'"),
        ],
    )
    def test_wrong_settings_end_the_start_with_one_line(self, echo_bundle, variables, message):
        status, errors = run_to_end(echo_bundle, **variables)

        assert status == 2
        assert len(errors.splitlines()) == 1
        assert message in errors

    def test_file_of_ports_that_cannot_be_written_ends_the_start_before_an_engine_starts(self, echo_bundle, tmp_path):
        status, errors = run_to_end(echo_bundle, DRAGOMAN_LIFECYCLE__PORTS_FILE=str(tmp_path))

        assert status == 2
        (line,) = errors.splitlines()
        assert line.startswith(f"dragoman: lifecycle.ports_file {tmp_path} cannot be written: ")

    @pytest.mark.parametrize(("pid", "stays"), [(10**9, False), (os.getpid(), True)], ids=["ended", "alive"])
    def test_ports_of_a_server_that_was_killed_are_gone_before_the_next_one_serves(
        self, echo_bundle, tmp_path, pid, stays
    ):
        file = tmp_path / "ports"
        file.write_text(json.dumps({"pid": pid, "grpc_port": 1}))

        status, _ = run_to_end(
            echo_bundle, DRAGOMAN_LIFECYCLE__PORTS_FILE=str(file), DRAGOMAN_LISTEN__GRPC_HOST="192.0.2.1"
        )

        assert status == 1
        assert file.exists() is stays

    async def test_no_call_imports_a_module(self, start_server, tmp_path):
        """Nothing that is missing is found out by a call, and no call waits for it."""
        repository = ModelRepository(tmp_path)
        repository.put("en-de", "1", languages=("en", "de"))
        repository.put("de-en", "1", languages=("de", "en"))
        server = start_server(DRAGOMAN_MODELS__DIRECTORY=str(repository.directory), PYTHONPROFILEIMPORTTIME="1")
        at_start = len(server.log_text())
        assert "import time:" in server.log_text()
        async with calling(server.address) as calls:
            assert len(await calls.texts("The cat sleeps.", "Die Katze schläft.")) == 2
        for file in ("a.txt", "a.html", "a.xml", "a.xliff", "a.md", "a.srt", "a.vtt", "a.po"):
            fields = [("source", "auto"), ("target", "de")]
            await asyncio.to_thread(post_multipart, server.http_port, "/translate_file", fields, (file, b"some words"))
        for path in ("/", "/languages", "/spec", "/docs", "/metrics", "/readyz", "/healthz"):
            assert (await asyncio.to_thread(server.get, path))[0] == 200

        assert "import time:" not in server.log_text()[at_start:]

    @pytest.mark.promise("A3")
    async def test_starting_server_is_alive_but_not_ready(self, echo_bundle, tmp_path):
        with socket.socket() as probe:  # a port that is free now; port 0 is announced only when ready
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = spawn(echo_bundle, tmp_path / "log", ECHO_LOAD_S="300", DRAGOMAN_LISTEN__GRPC_PORT=str(port))
        try:
            async with calling(f"127.0.0.1:{port}") as calls:
                request = health_pb2.HealthCheckRequest()
                response = await calls.health.Check(request, wait_for_ready=True, timeout=120.0)
                error = await failure(calls.translate("too early"))

            assert response.status == health_pb2.HealthCheckResponse.NOT_SERVING
            assert (error.code(), error.details()) == (UNAVAILABLE, "the server is starting")
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 60) == 0
        finally:
            process.kill()
            process.wait()

    @pytest.mark.promise("A3")
    def test_signal_ends_a_start_while_a_file_of_the_bundle_hangs(self, tmp_path):
        manifest = tmp_path / "bundle" / "manifest.json"
        manifest.parent.mkdir()
        os.mkfifo(manifest)
        process = spawn(manifest.parent, tmp_path / "log")
        try:
            with manifest.open("wb"):  # once the server reads, which lasts until this is closed
                process.send_signal(signal.SIGTERM)

                assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()


class TestStop:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
    def test_idle_server_ends_at_once_and_takes_its_engines_along(self, start_server, number):
        server = start_server()
        (engine,) = [psutil.Process(pid) for pid in server.engine_pids()]

        server.process.send_signal(number)

        assert server.wait() == (-number if number is signal.SIGKILL else 0)
        assert psutil.wait_procs([engine], timeout=120.0)[1] == []
        assert f'"grpc_port": {server.grpc_port}' in server.log_text()

    @pytest.mark.promise("A1")
    async def test_every_call_during_a_drain_is_answered_or_refused(self, start_server):
        """50 callers in a loop until the process has ended: an answer for every call, OK or UNAVAILABLE."""
        server = start_server(ECHO_STEP_S="0.002")
        codes: list[grpc.StatusCode] = []
        async with calling(server.address) as calls:

            async def caller() -> None:
                while server.process.poll() is None:
                    codes.append(await code_of(calls.translate("some words to say")))

            callers = [asyncio.create_task(caller()) for _ in range(50)]
            await eventually(lambda: server.metric("dragoman_requests_total", code="OK") > 200)
            server.terminate()
            await asyncio.wait_for(asyncio.gather(*callers), 60)

        assert set(codes) == {OK, UNAVAILABLE}
        assert await asyncio.to_thread(server.wait) == 0
        assert '"event": "draining"' in server.log_text()

    @pytest.mark.parametrize(
        ("grace_s", "event", "code"),
        [
            pytest.param("300", '"draining"', OK, marks=pytest.mark.promise("A1")),
            pytest.param("0.3", '"grace_period_over"', UNAVAILABLE, marks=pytest.mark.promise("A2")),
        ],
    )
    async def test_accepted_calls_are_finished_within_the_grace_period(self, start_server, grace_s, event, code):
        server = start_server(DRAGOMAN_LIFECYCLE__GRACE_S=grace_s)
        async with calling(server.address) as calls:
            with server.held():
                accepted = [calls.translate("some words to say") for _ in range(10)]
                await eventually(lambda: server.metric("dragoman_running_jobs") == 10)
                server.terminate()
                await eventually(lambda: event in server.log_text())

            assert {await code_of(call) for call in accepted} == {code}
        assert await asyncio.to_thread(server.wait) == 0

    @pytest.mark.promise("A1")
    async def test_health_turns_before_calls_are_refused(self, start_server):
        server = start_server(DRAGOMAN_LIFECYCLE__DRAIN_DELAY_S="4")
        async with calling(server.address) as calls:
            watch = calls.health.Watch(health_pb2.HealthCheckRequest())
            serving = await watch.read()

            server.terminate()
            turned = await asyncio.wait_for(watch.read(), 60)

            answer = await calls.texts("still accepted")
            readiness = await asyncio.to_thread(server.get, "/readyz")
            assert (await failure(watch.read())).code() is UNAVAILABLE
        assert [serving.status, turned.status] == [1, 2]
        assert (answer, readiness) == (["still accepted"], (503, "not ready\n"))
        assert await asyncio.to_thread(server.wait) == 0

    @pytest.mark.promise("A3")
    async def test_open_streams_and_idle_connections_do_not_hold_up_the_end(self, start_server):
        server = start_server()
        async with calling(server.address) as calls, calling(server.address) as idle:
            await idle.channel.channel_ready()
            watch = calls.health.Watch(health_pb2.HealthCheckRequest())
            await watch.read()
            questions = calls.stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
            await questions.write(b":\x00")  # list_services
            await questions.read()

            server.terminate()

            assert await asyncio.to_thread(server.wait) == 0
            questions.cancel()

    @pytest.mark.promise("A4")
    async def test_second_signal_ends_at_once(self, start_server):
        server = start_server()
        engines = [psutil.Process(pid) for pid in server.engine_pids()]
        async with calling(server.address) as calls:
            with server.held():
                accepted = calls.translate("some words to say")
                await eventually(lambda: server.metric("dragoman_running_jobs") == 1)
                server.terminate()
                await eventually(lambda: "draining" in server.log_text())

                server.terminate()

                assert await asyncio.to_thread(server.wait) == 128 + signal.SIGTERM
            assert await code_of(accepted) is UNAVAILABLE
        assert "Traceback" not in server.log_text()
        assert psutil.wait_procs(engines, timeout=120.0)[1] == []


class TestEngineLoss:
    @pytest.mark.promise("A7")
    async def test_killed_engine_costs_its_calls_only(self, start_server):
        """UNAVAILABLE for what it held; then everything is served again."""
        server = start_server()
        async with calling(server.address) as calls:
            with server.held():
                held = [calls.translate("some words to say") for _ in range(8)]
                await eventually(lambda: server.metric("dragoman_running_jobs") == 8)
                (engine,) = server.engine_pids()

                os.kill(engine, signal.SIGKILL)

                assert [await code_of(call) for call in held] == [UNAVAILABLE] * 8
            assert await calls.texts("next") == ["next"]
            assert server.metric("dragoman_engine_restarts_total") == 1
            assert server.engine_pids() != [engine]
        # gRPC has words of its own for a process that is started beside its threads.
        assert [line for line in server.log_text().splitlines() if not line.startswith("{")] == []

    @pytest.mark.promise("A7")
    async def test_readiness_is_off_while_there_is_no_engine(self, start_server, tmp_path):
        gate = tmp_path / "gate"
        gate.touch()
        server = start_server(ECHO_GATE=str(gate))
        async with calling(server.address) as calls:
            watch = calls.health.Watch(health_pb2.HealthCheckRequest())
            seen = [(await watch.read()).status]
            (engine,) = server.engine_pids()
            gate.unlink()

            os.kill(engine, signal.SIGKILL)

            seen.append((await asyncio.wait_for(watch.read(), 60)).status)
            readiness = await asyncio.to_thread(server.get, "/readyz")
            waiting = calls.translate("served by the replacement")
            gate.touch()
            seen.append((await asyncio.wait_for(watch.read(), 60)).status)
            assert seen == [1, 2, 1]
            assert readiness[0] == 503
            assert (await waiting).translations[0].hypotheses[0].text == "served by the replacement"
            watch.cancel()

    @pytest.mark.promise("A8")
    async def test_deadlines_hold_while_the_engine_is_stuck(self, start_server):
        server = start_server()
        async with calling(server.address) as calls:
            with server.held():
                assert await code_of(calls.translate("words", timeout=1.0)) is grpc.StatusCode.DEADLINE_EXCEEDED
                assert await calls.health.Check(health_pb2.HealthCheckRequest(), timeout=120.0)
                in_flight = "dragoman_requests_in_flight"
                await eventually(lambda: server.metric(in_flight, method=TRANSLATE[1:]) == 0)
            assert await calls.texts("next") == ["next"]
