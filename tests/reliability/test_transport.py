"""B: connections and clients that misbehave."""

import asyncio
import time

import grpc
import grpc.aio
import psutil
import pytest

from protos import translation_pb2 as pb
from tests.fakes.calls import TRANSLATE, Calls, calling, code_of, eventually
from tests.fakes.http2_peer import (
    Peer,
    call_headers,
    data_frame,
    grpc_message,
    headers_frame,
    idle_connection,
    is_open,
    more_descriptors,
    rapid_reset,
)
from tests.fakes.load import probing
from tests.fakes.server_process import ServerProcess
from tests.reliability.conftest import Seen, needs_two_cpus

pytestmark = pytest.mark.reliability


async def quiet_p99(calls: Calls) -> float:
    async with probing(calls) as probe:
        await asyncio.sleep(2.0)
    return probe.p99()


def resident(server: ServerProcess) -> int:
    return int(psutil.Process(server.process.pid).memory_info().rss)


@pytest.mark.promise("B9")
async def test_trickling_senders_take_no_place_and_hold_nobody_up(start_server, seen: Seen):
    """100 connections whose messages never become whole."""
    server = start_server(DRAGOMAN_LIMITS__MAX_CONCURRENT_REQUESTS="8")
    message = grpc_message(pb.TranslateRequest(texts=["x" * 400]).SerializeToString())
    peers = [Peer(server.grpc_port) for _ in range(100)]
    try:
        for peer in peers:
            assert peer.send(headers_frame(peer.next_stream(), call_headers()))
        async with calling(server.address) as calls:
            async with probing(calls) as probe:
                for byte in message[:200:4]:
                    for peer in peers:
                        peer.send(data_frame(1, bytes([byte])))
                    await asyncio.sleep(0.05)
            received = server.metric("dragoman_requests_in_flight", method=TRANSLATE[1:])
        seen(f"{len(probe.waits)} calls beside them OK, p99 {probe.p99() * 1e3:.0f} ms; calls in flight {received:.0f}")

        assert probe.errors == []
        assert received == 0
    finally:
        for peer in peers:
            peer.close()


@pytest.mark.promise("B10")
@pytest.mark.timeout(180)
async def test_three_thousand_idle_connections_cost_little_and_are_closed(start_server, seen: Seen):
    server = start_server(DRAGOMAN_LISTEN__MAX_CONNECTION_IDLE_S="20")
    with more_descriptors(8_000):
        async with calling(server.address) as calls:
            alone, before = await quiet_p99(calls), resident(server)
            idle = [await asyncio.to_thread(idle_connection, server.grpc_port) for _ in range(3_000)]
            opened_at = time.monotonic()
            try:
                grown = resident(server) - before
                async with probing(calls) as probe:
                    await asyncio.sleep(4.0)
                await eventually(lambda: not any(map(is_open, idle)), 60.0)
                closed_s = time.monotonic() - opened_at
            finally:
                for connection in idle:
                    connection.close()
            assert await code_of(calls.translate("after")) is grpc.StatusCode.OK
    seen(
        f"memory {grown / 2**20:+.0f} MiB, p99 {alone * 1e3:.1f} -> {probe.p99() * 1e3:.1f} ms, "
        f"all closed after {closed_s:.0f} s at a limit of 20"
    )
    assert probe.errors == []
    assert grown < 100 << 20
    assert probe.p99() < 5 * alone + 0.02


@pytest.mark.promise("B11")
@pytest.mark.timeout(120)
async def test_rapid_reset_leaves_other_calls_alone(start_server, seen: Seen):
    """Calls begun and taken back at once, as fast as one socket goes, for four seconds."""
    needs_two_cpus()
    server = start_server()
    async with calling(server.address) as calls:
        alone, before = await quiet_p99(calls), resident(server)
        is_over, sent = asyncio.Event(), 0

        def flood() -> None:
            nonlocal sent
            with Peer(server.grpc_port) as peer:
                while not (is_over.is_set() or peer.is_closed.is_set()):
                    sent += rapid_reset(peer, 500)

        flooding = asyncio.create_task(asyncio.to_thread(flood))
        async with probing(calls) as probe:
            await asyncio.sleep(4.0)
        is_over.set()
        await flooding
        after = await quiet_p99(calls)
        grown = resident(server) - before
    seen(
        f"{sent} resets in 4 s, others {len(probe.waits)} OK, p99 {alone * 1e3:.1f} -> {probe.p99() * 1e3:.1f} "
        f"-> {after * 1e3:.1f} ms after, memory {grown / 2**20:+.0f} MiB"
    )
    assert probe.errors == []
    assert probe.p99() <= 5 * alone + 1.0  # a bare grpc.aio server takes 0.8 - 1.2 s on two slow cores
    assert grown < 100 << 20
