"""H: callers over HTTP that misbehave, and a server that stops under them."""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import pytest

from service.api.http.server import TIMEOUT_S
from tests.fakes.calls import eventually, words
from tests.fakes.edges import TWO_EDGES
from tests.fakes.http_requests import Answer, ask, post
from tests.fakes.server_process import ServerProcess
from tests.reliability.conftest import LONG, SLOW, Seen, p99_ms, waits_of

pytestmark = pytest.mark.reliability

TRANSLATE = "libretranslate/translate"


async def translated(server: ServerProcess, *texts: str, **headers: str) -> Answer:
    wish: dict[str, Any] = {"q": list(texts), "source": "en", "target": "de"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await asyncio.to_thread(post, server.http_port, "/translate", named, **wish)


def request_of(*texts: str) -> bytes:
    body = json.dumps({"q": texts, "source": "en", "target": "de"}).encode()
    return b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


@contextmanager
def connections(server: ServerProcess, count: int) -> Iterator[list[socket.socket]]:
    opened = [socket.create_connection(("127.0.0.1", server.http_port), timeout=30) for _ in range(count)]
    try:
        yield opened
    finally:
        for connection in opened:
            connection.close()


def ended(connection: socket.socket) -> bool:
    """Whether the server has ended the connection; waits for it."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def is_idle(server: ServerProcess) -> Callable[[], bool]:
    return lambda: server.metric("dragoman_running_jobs") == 0 and server.metric("dragoman_queue_requests") == 0


@pytest.mark.promise("H1")
@pytest.mark.parametrize("edges", [{}, TWO_EDGES], ids=["one process", "two edges"])
async def test_stop_answers_what_was_accepted_and_refuses_the_rest_with_503(start_server, edges, seen: Seen):
    server = start_server(ECHO_STEP_S="0.01", **edges)
    held = [asyncio.create_task(translated(server, LONG)) for _ in range(4)]  # 2.5 s each
    await eventually(lambda: server.metric("dragoman_requests_in_flight", method=TRANSLATE) == 4)

    server.terminate()
    await eventually(lambda: server.get("/readyz")[0] == 503)
    late = [await translated(server, "late") for _ in range(3)]

    statuses = [(await one).status for one in held]
    status = await asyncio.to_thread(server.wait)
    seen(f"{statuses.count(200)} of 4 answered, 3 refused, exit {status}")
    assert statuses == [200] * 4
    assert [answer.status for answer in late] == [503] * 3
    assert all("retry-after" in answer.headers for answer in late)
    assert status == 0


@pytest.mark.promise("H2")
async def test_caller_that_leaves_frees_its_rows_at_the_next_step(start_server, seen: Seen):
    server = start_server(**SLOW)
    neighbour = asyncio.create_task(translated(server, words(100)))
    with connections(server, 1) as (leaving,):
        leaving.sendall(request_of(*[LONG] * 5))
        await eventually(lambda: server.metric("dragoman_running_jobs") == 6)
        began = time.monotonic()
    await eventually(lambda: server.metric("dragoman_running_jobs") <= 1)

    seen(f"free after {(time.monotonic() - began) * 1e3:.0f} ms; a step takes 20 ms")
    assert (await neighbour).json()["translatedText"] == [words(100)]
    assert server.metric("dragoman_cancelled_total", where="decode", reason="cancelled") == 5
    assert server.metric("dragoman_requests_total", method=TRANSLATE, code="CANCELLED") == 1


@pytest.mark.promise("H3")
async def test_deadline_of_the_header_ends_the_work(start_server):
    server = start_server(**SLOW)
    answer = await translated(server, LONG, x_request_timeout_ms="500")

    assert answer.status == 504
    await eventually(is_idle(server))
    assert server.metric("dragoman_requests_total", method=TRANSLATE, code="DEADLINE_EXCEEDED") == 1
    assert (await translated(server, "next")).status == 200


@pytest.mark.promise("H4")
async def test_bodies_that_trickle_in_take_no_place_and_end(start_server, seen: Seen):
    """100 callers that send a byte at a time."""
    server = start_server(DRAGOMAN_LIMITS__MAX_CONCURRENT_REQUESTS="8")
    waits: list[float] = []
    with connections(server, 100) as peers:
        for peer in peers:
            peer.sendall(request_of("x" * 1_000)[:100])
        began = time.monotonic()
        while time.monotonic() - began < TIMEOUT_S:
            for peer in peers:
                with suppress(OSError):
                    peer.sendall(b"x")
            waits += await waits_of(lambda: translated(server, "ok"), 5)
        assert all([await asyncio.to_thread(ended, peer) for peer in peers])
    seen(f"{len(waits)} calls beside them, p99 {p99_ms(waits):.0f} ms")

    await eventually(lambda: server.metric("dragoman_requests_in_flight", method=TRANSLATE) == 0)
    assert server.metric("dragoman_requests_total", method=TRANSLATE, code="OK") == len(waits)


@pytest.mark.promise("H5")
async def test_flood_of_connections_makes_room_for_callers(start_server, seen: Seen):
    """1,000 connections that say nothing, at a limit of 64."""
    server = start_server(DRAGOMAN_LISTEN__MAX_HTTP_CONNECTIONS="64")
    before = psutil.Process(server.process.pid).memory_info().rss
    with connections(server, 1_000):
        answers = [await translated(server, "ok") for _ in range(20)]
        growth = psutil.Process(server.process.pid).memory_info().rss - before
    seen(f"20 of 20 calls answered, {growth / 1e6:.0f} MB more")

    assert [answer.status for answer in answers] == [200] * 20
    assert growth < 64e6


@pytest.mark.promise("H6")
@pytest.mark.parametrize("is_announced", [True, False])
async def test_body_over_the_limit_is_refused_and_others_are_served(start_server, is_announced):
    server = start_server(DRAGOMAN_LIMITS__MAX_MESSAGE_BYTES="65536")
    with connections(server, 1) as (peer,):
        if is_announced:
            peer.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n")
        else:
            peer.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10001\r\n")
            peer.sendall(bytes(0x10001))
        head = await asyncio.to_thread(peer.recv, 100)

    assert head.startswith(b"HTTP/1.1 413 ")
    assert (await asyncio.to_thread(ask, server.http_port, "GET", "/languages")).status == 200
    assert server.metric("dragoman_requests_total", method=TRANSLATE, code="RESOURCE_EXHAUSTED") == 1
