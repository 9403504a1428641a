"""A and G: what several edge processes cost when one of them dies, and what the server says of itself then."""

import asyncio
import os
import signal
import time
from collections import Counter
from pathlib import Path

import grpc
import psutil
import pytest

from tests.fakes.books import watching
from tests.fakes.calls import TRANSLATE, Calls, calling, code_of, eventually, words
from tests.fakes.echo_bundle import ModelRepository
from tests.fakes.edges import TWO_EDGES, calling_each_edge
from tests.fakes.load import offer
from tests.fakes.load_process import Source
from tests.fakes.streams import message, opened
from tests.reliability.conftest import LONG, SLOW, Seen

pytestmark = pytest.mark.reliability

# The page of metrics is read from the core, since a connection to an edge is lost with it.
EDGES = {**TWO_EDGES, "DRAGOMAN_LISTEN__METRICS_PORT": "0"}
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


@pytest.mark.promise("A6", "G6")
async def test_killed_edge_costs_its_own_connections_only_and_is_back_within_two_seconds(start_server, seen: Seen):
    server = start_server(**EDGES, ECHO_STEP_S="0.002")
    codes: dict[int, Counter[str]] = {}
    is_over = False

    async def caller(calls: Calls, found: Counter[str]) -> None:
        while not is_over:
            code = await code_of(calls.translate(words(10)))
            found[code.name] += 1
            await asyncio.sleep(0.0 if code is grpc.StatusCode.OK else 0.05)

    async with calling_each_edge(server, num_connections=4) as connections:
        codes = {pid: Counter() for pid in connections}
        victim = next(iter(connections))
        callers = [asyncio.create_task(caller(one, codes[pid])) for pid in connections for one in connections[pid]]
        with watching(server, period_s=0.02) as watch:
            await eventually(lambda: all(found["OK"] > 100 for found in codes.values()))
            began = time.monotonic()

            os.kill(victim, signal.SIGKILL)

            await eventually(lambda: "edge_started" in server.log_text())
            back_s = time.monotonic() - began
            before = codes[victim]["OK"]
            await eventually(lambda: codes[victim]["OK"] > before + 100)  # on new connections
            is_over = True
            await asyncio.gather(*callers)
    async with calling_each_edge(server) as connections:
        assert victim not in connections
        assert [await one.texts("back") for calls in connections.values() for one in calls] == [["back"], ["back"]]
    lost, kept = codes.pop(victim), *codes.values()
    seen(f"its connections: {dict(lost)}, others: {dict(kept)}; another edge after {back_s:.1f} s")
    assert set(lost) == {"OK", "UNAVAILABLE"}
    assert set(kept) == {"OK"}
    assert back_s <= 2.0
    assert (watch.falls, watch.imbalances, watch.failures) == ([], [], [])


@pytest.mark.promise("G6")
async def test_what_a_killed_edge_had_in_flight_leaves_the_gauges_within_a_second_and_is_counted(start_server):
    """Its calls leave the engine, too."""
    server = start_server(**EDGES, **SLOW)

    def in_flight() -> tuple[float, float, float]:
        calls = server.metric("dragoman_requests_in_flight", method=TRANSLATE[1:])
        return calls, server.metric("dragoman_streams"), server.metric("dragoman_running_jobs")

    async with calling_each_edge(server) as connections:
        (victim, (lost,)), (_, (kept,)) = connections.items()
        held = [lost.translate(LONG) for _ in range(3)]
        others = [kept.translate(LONG) for _ in range(2)]
        streams = [await opened(calls, message((1, LONG))) for calls in (lost, kept)]
        await eventually(lambda: in_flight() == (5, 2, 7))

        with watching(server, period_s=0.02) as watch:
            os.kill(victim, signal.SIGKILL)
            await eventually(lambda: in_flight() == (2, 1, 3), within_s=1.0)
        assert server.metric("dragoman_requests_total", code="UNAVAILABLE") == 4
        assert (watch.falls, watch.imbalances) == ([], [])
        assert [await code_of(call) for call in held] == [UNAVAILABLE] * 3
        for call in (*others, *streams):
            call.cancel()
        await eventually(lambda: in_flight() == (0, 0, 0))
        assert server.metric("dragoman_token_budget_used_ratio") == 0


@pytest.mark.promise("G4", "A1")
@pytest.mark.timeout(120)
async def test_books_of_two_edges_balance_through_kills_a_reload_and_the_drain(
    start_server, tmp_path: Path, scratch, seen: Seen
):
    """Every call has a status; the server ends with 0."""
    (tmp_path / "models").mkdir()
    repository = ModelRepository(tmp_path / "models")
    repository.put("echo", "1")
    server = start_server(**EDGES, DRAGOMAN_MODELS__DIRECTORY=str(repository.directory), ECHO_STEP_S="0.002")
    sources = [
        Source(phases=((80.0, 10.0),), texts=(words(30),), cancel_share=0.3, num_channels=4),
        Source(phases=((80.0, 10.0),), texts=(words(60),), timeout_s=0.2, num_channels=4),
    ]
    with watching(server, period_s=0.02) as watch:
        load = asyncio.create_task(offer(server.address, *sources, directory=scratch))
        await eventually(lambda: server.metric("dragoman_requests_total", code="OK") > 50)
        os.kill(server.edge_pids()[0], signal.SIGKILL)
        await eventually(lambda: "edge_started" in server.log_text())
        repository.put("echo", "2")
        server.process.send_signal(signal.SIGHUP)
        await eventually(lambda: "model_retired" in server.log_text())
        os.kill(server.engine_pids()[0], signal.SIGKILL)
        await eventually(lambda: server.metric("dragoman_engine_restarts_total") == 1)
        async with calling(server.address) as calls:
            assert (await calls.translate("which?")).model_version == "2"
        server.terminate()
        status = await asyncio.to_thread(server.wait)
        codes = (await load).codes
    seen(f"{len(watch.moments)} pages, {len(watch.imbalances)} out of balance; {codes}, exit {status}")
    assert status == 0
    assert set(codes) <= {"OK", "CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "RESOURCE_EXHAUSTED"}
    assert (watch.falls, watch.imbalances) == ([], [])


@pytest.mark.promise("A5")
async def test_edges_end_with_a_killed_core(start_server):
    server = start_server(**EDGES, **SLOW)
    children = psutil.Process(server.process.pid).children()
    async with calling_each_edge(server) as connections:
        held = [one.translate(LONG) for calls in connections.values() for one in calls]
        await eventually(lambda: server.metric("dragoman_running_jobs") == 2)

        server.process.kill()

        assert [await code_of(call) for call in held] == [UNAVAILABLE] * 2
    assert psutil.wait_procs(children, timeout=5)[1] == []
