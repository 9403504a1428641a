"""`translate_stream` against a small real server whose streams the test scripts."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

from protos import translation_pb2 as pb
from service.client import AsyncClient, Client
from service.client.channel import ClientConfig
from service.errors import DeadlineExceeded
from service.records import Priority, TranslateOptions
from tests.fakes.scripted_server import ScriptedServer, running, shout_each, shouted

__all__ = ["running"]

QUICK = ClientConfig(max_stream_texts=8)
TEXTS = [f"text {number}" for number in range(100)]


@pytest.fixture(params=["asyncio", "blocking"])
def translate(request, running):
    """Number and text of every answer to these texts, by either client."""

    async def with_asyncio(texts: Any, config: ClientConfig, fields: dict[str, Any]) -> list[tuple[int, str]]:
        async with AsyncClient(running.address, config) as client:
            return [(number, answer.text) async for number, answer in client.translate_stream(texts, **fields)]

    def blocking(texts: Any, config: ClientConfig, fields: dict[str, Any]) -> list[tuple[int, str]]:
        with Client(running.address, config) as client:
            return [(number, answer.text) for number, answer in client.translate_stream(texts, **fields)]

    async def call(texts: Any, config: ClientConfig = QUICK, **fields: Any) -> list[tuple[int, str]]:
        if request.param == "asyncio":
            return await asyncio.wait_for(with_asyncio(texts, config, fields), 60)
        return await asyncio.wait_for(asyncio.to_thread(blocking, texts, config, fields), 60)

    return call


def scripted(running: ScriptedServer, *handlers) -> None:
    """One handler per connection; the last one for all later ones."""
    left = list(handlers)

    async def handle(requests, context):
        handler = left.pop(0) if len(left) > 1 else left[0]
        async for response in handler(requests, context):
            yield response

    running.service.stream_handler = handle


def failing(code: grpc.StatusCode, *, after: int = 0, trailers=()):
    """Answers some messages, and then ends the stream."""

    async def handle(requests, context):
        answered = 0
        async for request in requests:
            if answered == after:
                break
            if request.texts:
                answered += 1
                yield shouted(request.texts[0])
        context.set_trailing_metadata(trailers)
        await context.abort(code, "not now")

    return handle


def assert_each_once(answers: list[tuple[int, str]], texts: list[str] = TEXTS) -> None:
    assert sorted(answers) == [(number, text.upper()) for number, text in enumerate(texts)]


async def test_settings_come_first_and_once(translate, running):
    seen = []

    async def watch(requests, context):
        async def noting() -> AsyncIterator[pb.TranslateStreamRequest]:
            async for request in requests:
                seen.append(request)
                yield request

        async for response in shout_each(noting(), context):
            yield response

    running.service.stream_handler = watch
    options = TranslateOptions(beam_size=2)
    await translate(["one", "two"], options=options, model="loud", target_language="de", priority=Priority.BATCH)

    first, *others = seen
    settings = first.settings
    assert (settings.options.beam_size, settings.model, settings.target_language) == (2, "loud", "de")
    assert settings.priority == pb.PRIORITY_BATCH
    assert not any(request.HasField("settings") for request in others)


async def test_answers_come_while_texts_are_still_being_made(running):
    """A text exists only once the one before it is answered; the third is none."""
    answered = asyncio.Event()

    async def texts() -> AsyncIterator[Any]:
        for text in ("one", "two", None):
            yield text
            await answered.wait()
            answered.clear()

    seen = []

    async def translate() -> None:
        async with AsyncClient(running.address, QUICK) as client:
            async for _, answer in client.translate_stream(texts()):
                seen.append(answer.text)
                answered.set()

    with pytest.raises(TypeError, match=r"texts\[2\] is of type NoneType"):
        await translate()
    assert seen == ["ONE", "TWO"]


async def test_texts_are_read_only_as_answers_are_taken(running):
    taken = []

    async def texts() -> AsyncIterator[str]:
        for text in TEXTS:
            taken.append(text)
            yield text

    async with AsyncClient(running.address, QUICK) as client:
        answers = client.translate_stream(texts())
        await anext(answers)
        for _ in range(10):  # whatever would run on, has had these turns of the event loop and of the server
            await client.models()

    assert len(taken) <= QUICK.max_stream_texts + 1


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.RESOURCE_EXHAUSTED]
)
async def test_interrupted_stream_is_resumed_with_what_has_no_answer(translate, running, code):
    pushback = (("grpc-retry-pushback-ms", "5"),)
    late = failing(grpc.StatusCode.DEADLINE_EXCEEDED, after=2)  # the server's own: the caller set none
    scripted(running, failing(code, after=3, trailers=pushback), failing(code, trailers=pushback), late, shout_each)

    assert_each_once(await translate(TEXTS))
    assert set(running.service.deadlines) == {None}


async def test_deadline_is_that_of_the_whole(translate, running):
    async def silent(requests, _):
        async for _request in requests:
            if not _request:
                yield pb.TranslateStreamResponse()
        await asyncio.Event().wait()

    scripted(running, failing(grpc.StatusCode.UNAVAILABLE, after=1), silent)

    with pytest.raises(DeadlineExceeded):
        await translate(TEXTS, timeout_s=2.0)
    first, second = running.service.deadlines
    assert 0.0 < first < 2.1
    assert 0.0 < second < 2.1


@pytest.mark.parametrize("before", [[], ["one"]])
async def test_error_of_the_caller_s_texts_is_the_caller_s(translate, before):
    def texts() -> Iterator[str]:
        yield from before
        raise LookupError("no more files")

    with pytest.raises(LookupError, match="no more files"):
        await translate(texts())


async def test_leaving_the_answers_cancels_the_stream(running):
    left = asyncio.Event()

    async def handle(requests, context):
        try:
            async for response in shout_each(requests, context):
                yield response
        finally:
            left.set()

    running.service.stream_handler = handle

    def call() -> str:
        with Client(running.address, QUICK) as client:
            answers = client.translate_stream(TEXTS)
            try:
                return next(answers)[1].text
            finally:
                answers.close()

    assert (await asyncio.to_thread(call)).startswith("TEXT")
    await asyncio.wait_for(left.wait(), 60)
