"""Whoever waits for an answer when the client is closed is told so; a task that is cancelled stays cancelled."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from protos import translation_pb2 as pb
from service.client import AsyncClient, Client
from service.errors import Unavailable
from tests.fakes.scripted_server import ScriptedServer, running

__all__ = ["running"]

Call = Callable[[AsyncClient], Coroutine[Any, Any, object]]


async def translate(client: AsyncClient) -> object:
    return await client.translate(["one"])


async def translate_all(client: AsyncClient) -> object:
    return [translation async for translation in client.translate_all(["one"])]


async def translate_stream(client: AsyncClient) -> object:
    return [answer async for answer in client.translate_stream(["one"])]


class Silence:
    """A server that takes calls and answers none."""

    def __init__(self, server: ScriptedServer) -> None:
        self.has_call = asyncio.Event()
        server.service.handler = self._call
        server.service.stream_handler = self._stream

    async def _call(self, *_: object) -> pb.TranslateResponse:
        self.has_call.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def _stream(self, *_: object) -> AsyncIterator[pb.TranslateStreamResponse]:
        await self._call()
        yield pb.TranslateStreamResponse()


async def heedless(call: Call, client: AsyncClient) -> object:
    """The call, after the task was cancelled and went on."""
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return await call(client)


@pytest.mark.parametrize("was_cancelled", [False, True])
@pytest.mark.parametrize("call", [translate, translate_all, translate_stream])
async def test_closed_client_is_unavailable_to_a_task_that_nobody_cancels(running, call: Call, was_cancelled: bool):
    silence = Silence(running)
    client = AsyncClient(running.address)
    task = asyncio.create_task(heedless(call, client) if was_cancelled else call(client))
    await asyncio.sleep(0)
    if was_cancelled:
        task.cancel()
    await asyncio.wait_for(silence.has_call.wait(), 60)

    await client.close()

    with pytest.raises(Unavailable, match="the client was closed"):
        await asyncio.wait_for(task, 60)


@pytest.mark.parametrize("is_closed_too", [False, True])
@pytest.mark.parametrize("call", [translate, translate_all, translate_stream])
async def test_task_that_is_cancelled_stays_cancelled(running, call: Call, is_closed_too: bool):
    silence = Silence(running)
    async with AsyncClient(running.address) as client:
        task = asyncio.create_task(call(client))
        await asyncio.wait_for(silence.has_call.wait(), 60)

        task.cancel()
        if is_closed_too:
            await client.close()
        await asyncio.wait([task], timeout=120.0)

        assert task.cancelled()


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.translate(["one"]),
        lambda client: list(client.translate_all(["one"])),
        lambda client: list(client.translate_stream(["one"])),
        lambda client: client.models(),
        lambda client: client.wait_until_ready(1.0),
    ],
)
def test_blocking_client_that_is_closed_is_unavailable(call: Callable[[Client], object]):
    client = Client("127.0.0.1:1")
    client.close()

    with pytest.raises(Unavailable, match="the client was closed"):
        call(client)
