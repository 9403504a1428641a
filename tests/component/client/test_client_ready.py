"""The client waits for a server that is not there yet, restarts, or has nothing good to say."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from service.client import AsyncClient, ClientConfig, failures
from service.errors import DeadlineExceeded, Unavailable
from tests.fakes.calls import eventually
from tests.fakes.scripted_server import ScriptedServer

WAIT_S = 1.0  # time enough to try to connect, on a busy machine too


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


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch) -> None:
    monkeypatch.setattr(failures, "_PAUSE_S", 0.001)


async def wait_until_ready(address: str, timeout_s: float) -> None:
    async with AsyncClient(address) as client:
        await client.wait_until_ready(timeout_s)


@pytest.mark.parametrize(
    "code",
    [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.OK],
)
async def test_watch_that_ends_is_opened_again(serve, code):
    servicer = EndingHealth(code, code)

    await wait_until_ready(await serve(servicer), 20.0)

    assert servicer.num_watches == 3


async def test_server_that_restarts_is_waited_for():
    servicer = EndingHealth()
    await servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    old, address = await started(servicer)
    waiting = asyncio.create_task(wait_until_ready(address, 20.0))
    await eventually(lambda: servicer.num_open == 1)
    await old.stop(grace=None)

    new = ScriptedServer(port=int(address.rpartition(":")[2]))
    await new.server.start()
    try:
        await asyncio.wait_for(waiting, 60)
    finally:
        await new.server.stop(grace=None)


async def test_what_keeps_the_client_from_connecting_is_said(silent):
    quick = ClientConfig(timeout_s=WAIT_S)
    async with AsyncClient("127.0.0.1:1", quick) as absent, AsyncClient(silent, quick) as mute:
        calls = (absent.translate(["one"]), absent.wait_until_ready(WAIT_S), mute.translate(["one"]))
        call, wait, late = await asyncio.gather(*calls, return_exceptions=True)  # each takes its whole time

    assert isinstance(call, DeadlineExceeded)
    assert str(call).startswith("no connection to 127.0.0.1:1 within the deadline: ")
    assert isinstance(wait, Unavailable)
    assert str(wait).startswith("no server was ready at 127.0.0.1:1 within 1 s (")
    assert "Connection refused" in str(call)
    assert "Connection refused" in str(wait)
    assert isinstance(late, DeadlineExceeded)
    assert "no connection" not in str(late)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a listener that connects and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
