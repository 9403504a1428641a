"""F and G: what a server says of itself stays quick, bounded and true, whatever is done to it."""

import asyncio
import random

import pytest
from grpc_health.v1 import health_pb2

from tests.fakes.books import watching
from tests.fakes.calls import calling, code_of
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
