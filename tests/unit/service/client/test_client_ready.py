"""Both clients wait for a server that is not there yet, restarts, or has nothing good to say."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from service.client import AsyncClient, Client, readiness
from service.errors import DragomanError, PermissionDenied, Unavailable
from tests.fakes.calls import eventually
from tests.fakes.command_line import run_against
from tests.fakes.scripted_server import ScriptedServer, running

__all__ = ["running"]

WaitFor = Callable[[str, float], Awaitable[None]]


class EndingHealth(health.aio.HealthServicer):
    """Ends a Watch with each of these statuses in turn, or for ever with the first; answers the others."""

    def __init__(self, *codes: grpc.StatusCode, is_forever: bool = False) -> None:
        super().__init__()
        self._codes = list(codes)
        self._is_forever = is_forever
        self.num_watches = 0
        self.num_open = 0

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802 - the wire's name
        self.num_watches += 1
        if not self._codes:
            self.num_open += 1
            try:
                await super().Watch(request, context)
            finally:
                self.num_open -= 1
            return
        code = self._codes[0] if self._is_forever else self._codes.pop(0)
        if code is not grpc.StatusCode.OK:
            await context.abort(code, "no healthy upstream")


async def started(servicer: EndingHealth) -> tuple[grpc.aio.Server, str]:
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    return server, address


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[EndingHealth], Awaitable[str]]]:
    """Serves a health service; the address."""
    servers = []

    async def start(servicer: EndingHealth) -> str:
        server, address = await started(servicer)
        servers.append(server)
        return address

    yield start
    for server in servers:
        await server.stop(grace=None)


@pytest.fixture(params=["asyncio", "blocking"])
def wait_until_ready(request, monkeypatch) -> WaitFor:
    """That of either client, with hardly a pause."""
    monkeypatch.setattr(readiness, "_PAUSE_S", 0.001)

    def blocking(address: str, timeout_s: float) -> None:
        with Client(address) as client:
            client.wait_until_ready(timeout_s)

    async def wait(address: str, timeout_s: float) -> None:
        if request.param == "blocking":
            await asyncio.to_thread(blocking, address, timeout_s)
            return
        async with AsyncClient(address) as client:
            await client.wait_until_ready(timeout_s)

    return wait


@pytest.mark.parametrize(
    "code",
    [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.OK],
)
async def test_watch_that_ends_is_opened_again(serve, wait_until_ready, code):
    servicer = EndingHealth(code, code)

    await wait_until_ready(await serve(servicer), 20.0)

    assert servicer.num_watches == 3


async def test_server_that_stays_unavailable_is_given_up_in_time_with_its_own_words(serve, wait_until_ready):
    address = await serve(EndingHealth(grpc.StatusCode.UNAVAILABLE, is_forever=True))

    with pytest.raises(Unavailable, match=r"no server was ready at .* within 1 s \(no healthy upstream\)"):
        await wait_until_ready(address, 1.0)


async def test_server_that_refuses_to_say_is_not_asked_again(serve, wait_until_ready):
    servicer = EndingHealth(grpc.StatusCode.PERMISSION_DENIED, is_forever=True)

    with pytest.raises(PermissionDenied):
        await wait_until_ready(await serve(servicer), 20.0)
    assert servicer.num_watches == 1


async def test_watch_is_over_as_soon_as_the_server_serves(serve):
    servicer = EndingHealth()
    address = await serve(servicer)
    async with AsyncClient(address) as client:
        with Client(address) as blocking:
            await client.wait_until_ready(60.0)
            await asyncio.to_thread(blocking.wait_until_ready, 60.0)

            await eventually(lambda: servicer.num_open == 0)

    assert servicer.num_watches == 2


async def test_server_that_serves_needs_no_time_to_say_so(serve, wait_until_ready):
    await wait_until_ready(await serve(EndingHealth()), 0.0)


async def test_without_time_a_server_that_does_not_serve_is_asked_once(serve, wait_until_ready):
    servicer = EndingHealth()
    await servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)

    with pytest.raises(Unavailable, match=r"no server was ready at .* within 0 s$"):
        await asyncio.wait_for(wait_until_ready(await serve(servicer), 0.0), 4)
    assert servicer.num_watches == 1


async def test_without_time_a_server_that_is_away_is_not_waited_for(wait_until_ready):
    with pytest.raises(Unavailable, match=r"no server was ready at 127\.0\.0\.1:1 within 0 s"):
        await asyncio.wait_for(wait_until_ready("127.0.0.1:1", 0.0), 4)


async def test_command_that_may_not_wait_calls_a_server_that_serves(running):
    result = await run_against(running, "translate", "one", "--wait", "0")

    assert (result.exit_code, result.stdout) == (0, "ONE\n")


async def test_server_that_restarts_is_waited_for(wait_until_ready):
    servicer = EndingHealth()
    await servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    old, address = await started(servicer)
    waiting = asyncio.create_task(wait_until_ready(address, 20.0))
    await eventually(lambda: servicer.num_open == 1)
    await old.stop(grace=None)

    new = ScriptedServer(port=int(address.rpartition(":")[2]))
    await new.server.start()
    try:
        await asyncio.wait_for(waiting, 20)
    finally:
        await new.server.stop(grace=None)


async def test_client_that_is_closed_waits_no_longer(serve):
    servicer = EndingHealth()
    await servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    address = await serve(servicer)
    client, blocking = AsyncClient(address), Client(address)
    waits = [asyncio.create_task(client.wait_until_ready(60.0))]
    waits.append(asyncio.create_task(asyncio.to_thread(blocking.wait_until_ready, 60.0)))
    await eventually(lambda: servicer.num_watches == 2)

    await client.close()
    await asyncio.to_thread(blocking.close)

    for error in await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 20):
        assert isinstance(error, DragomanError)
        assert "the client was closed" in str(error)
