"""A: faults of the server's process, its engines, and of what the machine gives it; more in test_time_bounds.py."""

import ast
import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest
from grpc_health.v1 import health_pb2

from model.bundle import default_bundle_dir
from service.client import AsyncClient
from service.client.channel import ClientConfig
from service.errors import DragomanError
from tests.fakes.calls import calling, code_of, error_info, eventually, failure
from tests.fakes.http2_peer import idle_connection, num_open_files
from tests.fakes.load import offer
from tests.fakes.load_process import Source
from tests.fakes.own_text import own_sentences
from tests.fakes.server_process import ROOT, ServerProcess, run_to_end, start
from tests.reliability.conftest import Seen

pytestmark = pytest.mark.reliability

RESOURCE_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
SLOW = {"ECHO_STEP_S": "0.02"}
LONG = "x" * 250  # five seconds when slow
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


@pytest.mark.promise("A12")
async def test_log_that_cannot_be_written_stops_neither_calls_nor_engines(start_server, seen: Seen):
    """The limit on file size stands for a full disk: every further write of the log fails."""
    server = start_server(DRAGOMAN_TELEMETRY__LOG_LEVEL="debug", **SLOW)
    size = server.log.stat().st_size
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, size))
    async with calling(server.address) as calls:
        os.kill(server.engine_pids()[0], signal.SIGKILL)  # is logged
        await eventually(lambda: server.metric("dragoman_engine_restarts_total") == 1)
        assert await calls.texts("next") == ["next"]

        assert server.log.stat().st_size == size
        assert server.metric("dragoman_log_dropped_total") > 0
    seen("lost engine replaced, calls OK, with no log")
    server.terminate()
    assert await asyncio.to_thread(server.wait) == 0


@pytest.mark.promise("A13")
@pytest.mark.timeout(120)
async def test_server_without_free_descriptors_serves_on_and_recovers(start_server, seen: Seen):
    server = start_server(**SLOW)
    limit = 256  # gRPC takes in what waits in lots of that size, a second apart
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
    async with calling(server.address) as calls:
        assert await calls.texts("before") == ["before"]
        running = calls.translate("x" * 100)
        connections = [idle_connection(server.grpc_port) for _ in range(500)]
        try:
            await eventually(lambda: num_open_files(server.process.pid) >= limit - 2)
            assert await calls.texts("during") == ["during"]
            assert await code_of(running) is grpc.StatusCode.OK
        finally:
            for connection in connections:
                connection.close()
        began = time.monotonic()
        async with calling(server.address) as newcomer:
            assert await newcomer.texts("after") == ["after"]
        recovered_s = time.monotonic() - began
    seen(f"500 connections at {limit} descriptors: calls OK, a new connection {recovered_s:.1f} s after release")
    assert recovered_s <= 5.0
    assert server.process.poll() is None


