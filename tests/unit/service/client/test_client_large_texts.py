"""Texts that are too large for a message, alone or together, cost no other text its translation."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from protos import translation_pb2 as pb
from service.client import AsyncClient, Client
from service.client.channel import ClientConfig
from service.errors import TooLong
from service.records import Translation
from tests.fakes.command_line import run_against
from tests.fakes.scripted_server import ScriptedServer, running, shout, shout_each

__all__ = ["running"]

TOO_LARGE = "x" * 4_500_000  # servers accept messages of 4 MiB by default
METHODS = ["translate_all", "translate_stream"]

Translate = Callable[..., Any]


def in_order(method: str, answers: list[Any]) -> list[Translation]:
    return answers if method == "translate_all" else [translation for _, translation in sorted(answers, key=number_of)]


def number_of(answer: tuple[int, Translation]) -> int:
    return answer[0]


@pytest.fixture(params=["asyncio", "blocking"])
def translate(request, running: ScriptedServer) -> Translate:
    """The translations that a method of either client gives, in the order of the texts."""

    def blocking(method: str, texts: list[str], config: ClientConfig) -> list[Any]:
        with Client(running.address, config) as client:
            return list(getattr(client, method)(texts))

    async def call(method: str, texts: list[str], **settings: Any) -> list[Translation]:
        config = ClientConfig(**settings)
        if request.param == "blocking":
            return in_order(method, await asyncio.wait_for(asyncio.to_thread(blocking, method, texts, config), 30))
        async with AsyncClient(running.address, config) as client, asyncio.timeout(30):
            return in_order(method, [answer async for answer in getattr(client, method)(texts)])

    return call


@pytest.mark.parametrize("method", METHODS)
async def test_text_that_fits_in_no_message_fails_alone(translate, method):
    before, too_large, after = await translate(method, ["one", TOO_LARGE, "two"])

    assert isinstance(too_large.error, TooLong)
    assert str(too_large.error) == "the text has 4500000 bytes in UTF-8, at most 4190208 fit in a message"
    assert (before.text, after.text) == ("ONE", "TWO")


@pytest.mark.parametrize("method", METHODS)
async def test_texts_that_are_too_large_only_together_are_sent_apart(translate, running, method):
    sizes: list[int] = []

    async def stream(requests: AsyncIterator[pb.TranslateStreamRequest], context: Any) -> AsyncIterator[Any]:
        async def measured() -> AsyncIterator[pb.TranslateStreamRequest]:
            async for request in requests:
                sizes.append(request.ByteSize())
                yield request

        async for response in shout_each(measured(), context):
            yield response

    async def call(request: pb.TranslateRequest, context: Any) -> pb.TranslateResponse:
        sizes.append(request.ByteSize())
        return await shout(request, context)

    running.service.handler, running.service.stream_handler = call, stream
    texts = [f"{number}" + "€" * 99_999 for number in range(20)]  # 6 MB

    translations = await translate(method, texts)

    assert [translation.text[:2] for translation in translations] == [text[:2] for text in texts]
    assert max(sizes) < 1 << 20


@pytest.mark.parametrize("method", METHODS)
async def test_most_bytes_of_a_text_are_a_setting(translate, method):
    fits, too_large = await translate(method, ["€€", "€€€"], max_text_bytes=8)

    assert fits.error is None
    assert isinstance(too_large.error, TooLong)


async def test_texts_of_one_call_are_as_many_as_they_may_be(translate, running):
    await translate("translate_all", ["a", "b", TOO_LARGE, "c", "d"], batch_size=2)

    sent = sorted(list(request.texts) for request in running.service.requests)
    assert sent == [["", "c"], ["a", "b"], ["d"]]


async def test_line_that_is_too_large_leaves_an_empty_line_and_exit_code_1(running):
    result = await run_against(running, "translate", stdin=f"one\n{TOO_LARGE}\ntwo\n")

    assert (result.exit_code, result.stdout) == (1, "ONE\n\nTWO\n")
    assert result.stderr == (
        "dragoman: line 2: the text has 4500000 bytes in UTF-8, at most 4190208 fit in a message\n"
    )
