"""A deadline that passed without a connection says what kept the client from connecting."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator

import pytest

from service.client import AsyncClient, Client
from service.client.channel import ClientConfig
from service.errors import DeadlineExceeded, DragomanError, Unavailable

_QUICK = ClientConfig(timeout_s=0.3)

# What the call to an address ends with.
FailureAt = Callable[[str], Awaitable[DragomanError]]


def blocking(call: Callable[[Client], object]) -> FailureAt:
    def fail(address: str) -> DragomanError:
        with Client(address, _QUICK) as client, pytest.raises(DragomanError) as caught:
            call(client)
        return caught.value

    return lambda address: asyncio.to_thread(fail, address)


def waiting(call: Callable[[AsyncClient], Awaitable[object]]) -> FailureAt:
    async def fail(address: str) -> DragomanError:
        async with AsyncClient(address, _QUICK) as client:
            with pytest.raises(DragomanError) as caught:
                await call(client)
        return caught.value

    return fail


calls_of_both_clients = pytest.mark.parametrize(
    "failure_at",
    [
        blocking(lambda client: client.translate(["one"])),
        blocking(lambda client: list(client.translate_all(["one"]))),
        blocking(lambda client: client.models()),
        waiting(lambda client: client.translate(["one"])),
        waiting(lambda client: client.models()),
    ],
)
waits_of_both_clients = pytest.mark.parametrize(
    "failure_at",
    [blocking(lambda client: client.wait_until_ready(0.3)), waiting(lambda client: client.wait_until_ready(0.3))],
)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a listener that connects and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@calls_of_both_clients
async def test_call_to_a_closed_port_says_so(failure_at):
    error = await failure_at("127.0.0.1:1")

    assert isinstance(error, DeadlineExceeded)
    assert str(error).startswith("no connection to 127.0.0.1:1 within the deadline: ")
    assert "Connection refused" in str(error)


@calls_of_both_clients
async def test_call_to_a_server_that_does_not_answer_in_time_is_merely_late(failure_at, silent):
    error = await failure_at(silent)

    assert isinstance(error, DeadlineExceeded)
    assert str(error) == "Deadline Exceeded"


@waits_of_both_clients
async def test_waiting_for_a_closed_port_says_so_in_the_end(failure_at):
    error = await failure_at("127.0.0.1:1")

    assert isinstance(error, Unavailable)
    assert str(error).startswith("no server was ready at 127.0.0.1:1 within 0.3 s (")
    assert "Connection refused" in str(error)
