"""A, B and E: faults of the server's process, its engines and its callers, with bounds on time.

The bounds are those of the promises, far above what is measured on an idle machine.  More in test_short_resources.py.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2

from model.bundle import default_bundle_dir
from service.client import AsyncClient
from service.client.channel import ClientConfig
from service.errors import DragomanError
from tests.fakes.calls import Calls, calling, code_of, eventually, words
from tests.fakes.load import offer
from tests.fakes.load_process import Source
from tests.fakes.own_text import own_sentences
from tests.fakes.server_process import ServerProcess, start
from tests.reliability.conftest import LONG, SLOW, Seen, p99_ms, waits_of

pytestmark = pytest.mark.reliability

CHECK = health_pb2.HealthCheckRequest()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.promise("A1")
async def test_stop_under_open_loop_load_answers_or_refuses_every_call(start_server, scratch, seen: Seen):
    """300 calls a second that do not wait for each other, on eight connections; SIGTERM after more than a second."""
    server = start_server(ECHO_STEP_S="0.002")
    source = Source(phases=((300.0, 4.0),), texts=(words(40),), num_channels=8, timeout_s=10.0)
    load = asyncio.create_task(offer(server.address, source, directory=scratch))
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

    def has_more(count: int) -> bool:
        return answered > count

    back_after_s: list[float] = []
    async with AsyncClient(f"127.0.0.1:{port}", ClientConfig(timeout_s=30.0)) as client:
        callers = [asyncio.create_task(caller(client)) for _ in range(10)]
        try:
            for _ in range(3):
                await eventually(partial(has_more, answered + 20))
                server.process.kill()
                killed_at = time.monotonic()
                await asyncio.to_thread(server.process.wait)
                server = await asyncio.to_thread(start, echo_bundle, tmp_path, **variables)
                await eventually(partial(has_more, answered))
                back_after_s.append(time.monotonic() - killed_at)
            is_over.set()
            await asyncio.wait_for(asyncio.gather(*callers), 40)
        finally:
            server.process.kill()
            server.process.wait()
    seen(f"{answered} answers, {len(errors)} errors; answered again after {max(back_after_s):.1f} s at most")

    assert errors == []


@pytest.mark.promise("A9")
@pytest.mark.timeout(120)
async def test_tokenising_a_megabyte_leaves_health_checks_quick(start_server, seen: Seen):
    server = start_server(
        DRAGOMAN_LIMITS__MAX_CHARACTERS="2000000",
        DRAGOMAN_LIMITS__MAX_MESSAGE_BYTES=str(16 << 20),
        DRAGOMAN_LIMITS__MAX_QUEUED_TOKENS="10000000",
        DRAGOMAN_LIMITS__MAX_REQUEST_SECONDS="100",  # each takes about 20
    )
    async with calling(server.address) as calls, calling(server.address) as checks:
        await checks.health.Check(CHECK)
        waits: list[float] = []
        for _ in range(2):
            large = calls.translate("word " * 200_000, timeout=100.0)
            while not large.done():
                waits += await waits_of(partial(checks.health.Check, CHECK), 1)
                await asyncio.sleep(0.005)
            assert (await large).translations[0].status.code == 0  # it is translated in pieces
    seen(f"{len(waits)} checks, p99 {p99_ms(waits):.0f} ms, longest {max(waits) * 1e3:.0f} ms")

    assert p99_ms(waits) < 100


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Fails the test when what stands inside takes longer; asserted afterwards, so that a report says how long."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


async def held_calls(server: ServerProcess, calls: Calls, count: int) -> list[asyncio.Task[grpc.StatusCode]]:
    """The codes-to-be of calls that the engine is decoding."""
    held = [asyncio.create_task(code_of(calls.translate(LONG))) for _ in range(count)]
    await eventually(lambda: server.metric("dragoman_running_jobs") == count)
    return held


@pytest.mark.promise("A7")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_calls_of_a_killed_engine_are_unavailable_within_a_second(start_server, number):
    server = start_server(**SLOW)
    async with calling(server.address) as calls:
        held = await held_calls(server, calls, 8)

        async with within(1.0):
            os.kill(server.engine_pids()[0], number)
            assert await asyncio.gather(*held) == [grpc.StatusCode.UNAVAILABLE] * 8


@pytest.mark.promise("A2")
async def test_work_longer_than_the_grace_period_ends_two_seconds_after_it_at_the_latest(start_server):
    """A single step of the engine lasts longer than all of it."""
    server = start_server(DRAGOMAN_LIFECYCLE__GRACE_S="0.5", DRAGOMAN_MODELS__SELF_TEST="false", ECHO_STEP_S="4")
    engines = [psutil.Process(pid) for pid in server.engine_pids()]
    async with calling(server.address) as calls:
        held = await held_calls(server, calls, 3)

        async with within(0.5 + 2.0):
            server.terminate()
            assert await asyncio.gather(*held) == [grpc.StatusCode.UNAVAILABLE] * 3
            assert await asyncio.to_thread(server.wait) == 0
    assert psutil.wait_procs(engines, timeout=10)[1] == []


@pytest.mark.promise("B2", "B4")
@pytest.mark.parametrize("is_late", [False, True])
async def test_rows_of_an_abandoned_call_are_free_within_a_second(start_server, is_late):
    server = start_server(**SLOW)
    async with calling(server.address) as calls:
        call = calls.translate(LONG, timeout=2.0 if is_late else None)
        await eventually(lambda: server.metric("dragoman_running_jobs") == 1)
        if is_late:
            assert await code_of(call) is grpc.StatusCode.DEADLINE_EXCEEDED
        else:
            call.cancel()

        await eventually(lambda: server.metric("dragoman_running_jobs") == 0, within_s=1.0)


@pytest.mark.promise("E12")
@pytest.mark.timeout(120)
async def test_first_requests_are_as_quick_as_later_ones(start_server, seen: Seen):
    server = start_server(
        DRAGOMAN_ENGINE__BUNDLE=str(default_bundle_dir()),
        DRAGOMAN_ENGINE__RUNNER_FACTORY="service.engine.worker:create_runner",
    )
    texts = iter(own_sentences(100) * 3)
    async with calling(server.address) as calls:
        await calls.channel.channel_ready()
        waits = await waits_of(lambda: calls.translate(next(texts)), 300)
    first, steady = p99_ms(waits[:100]), p99_ms(waits[100:])
    seen(f"p99 of the first 100: {first:.0f} ms, later {steady:.0f} ms")
    assert first <= 2 * steady + 20


@contextmanager
def running(*words: str) -> Iterator[psutil.Process]:
    """A command of ours in a session of its own, as a supervisor starts it; what is left of it ends with the block."""
    process = psutil.Popen([sys.executable, "-m", "service", *words], start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def killed_with_children(process: psutil.Process, least: int, seen: Seen) -> list[psutil.Process]:
    """The children that live on 5 s after SIGKILL has ended their parent; there were `least` of them at least."""
    await eventually(lambda: len(process.children(recursive=True)) >= least, within_s=60.0)
    children = process.children(recursive=True)
    began = time.monotonic()
    process.kill()
    alive = (await asyncio.to_thread(psutil.wait_procs, children, 5.0))[1]
    left = [child for child in alive if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]  # init is slow
    seen(f"{len(children)} processes, {len(left)} left {time.monotonic() - began:.2f} s after the kill")
    return left


@pytest.mark.promise("I7")
async def test_a_killed_server_leaves_no_edge_and_no_engine(start_server, seen: Seen):
    server = start_server(DRAGOMAN_LISTEN__EDGES="2", DRAGOMAN_ENGINE__NUM_ENGINES="2", **SLOW)
    async with calling(server.address) as calls:
        held = [calls.translate(LONG) for _ in range(4)]
        await eventually(lambda: server.metric("dragoman_running_jobs") > 0)

        assert await killed_with_children(psutil.Process(server.process.pid), 4, seen) == []
        for call in held:
            call.cancel()


@pytest.mark.promise("I7")
async def test_a_killed_load_test_sends_nothing_more(start_server, seen: Seen):
    server = start_server()
    load = ("--rate", "20", "--duration", "600", "--workers", "2")
    with running("loadtest", "--server", server.address, *load) as process:
        await eventually(lambda: server.metric("dragoman_requests_total") > 20, within_s=60.0)

        assert await killed_with_children(process, 2, seen) == []


@pytest.mark.promise("I7")
async def test_a_killed_bulk_run_leaves_nothing(start_server, tmp_path, seen: Seen):
    server = start_server(**SLOW)
    (tmp_path / "in.txt").write_text("a text\n" * 10_000)
    with running("bulk", str(tmp_path / "in.txt"), str(tmp_path / "out.txt"), "--server", server.address) as process:
        await eventually(lambda: server.metric("dragoman_running_jobs") > 0, within_s=60.0)

        assert await killed_with_children(process, 0, seen) == []


@pytest.mark.promise("I7")
async def test_a_killed_import_leaves_nothing(tmp_path, seen: Seen):
    """It waits for a model that nobody writes."""
    os.mkfifo(tmp_path / "endless.argosmodel")
    with running(
        "models", "add", str(tmp_path / "endless.argosmodel"), "--models", str(tmp_path / "models")
    ) as process:
        assert await killed_with_children(process, 1, seen) == []
