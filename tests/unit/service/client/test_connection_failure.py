"""A deadline that passed without a connection says what kept the client from connecting."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator

import pytest

from service.client import AsyncClient, Client
from service.client.channel import ClientConfig
from service.errors import DeadlineExceeded, DragomanError, Unavailable

_WAIT_S = 1.0  # time enough to try to connect, on a busy machine too
_QUICK = ClientConfig(timeout_s=_WAIT_S)

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


CALLS = (
    blocking(lambda client: client.translate(["one"])),
    blocking(lambda client: list(client.translate_all(["one"]))),
    blocking(lambda client: client.models()),
    waiting(lambda client: client.translate(["one"])),
    waiting(lambda client: client.models()),
)
WAITS = (
    blocking(lambda client: client.wait_until_ready(_WAIT_S)),
    waiting(lambda client: client.wait_until_ready(_WAIT_S)),
)


async def failures(calls: tuple[FailureAt, ...], address: str) -> list[DragomanError]:
    """What each of them ends with; all at once, because each takes its whole time."""
    return await asyncio.gather(*(failure_at(address) for failure_at in calls))


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a listener that connects and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


async def test_call_to_a_closed_port_says_so():
    for error in await failures(CALLS, "127.0.0.1:1"):
        assert isinstance(error, DeadlineExceeded)
        assert str(error).startswith("no connection to 127.0.0.1:1 within the deadline: ")
        assert "Connection refused" in str(error)


async def test_call_to_a_server_that_does_not_answer_in_time_is_merely_late(silent):
    for error in await failures(CALLS, silent):
        assert isinstance(error, DeadlineExceeded)
        assert str(error) == "Deadline Exceeded"


async def test_waiting_for_a_closed_port_says_so_in_the_end():
    for error in await failures(WAITS, "127.0.0.1:1"):
        assert isinstance(error, Unavailable)
        assert str(error).startswith("no server was ready at 127.0.0.1:1 within 1 s (")
        assert "Connection refused" in str(error)
