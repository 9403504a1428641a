"""A: faults of the server's process and its engines; more in test_time_bounds.py and test_short_resources.py."""

import ast
import asyncio
import os
import signal
import socket
import time
from contextlib import suppress

import numpy as np
import pytest
from grpc_health.v1 import health_pb2

from service.client import AsyncClient
from service.client.channel import ClientConfig
from service.errors import DragomanError
from tests.fakes.calls import calling, eventually
from tests.fakes.load import offer
from tests.fakes.load_process import Source
from tests.fakes.server_process import ROOT, run_to_end, start
from tests.reliability.conftest import Seen

pytestmark = pytest.mark.reliability

SLOW = {"ECHO_STEP_S": "0.02"}
CHECK = health_pb2.HealthCheckRequest()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.promise("A1")
async def test_stop_under_open_loop_load_answers_or_refuses_every_call(start_server, scratch, seen: Seen):
    """300 calls a second that do not wait for each other, on eight connections; SIGTERM after two seconds."""
    server = start_server(ECHO_STEP_S="0.002")
    load = asyncio.create_task(
        offer(
            server.address,
            Source(phases=((300.0, 4.0),), texts=("x" * 40,), num_channels=8, timeout_s=10.0),
            directory=scratch,
        )
    )
    await eventually(lambda: server.metric("dragoman_requests_total", code="OK") > 400)

    server.terminate()

    status = await asyncio.to_thread(server.wait)
    codes = (await load).codes
    seen(f"{codes}, exit {status}")
    assert set(codes) == {"OK", "UNAVAILABLE"}
    assert status == 0


@pytest.mark.promise("A5")
@pytest.mark.timeout(120)
async def test_client_with_the_retry_policy_sees_no_error_when_the_server_is_killed(echo_bundle, tmp_path, seen: Seen):
    """SIGKILL three times; a supervisor starts the server again on the same port."""
    port = free_port()
    variables = {"DRAGOMAN_LISTEN__GRPC_PORT": str(port), "ECHO_STEP_S": "0.005"}
    server = await asyncio.to_thread(start, echo_bundle, tmp_path, **variables)
    answered, errors, is_over = 0, list[DragomanError](), asyncio.Event()

    async def caller(client: AsyncClient) -> None:
        nonlocal answered
        while not is_over.is_set():
            try:
                await client.translate(["some words"])
                answered += 1
            except DragomanError as error:
                errors.append(error)

    back_after_s: list[float] = []
    async with AsyncClient(f"127.0.0.1:{port}", ClientConfig(timeout_s=30.0)) as client:
        callers = [asyncio.create_task(caller(client)) for _ in range(10)]
        try:
            for _ in range(3):
                before = answered
                await eventually(lambda before=before: answered > before + 20)  # type: ignore[misc]
                server.process.kill()
                killed_at = time.monotonic()
                await asyncio.to_thread(server.process.wait)
                server = await asyncio.to_thread(start, echo_bundle, tmp_path, **variables)
                before = answered
                await eventually(lambda before=before: answered > before)  # type: ignore[misc]
                back_after_s.append(time.monotonic() - killed_at)
            is_over.set()
            await asyncio.wait_for(asyncio.gather(*callers), 40)
        finally:
            server.process.kill()
            server.process.wait()
    seen(f"{answered} answers, {len(errors)} errors; answered again after {max(back_after_s):.1f} s at most")

    assert errors == []


