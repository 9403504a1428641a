"""A: what the machine gives too little of: disk, file descriptors, memory, CPUs."""

import asyncio
import os
import resource
import signal
import time

import grpc
import psutil
import pytest

from model.bundle import default_bundle_dir, included_bundle_dirs
from tests.fakes.calls import calling, code_of, error_info, eventually, failure, words
from tests.fakes.http2_peer import idle_connection, num_open_files
from tests.fakes.load import offer
from tests.fakes.load_process import Source
from tests.fakes.own_text import own_sentences
from tests.fakes.server_process import start
from tests.reliability.conftest import DEFAULTS, SLOW, Seen, kept_to

pytestmark = pytest.mark.reliability

RESOURCE_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


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
        running = calls.translate(words(100))
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


@pytest.mark.promise("A15")
async def test_engine_that_gets_no_memory_refuses_the_call_and_no_other(start_server, seen: Seen):
    """Sources of 12 tokens make the fake's encoder raise MemoryError, as NumPy does when the system gives none."""
    server = start_server(ECHO_NO_MEMORY="12")
    async with calling(server.address) as calls:
        others = [calls.translate(f"other {number}") for number in range(20)]
        error = await failure(calls.translate(words(10)))
        seen(f"{error.code().name} {error_info(error).reason}, others and the next call OK")

        assert (error.code(), error_info(error).reason) == (RESOURCE_EXHAUSTED, "out_of_memory")
        assert {await code_of(call) for call in others} == {grpc.StatusCode.OK}
        assert await calls.texts("next") == ["next"]
        assert server.metric("dragoman_rejected_total", reason="out_of_memory") == 1
        assert server.metric("dragoman_engine_restarts_total") == 0


@pytest.mark.promise("A15")
async def test_real_engine_that_gets_no_memory_refuses_and_serves_again(start_server, seen: Seen):
    """Its address space may not grow by more than 2 MiB while 64 long texts come."""
    server = start_server(
        DRAGOMAN_ENGINE__BUNDLE=str(default_bundle_dir()),
        DRAGOMAN_ENGINE__RUNNER_FACTORY="service.engine.worker:create_runner",
        DRAGOMAN_LIMITS__MAX_REQUEST_SECONDS="600",  # or a slow machine would refuse so much before it begins
        DRAGOMAN_LIMITS__MAX_QUEUE_SECONDS="600",
    )
    engine = psutil.Process(server.engine_pids()[0])
    text = " ".join(own_sentences(12))
    async with calling(server.address) as calls:
        before = await calls.texts("Good morning.")
        limit = engine.memory_info().vms + (2 << 20)
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
    with kept_to(min(os.sched_getaffinity(0))):
        server = await asyncio.to_thread(start, None, tmp_path, **DEFAULTS)
    try:
        async with calling(server.address) as calls:
            for _ in range(3):
                await calls.translate(*own_sentences(100))
        engines = [psutil.Process(pid) for pid in server.engine_pids()]
        models = included_bundle_dirs()
        at_work = max(engines, key=lambda engine: engine.cpu_times().user)
        times = sorted((task.user_time for task in at_work.threads()), reverse=True)
        seen(f"{len(models)} models, {len(engines)} engines, CPU seconds of the busy one's threads {times}")

        assert len(engines) == len(models)
        assert sum(times[1:]) < 0.1 * times[0]
        assert "affinity" not in server.log_text()
    finally:
        server.process.kill()
        server.process.wait()