@pytest.mark.promise("A14")
def test_no_timeout_depends_on_the_wall_clock(seen: Seen):
    """time.time and datetime stand nowhere but where a moment is told to people and Prometheus."""
    tellers = {
        "service/telemetry/model_metrics.py",  # when a model was loaded
        "service/commands/tuning_run.py",  # when a machine was measured
        "service/api/authentication.py",  # keys expire on a date
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


@pytest.mark.promise("A15")
async def test_engine_that_gets_no_memory_refuses_the_call_and_no_other(start_server, seen: Seen):
    """Sources of 12 tokens make the fake's encoder raise MemoryError, as NumPy does when the system gives none."""
    server = start_server(DRAGOMAN_ENGINE__RUNNER_FACTORY="tests.fakes.short_of_memory:create")
    async with calling(server.address) as calls:
        others = [calls.translate(f"other {number}") for number in range(20)]
        error = await failure(calls.translate("x" * 10))
        seen(f"{error.code().name} {error_info(error).reason}, others and the next call OK")

        assert (error.code(), error_info(error).reason) == (RESOURCE_EXHAUSTED, "out_of_memory")
        assert {await code_of(call) for call in others} == {grpc.StatusCode.OK}
        assert await calls.texts("next") == ["next"]
        assert server.metric("dragoman_rejected_total", reason="out_of_memory") == 1
        assert server.metric("dragoman_engine_restarts_total") == 0


@pytest.mark.promise("A15")
async def test_real_engine_that_gets_no_memory_refuses_and_serves_again(start_server, seen: Seen):
    """Its address space may not grow by more than 30 MiB while 64 long texts come."""
    server = start_server(
        DRAGOMAN_ENGINE__BUNDLE=str(default_bundle_dir()),
        DRAGOMAN_ENGINE__RUNNER_FACTORY="service.engine.runner:create_runner",
        DRAGOMAN_LIMITS__MAX_REQUEST_SECONDS="600",  # or a slow machine would refuse so much before it begins
        DRAGOMAN_LIMITS__MAX_QUEUE_SECONDS="600",
    )
    engine = psutil.Process(server.engine_pids()[0])
    text = " ".join(own_sentences(12))
    async with calling(server.address) as calls:
        before = await calls.texts("Good morning.")
        limit = engine.memory_info().vms + (30 << 20)
        resource.prlimit(engine.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        error = await failure(calls.translate(*[text] * 64, timeout=600.0))
        resource.prlimit(engine.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        seen(f"64 long texts in the real engine {error.code().name} {error_info(error).reason}, the next call OK")

        assert (error.code(), error_info(error).reason) == (RESOURCE_EXHAUSTED, "out_of_memory")
        await eventually(lambda: server.metric("dragoman_queue_work_seconds") == 0)  # the rest of the call is dropped
        assert await calls.texts("Good morning.") == before
        assert server.metric("dragoman_engine_restarts_total") == 0
        assert server.engine_pids() == [engine.pid]


@pytest.mark.promise("A15")
@pytest.mark.timeout(180)
async def test_texts_that_wait_are_refused_before_they_fill_the_memory(start_server, scratch, seen: Seen):
    """2,000 calls of 10 kB a second, more than a hundred times the capacity: the token budget holds the memory."""
    server = start_server(DRAGOMAN_LIMITS__MAX_QUEUED_TOKENS="20000", ECHO_STEP_S="0.05")
    before = psutil.Process(server.process.pid).memory_info().rss
    flood = Source(phases=((400.0, 10.0),), texts=("word " * 90,), timeout_s=10.0, num_channels=4)
    load = await offer(server.address, flood, directory=scratch)
    grown = psutil.Process(server.process.pid).memory_info().rss - before
    seen(f"{load.codes}, front memory {grown / 2**20:+.0f} MiB")

    assert load.codes["RESOURCE_EXHAUSTED"] > 0.5 * len(load.records)
    assert grown < 100 << 20
    async with calling(server.address) as calls:
        assert await calls.texts("next") == ["next"]


@pytest.mark.promise("A16")
async def test_on_one_cpu_of_several_one_thread_computes(tmp_path, seen: Seen):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    with pinned(min(os.sched_getaffinity(0))):
        server = await asyncio.to_thread(start_default, tmp_path)
    try:
        async with calling(server.address) as calls:
            for _ in range(3):
                await calls.translate(*own_sentences(100))
        engines = [psutil.Process(pid) for pid in server.engine_pids()]
        times = sorted((task.user_time for task in engines[0].threads()), reverse=True)
        seen(f"{len(engines)} engine, CPU seconds of its threads {times}")

        assert len(engines) == 1
        assert sum(times[1:]) < 0.1 * times[0]
        assert "affinity" not in server.log_text()
    finally:
        server.process.kill()
        server.process.wait()


@contextmanager
def pinned(cpu: int) -> Iterator[None]:
    """Lets this process, and what it starts meanwhile, use one CPU only."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def start_default(directory: Path) -> ServerProcess:
    """A server with the default number of engines, which the tests' environment sets otherwise."""
    ports_file, log = directory / "ports.json", directory / "server.log"
    settings = ["listen.grpc_port=0", "listen.http_port=0", f"lifecycle.ports_file={ports_file}"]
    options = [part for setting in settings for part in ("--set", setting)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "service", "serve", *options],
            cwd=ROOT,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdout=stream,
            stderr=stream,
            text=True,
        )
    deadline = time.monotonic() + 60
    while not ports_file.exists():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    ports = json.loads(ports_file.read_text())
    return ServerProcess(process, log, ports["grpc_port"], ports["http_port"])
