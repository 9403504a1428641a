"""What both clients make of texts that are none, or are one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from service.client import AsyncClient, Client
from service.client.channel import ClientConfig
from tests.fakes.scripted_server import ScriptedServer, running

__all__ = ["running"]

METHODS = ["translate", "translate_all", "translate_stream"]


def everything(client: Client, method: str, texts: Any) -> object:
    answers = getattr(client, method)(texts)
    return answers if method == "translate" else list(answers)


async def everything_async(client: AsyncClient, method: str, texts: Any) -> object:
    answers = getattr(client, method)(texts)
    return await answers if method == "translate" else [answer async for answer in answers]


@pytest.fixture(params=["asyncio", "blocking"])
def translate(request, running: ScriptedServer) -> Callable[[str, Any], Any]:
    """All that a method of either client makes of these texts."""

    def blocking(method: str, texts: Any) -> object:
        with Client(running.address, ClientConfig(batch_size=2)) as client:
            return everything(client, method, texts)

    async def call(method: str, texts: Any) -> object:
        if request.param == "blocking":
            return await asyncio.wait_for(asyncio.to_thread(blocking, method, texts), 20)
        async with AsyncClient(running.address, ClientConfig(batch_size=2)) as client:
            return await asyncio.wait_for(everything_async(client, method, texts), 20)

    return call


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("nothing", [None, b"bytes", 7])
async def test_text_that_is_none_is_refused_with_its_number(translate, method, nothing):
    with pytest.raises(TypeError, match=rf"texts\[2\] is of type {type(nothing).__name__}, every text must be a str"):
        await translate(method, ["one", "two", nothing, "four"])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("text", ["The cat", b"The cat"])
async def test_one_text_alone_is_refused_with_what_to_do(translate, running, method, text):
    with pytest.raises(TypeError, match=r"for one text give a list, \[text\]"):
        await translate(method, text)
    assert running.service.requests == []


async def test_texts_before_the_one_that_is_none_are_answered_as_they_are_without_it(running):
    """The third exists only once the others are answered."""
    both_answered = asyncio.Event()

    async def texts() -> AsyncIterator[Any]:
        yield "one"
        yield "two"
        await both_answered.wait()
        yield None

    async with AsyncClient(running.address) as client:
        answers = client.translate_stream(texts())
        seen = [(await anext(answers))[1].text for _ in range(2)]
        both_answered.set()

        with pytest.raises(TypeError, match=r"texts\[2\] is of type NoneType"):
            await anext(answers)
    assert sorted(seen) == ["ONE", "TWO"]