class TestStuckEngine:
    @pytest.mark.promise("A8")
    async def test_watchdog_replaces_it_and_readiness_turns_meanwhile(self, start_server, seen: Seen):
        server = start_server(DRAGOMAN_LIFECYCLE__ENGINE_SILENCE_S="2", **SLOW)
        async with calling(server.address) as calls:
            watch = calls.health.Watch(CHECK)
            statuses = [(await watch.read()).status]
            (engine,) = server.engine_pids()

            os.kill(engine, signal.SIGSTOP)
            began = time.monotonic()

            statuses += [(await asyncio.wait_for(watch.read(), 20)).status for _ in range(2)]
            seen(f"replaced after {time.monotonic() - began:.1f} s at a limit of 2 s of silence")
            assert statuses == [1, 2, 1]
            assert await calls.texts("next") == ["next"]
            assert server.engine_pids() != [engine]
            watch.cancel()

    @pytest.mark.promise("A8")
    async def test_liveness_ends_after_a_while_without_an_engine(self, start_server, tmp_path, seen: Seen):
        """An engine that is lost and whose replacements hang: the orchestrator is told to replace the process."""
        server = start_server(DRAGOMAN_LIFECYCLE__UNREADY_EXIT_S="2", DRAGOMAN_LIFECYCLE__ENGINE_SILENCE_S="60")
        assert server.get("/healthz")[0] == 200
        is_over = asyncio.Event()

        async def keep_stopping() -> None:
            while not is_over.is_set():
                for engine in server.engine_pids():
                    with suppress(ProcessLookupError):
                        os.kill(engine, signal.SIGKILL)
                await asyncio.sleep(0.02)

        killer = asyncio.create_task(keep_stopping())
        began = time.monotonic()
        await eventually(lambda: server.get("/healthz")[0] == 503)
        seen(f"/healthz fails after {time.monotonic() - began:.1f} s at a limit of 2 s")
        is_over.set()
        await killer


@pytest.mark.promise("A9")
@pytest.mark.timeout(120)
async def test_tokenising_a_megabyte_leaves_health_checks_quick(start_server, seen: Seen):
    server = start_server(
        DRAGOMAN_LIMITS__MAX_CHARACTERS="2000000",
        DRAGOMAN_LIMITS__MAX_MESSAGE_BYTES=str(16 << 20),
        DRAGOMAN_LIMITS__MAX_QUEUED_TOKENS="10000000",
    )
    async with calling(server.address) as calls, calling(server.address) as checks:
        await checks.health.Check(CHECK)
        waits: list[float] = []
        for _ in range(5):
            large = calls.translate("word " * 200_000)
            while not large.done():
                began = time.monotonic()
                await checks.health.Check(CHECK)
                waits.append(time.monotonic() - began)
                await asyncio.sleep(0.005)
            assert (await large).translations[0].status.code == 3  # too many tokens
    p99 = float(np.quantile(waits, 0.99))
    seen(f"{len(waits)} checks, p99 {p99 * 1e3:.0f} ms, longest {max(waits) * 1e3:.0f} ms")

    assert p99 < 0.1


@pytest.mark.promise("A10")
def test_second_server_on_a_port_ends_at_once(start_server, echo_bundle, seen: Seen):
    first = start_server()
    began = time.monotonic()

    status, errors = run_to_end(echo_bundle, DRAGOMAN_LISTEN__GRPC_PORT=str(first.grpc_port))

    took_s = time.monotonic() - began
    seen(f"exit {status} after {took_s:.2f} s, the interpreter's start included")
    assert status == 1
    assert f"cannot listen on 127.0.0.1:{first.grpc_port}" in errors
    assert took_s < 5.0


@pytest.mark.promise("A14")
def test_no_timeout_depends_on_the_wall_clock(seen: Seen):
    """time.time and datetime stand nowhere but where a moment is told to people and Prometheus."""
    tellers = {
        "service/telemetry/metrics.py",  # when a model was loaded
        "service/grpc/authentication.py",  # keys expire on a date
    }
    found: list[str] = []
    files = sorted((ROOT / "service").rglob("*.py"))
    for file in files:
        name = str(file.relative_to(ROOT))
        for node in ast.walk(ast.parse(file.read_text())):
            is_wall = isinstance(node, ast.Attribute) and ast.unparse(node) in ("time.time", "datetime.now")
            if is_wall and name not in tellers:
                found.append(f"{name}:{node.lineno}")  # type: ignore[attr-defined]
    seen(f"{len(files)} files read")

    assert found == []
