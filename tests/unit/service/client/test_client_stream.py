"""`translate_stream` against a small real server whose streams the test scripts."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

from protos import translation_pb2 as pb
from service.client import AsyncClient, Client
from service.client.channel import ClientConfig
from service.client.retry import RetryPolicy
from service.errors import DeadlineExceeded, InvalidInput, NotFound, Unavailable
from service.queue.callers import Priority
from service.records import TranslateOptions
from tests.fakes.calls import eventually
from tests.fakes.scripted_server import ScriptedServer, running, shout_each, shouted

__all__ = ["running"]

QUICK = ClientConfig(max_stream_texts=8, retry=RetryPolicy(initial_backoff_s=0.001, max_backoff_s=0.01))
TEXTS = [f"text {number}" for number in range(100)]
UNAVAILABLE = pb.Translation(status=pb.Status(code=14, message="the engine process was lost"))


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
            return await asyncio.wait_for(with_asyncio(texts, config, fields), 20)
        return await asyncio.wait_for(asyncio.to_thread(blocking, texts, config, fields), 20)

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


async def test_every_text_is_answered_once_under_its_number(translate):
    assert_each_once(await translate(TEXTS))


async def test_no_texts_give_no_answers(translate):
    assert await translate([]) == []


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
    """The second text exists only once the first is answered."""
    first_answered = asyncio.Event()

    async def texts() -> AsyncIterator[str]:
        yield "one"
        await first_answered.wait()
        yield "two"

    seen = []
    async with AsyncClient(running.address, QUICK) as client:
        async for _, answer in client.translate_stream(texts()):
            seen.append(answer.text)
            first_answered.set()

    assert seen == ["ONE", "TWO"]


async def test_blocking_answers_come_while_texts_are_still_being_made(running):
    def call() -> list[str]:
        first_answered = threading.Event()

        def texts() -> Iterator[str]:
            yield "one"
            assert first_answered.wait(10)
            yield "two"

        seen = []
        with Client(running.address, QUICK) as client:
            for _, answer in client.translate_stream(texts()):
                seen.append(answer.text)
                first_answered.set()
        return seen

    assert await asyncio.to_thread(call) == ["ONE", "TWO"]


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


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED])
async def test_interrupted_stream_is_resumed_with_what_has_no_answer(translate, running, code):
    scripted(running, failing(code, after=3), failing(code), failing(code, after=1), shout_each)

    assert_each_once(await translate(TEXTS))


async def test_full_server_is_asked_again_when_it_says(translate, running):
    pushback = (("grpc-retry-pushback-ms", "5"),)
    scripted(running, failing(grpc.StatusCode.RESOURCE_EXHAUSTED, trailers=pushback), shout_each)

    assert_each_once(await translate(TEXTS))


async def test_text_whose_engine_was_lost_is_sent_again(translate, running):
    refusals: Counter[int] = Counter()

    async def handle(requests, _):
        async for request in requests:
            for text in request.texts:
                refusals[text.id] += 1
                if refusals[text.id] <= text.id % 3:
                    lost = pb.StreamTranslation(id=text.id, translation=UNAVAILABLE)
                    yield pb.TranslateStreamResponse(translations=[lost])
                else:
                    yield shouted(text)

    running.service.stream_handler = handle

    assert_each_once(await translate(TEXTS))


async def test_text_whose_engine_stays_lost_carries_the_error_in_the_end(running):
    async def handle(requests, _):
        async for request in requests:
            for text in request.texts:
                yield pb.TranslateStreamResponse(
                    translations=[pb.StreamTranslation(id=text.id, translation=UNAVAILABLE)]
                )

    running.service.stream_handler = handle
    config = ClientConfig(timeout_s=0.05, retry=QUICK.retry)
    async with AsyncClient(running.address, config) as client:
        answers = [answer async for _, answer in client.translate_stream(["one", "two"])]

    assert [type(answer.error) for answer in answers] == [Unavailable, Unavailable]


async def test_the_caller_s_mistake_ends_the_stream(translate, running):
    scripted(running, failing(grpc.StatusCode.NOT_FOUND))

    with pytest.raises(NotFound, match="not now"):
        await translate(TEXTS)


async def test_server_that_stays_away_is_given_up(translate, running):
    scripted(running, failing(grpc.StatusCode.UNAVAILABLE))

    with pytest.raises(Unavailable):
        await translate(TEXTS, ClientConfig(timeout_s=0.05, retry=QUICK.retry))


async def test_missing_server_is_given_up():
    config = ClientConfig(timeout_s=0.05, retry=QUICK.retry)
    async with AsyncClient("127.0.0.1:1", config) as client:
        with pytest.raises(Unavailable):
            await anext(client.translate_stream(["one"]))


async def test_deadline_is_that_of_the_whole(translate, running):
    async def silent(requests, _):
        async for _request in requests:
            if not _request:
                yield pb.TranslateStreamResponse()
        await asyncio.Event().wait()

    scripted(running, failing(grpc.StatusCode.UNAVAILABLE, after=1), silent)

    with pytest.raises(DeadlineExceeded):
        await translate(TEXTS, timeout_s=1.5)
    first, second = running.service.deadlines
    assert 0.0 < first < 1.6
    assert 0.0 < second < 1.6


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline passed before everything was answered"),
        (grpc.StatusCode.UNAVAILABLE, "the deadline passed before everything was answered: not now"),
    ],
)
async def test_deadline_names_what_was_in_the_way(translate, running, code, message):
    scripted(running, failing(code, after=1))
    slow = ClientConfig(retry=RetryPolicy(initial_backoff_s=60.0, max_backoff_s=60.0))  # longer than there is time

    with pytest.raises(DeadlineExceeded) as caught:
        await translate(TEXTS, slow, timeout_s=15)
    assert str(caught.value) == message


async def test_without_a_deadline_the_server_s_own_does_not_end_the_texts(translate, running):
    scripted(running, failing(grpc.StatusCode.DEADLINE_EXCEEDED, after=2), shout_each)

    assert_each_once(await translate(TEXTS))
    assert running.service.deadlines == [None, None]


async def test_error_of_the_caller_s_texts_is_the_caller_s(translate):
    def texts() -> Iterator[str]:
        yield "one"
        raise LookupError("no more files")

    with pytest.raises(LookupError, match="no more files"):
        await translate(texts())


async def test_error_before_the_first_text_is_the_caller_s(translate):
    def texts() -> Iterator[str]:
        yield from ()
        raise LookupError("no files")

    with pytest.raises(LookupError, match="no files"):
        await translate(texts())


async def test_text_that_utf8_cannot_carry_is_refused(translate):
    with pytest.raises(InvalidInput, match=r"texts\[1\]"):
        await translate(["good", "bad \ud800"])


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
    await asyncio.wait_for(left.wait(), 5)


async def test_closed_client_ends_its_streams(running):
    async with AsyncClient(running.address, QUICK) as client:
        answers = client.translate_stream(TEXTS)
        await anext(answers)
    with pytest.raises(Unavailable, match="the client was closed"):
        async for _ in answers:
            pass


async def test_nothing_is_left_behind(translate):
    await translate(TEXTS)

    await eventually(lambda: all(thread.name != "stream-texts" for thread in threading.enumerate()))
    assert [task for task in asyncio.all_tasks() if "stream_call" in str(task.get_coro())] == []
