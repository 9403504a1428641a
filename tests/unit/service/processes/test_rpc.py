"""Methods that two processes call in each other, joined here without processes."""

import asyncio
import json
from io import StringIO
from typing import Protocol

import pytest

from service.child_process import FRAME_HEADER_BYTES, from_payload, to_frame
from service.errors import Overloaded
from service.processes.rpc import MethodFailed, Peer, PeerLost
from tests.fakes.logs import log

__all__ = ["log"]


class Kitchen(Protocol):
    """What one side asks of the other."""

    async def cook(self, dish: str, portions: int) -> str: ...

    async def wait(self) -> None: ...

    async def burn(self) -> None: ...

    async def refuse(self) -> None: ...

    def ring(self, times: int) -> None: ...


class Cook(Kitchen):
    def __init__(self) -> None:
        self.rung: list[int] = []
        self.waiting = 0

    async def cook(self, dish: str, portions: int) -> str:
        return f"{portions} x {dish}"

    async def wait(self) -> None:
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1

    async def burn(self) -> None:
        raise ValueError("the secret recipe")

    async def refuse(self) -> None:
        raise Overloaded("full", reason="queue_full", retry_after_s=2.0)

    def ring(self, times: int) -> None:
        self.rung.append(1 // times)


def copy_of(record: object) -> object:
    """As it arrives in another process."""
    return from_payload(to_frame(record)[FRAME_HEADER_BYTES:])


class Joined:
    """A guest and a cook; a frame arrives at once."""

    def __init__(self) -> None:
        self.cook = Cook()
        self.guest = Peer(lambda frame: self.kitchen.take(copy_of(frame)))
        self.kitchen = Peer(lambda frame: self.guest.take(copy_of(frame)))
        self.kitchen.serve({Kitchen: self.cook})


@pytest.fixture
async def joined() -> Joined:
    return Joined()


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_method_returns_or_raises_what_it_does_over_there(joined):
    assert await joined.guest.call(Kitchen.cook, "soup", 2) == "2 x soup"
    with pytest.raises(Overloaded, match="full") as refused:
        await joined.guest.call(Kitchen.refuse)
    assert (refused.value.reason, refused.value.retry_after_s) == ("queue_full", 2.0)


async def test_what_nobody_foresaw_is_in_the_log_over_there_without_its_message(joined, log: StringIO):
    with pytest.raises(MethodFailed, match=r"Kitchen\.burn"):
        await joined.guest.call(Kitchen.burn)

    event = json.loads(log.getvalue())
    assert (event["event"], event["asked"], event["error"]) == ("request_failed", "Kitchen.burn", "ValueError")
    assert "secret" not in log.getvalue()


async def test_a_call_that_is_cancelled_here_is_cancelled_there(joined):
    call = asyncio.ensure_future(joined.guest.call(Kitchen.wait))
    await turns()
    assert joined.cook.waiting == 1

    call.cancel()
    await turns()

    assert (joined.cook.waiting, joined.guest._waiting, joined.kitchen._running) == (0, {}, {})


async def test_a_lost_process_fails_who_waits_for_it_and_what_it_waited_for_is_cancelled(joined):
    call = joined.guest.call(Kitchen.wait)
    await turns()

    joined.kitchen.close()
    joined.guest.close()
    await turns()

    assert joined.cook.waiting == 0
    for each in (call, joined.guest.call(Kitchen.wait)):
        with pytest.raises(PeerLost):
            await each
    joined.guest.tell(Kitchen.ring, 1)
    assert joined.cook.rung == []
