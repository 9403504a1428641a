"""F and G: what a server says of itself stays quick, bounded and true, whatever is done to it."""

import asyncio
import os
import random
import signal
import socket
from contextlib import suppress

import pytest
from grpc_health.v1 import health_pb2

from protos import translation_pb2 as pb
from tests.fakes.books import watching
from tests.fakes.calls import calling, code_of, eventually, words
from tests.fakes.load import offer
from tests.fakes.load_process import Source
from tests.fakes.server_process import ServerProcess
from tests.reliability.conftest import CAPACITY, Seen, p99_ms, waits_of

pytestmark = pytest.mark.reliability

OVERLOAD = ((3.0 * CAPACITY, 10.0),)


@pytest.mark.promise("G1", "G5")
@pytest.mark.timeout(120)
async def test_scrapes_and_health_checks_are_quick_at_three_times_the_capacity(start_paced, scratch, seen: Seen):
    server = start_paced()
    waits: list[float] = []
    async with calling(server.address) as calls:
        with watching(server, period_s=0.25) as watch:
            load = asyncio.create_task(
                offer(server.address, Source(phases=OVERLOAD, timeout_s=1.0, num_channels=2), directory=scratch)
            )
            while not load.done():
                waits += await waits_of(lambda: calls.health.Check(health_pb2.HealthCheckRequest()), 1)
                await asyncio.sleep(0.02)
            await load
    seen(
        f"{len(watch.moments)} scrapes, slowest {watch.slowest_scrape_s * 1e3:.0f} ms; "
        f"{len(waits)} checks, p99 {p99_ms(waits):.0f} ms"
    )
    assert watch.slowest_scrape_s <= 0.25
    assert p99_ms(waits) < 100
    assert not watch.failures
    assert not watch.imbalances


@pytest.mark.promise("G2")
async def test_hundred_hanging_scrapers_do_not_slow_calls(start_server, seen: Seen):
    """One byte of the request a second; at the limit of connections, the oldest of them make room."""
    server = start_server(DRAGOMAN_LISTEN__MAX_HTTP_CONNECTIONS="64")

    async with calling(server.address) as calls:
        one_row = pb.TranslateOptions(beam_size=1)
        alone = p99_ms(await waits_of(lambda: calls.translate("Hi.", options=one_row), 100))
        hanging = [socket.create_connection(("127.0.0.1", server.http_port), timeout=10) for _ in range(100)]
        try:
            for connection in hanging:
                with suppress(OSError):
                    connection.sendall(b"G")
            beside = p99_ms(await waits_of(lambda: calls.translate("Hi.", options=one_row), 100))
        finally:
            for connection in hanging:
                connection.close()
        await eventually(lambda: server.get("/healthz")[0] == 200)
    seen(f"p99 {alone:.1f} -> {beside:.1f} ms")
    assert beside <= 3 * alone + 20


@pytest.mark.promise("G3")
@pytest.mark.timeout(120)
async def test_made_up_names_add_no_series(start_server, seen: Seen):
    """2,000 calls with random models, languages, methods and request ids."""
    server = start_server()
    seeded = random.Random(3)

    def name() -> str:
        return "".join(seeded.choices("abcdefghij", k=8))

    async with calling(server.address) as calls:

        async def one(kind: int) -> None:
            if kind == 0:
                await code_of(calls.translate("a", model=name()))
            elif kind == 1:
                await code_of(calls.translate("a", source_language=name(), target_language=name()))
            elif kind == 2:
                await code_of(calls.method(f"/{name()}.{name()}/{name()}")(b""))
            else:
                await code_of(calls.translate("a", metadata=((f"x-{name()}", name()), ("x-request-id", name()))))

        await asyncio.gather(*(one(kind) for kind in range(4)))
        before = num_series(server)
        for _ in range(20):
            await asyncio.gather(*(one(number % 4) for number in range(100)))
        after = num_series(server)
    seen(f"{before} series before, {after} after 2,000 names")
    assert after == before


def num_series(server: ServerProcess) -> int:
    return sum(1 for line in server.get("/metrics")[1].splitlines() if line and not line.startswith("#"))


@pytest.mark.promise("G4")
@pytest.mark.timeout(120)
async def test_books_balance_on_every_page_of_a_storm(start_server, scratch, seen: Seen):
    """Good, bad, late, cancelled, refused and unknown calls at once, and the engine dies in between."""
    server = start_server(
        DRAGOMAN_LIMITS__MAX_CONCURRENT_REQUESTS="30",
        ECHO_STEP_S="0.004",
        ECHO_NAN_LENGTH="7",
        DRAGOMAN_MODELS__SELF_TEST="false",
    )
    sources = [
        Source(phases=((100.0, 12.0),), texts=(words(30), words(5)), cancel_share=0.3, num_channels=2),
        Source(phases=((100.0, 12.0),), texts=(words(60),), timeout_s=0.1),
        Source(phases=((30.0, 12.0),), texts=("a",), beam_size=99),
    ]
    with watching(server, period_s=0.02) as watch:
        load = asyncio.create_task(offer(server.address, *sources, directory=scratch))
        async with calling(server.address) as calls:
            for turn in range(40):
                await code_of(calls.send_bytes(b"\xff"))
                await code_of(calls.method("/no/method")(b""))
                if turn == 20:
                    os.kill(server.engine_pids()[0], signal.SIGKILL)
                await asyncio.sleep(0.25)
        codes = (await load).codes
    seen(f"{len(watch.moments)} pages, {len(watch.imbalances)} out of balance; {codes}")
    assert watch.imbalances == []
    assert {"OK", "CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"} <= set(codes)
