"""Both clients against a small real server whose answers the test scripts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from protos import translation_pb2 as pb
from service.client import AsyncClient, Client
from service.client.channel import ClientConfig
from service.engine.wire import FinishReason
from service.errors import (
    DeadlineExceeded,
    DragomanError,
    FailedPrecondition,
    InternalError,
    InvalidInput,
    NotFound,
    Overloaded,
    PermissionDenied,
    TooLong,
    Unauthenticated,
    Unavailable,
)
from service.records import TranslateOptions, Translation
from tests.fakes.scripted_server import (
    Context,
    ScriptedServer,
    client,
    failing,
    failing_first,
    running,
    shout,
    shout_each,
)

__all__ = ["client", "running"]


def packed(*details: Message) -> bytes:
    """The trailer `grpc-status-details-bin` with these details."""
    status = status_pb2.Status(code=8, message="no")
    for detail in details:
        item = any_pb2.Any()
        item.Pack(detail)
        status.details.append(item)
    return bytes(status.SerializeToString())


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidInput),
        (grpc.StatusCode.NOT_FOUND, NotFound),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Overloaded),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceeded),
        (grpc.StatusCode.UNAVAILABLE, Unavailable),
        (grpc.StatusCode.CANCELLED, Unavailable),
        (grpc.StatusCode.INTERNAL, InternalError),
        (grpc.StatusCode.UNAUTHENTICATED, Unauthenticated),
        (grpc.StatusCode.PERMISSION_DENIED, PermissionDenied),
        (grpc.StatusCode.FAILED_PRECONDITION, FailedPrecondition),
    ],
)
async def test_each_status_is_raised_as_its_error(client, running, code, kind):
    running.service.handler = failing(code, "given 7, at most 5")

    with pytest.raises(DragomanError, match="given 7, at most 5") as caught:
        await client.translate(["one"])
    assert type(caught.value) is kind
    assert isinstance(caught.value.__cause__, grpc.RpcError)


async def test_error_details_become_field_reason_and_wait(client, running):
    info = error_details_pb2.ErrorInfo(reason="queue_full", metadata={"field": "texts[3]"})
    retry = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=1, nanos=500_000_000))
    stop = ("grpc-retry-pushback-ms", "-1")
    trailers = (("grpc-status-details-bin", packed(retry, info)), stop)

    running.service.handler = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, trailers=trailers)
    with pytest.raises(Overloaded) as overloaded:
        await client.translate(["one"])
    running.service.handler = failing(grpc.StatusCode.INVALID_ARGUMENT, trailers=trailers)
    with pytest.raises(InvalidInput) as invalid:
        await client.translate(["one"])

    assert (overloaded.value.reason, overloaded.value.retry_after_s) == ("queue_full", 1.5)
    assert invalid.value.field == "texts[3]"


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED]
)
async def test_passing_trouble_is_retried_unseen(client, running, code):
    running.service.handler = failing_first(2, code, (("grpc-retry-pushback-ms", "5"),))

    reply = await client.translate(["one"])

    assert reply.translations[0].text == "ONE"
    assert len(running.service.requests) == 3


async def test_pushback_of_minus_one_ends_the_retries(client, running):
    running.service.handler = failing(grpc.StatusCode.UNAVAILABLE, trailers=(("grpc-retry-pushback-ms", "-1"),))

    with pytest.raises(Unavailable):
        await client.translate(["one"])
    assert len(running.service.requests) == 1


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


TOO_LARGE = "x" * 4_500_000  # servers accept messages of 4 MiB by default


async def test_reply_carries_texts_scores_tokens_and_model(client):
    reply = await client.translate(["one", "two"])

    assert [translation.text for translation in reply.translations] == ["ONE", "TWO"]
    assert reply.translations[0].source_tokens == 4
    assert reply.translations[0].hypotheses[0].score == -0.5
    assert reply.translations[0].hypotheses[0].finish_reason is FinishReason.LENGTH
    assert reply.translations[0].hypotheses[0].target_tokens == 3
    assert (reply.model, reply.model_version) == ("loud", "7")


async def test_every_call_has_a_deadline(client, running):
    await client.translate(["one"])
    await client.translate(["one"], timeout_s=100.0)

    default, own = running.service.deadlines
    assert 0.0 < default < 11.0
    assert 11.0 < own < 101.0


async def test_cancelling_the_task_cancels_the_call(client, running):
    arrived, left = asyncio.Event(), asyncio.Event()

    async def patient(_: object, __: object) -> pb.TranslateResponse:
        arrived.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        raise AssertionError

    running.service.handler = patient
    task = asyncio.create_task(client.translate(["one"]))
    await arrived.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(left.wait(), 60)


@pytest.mark.promise("C3")
@pytest.mark.parametrize(
    ("texts", "options", "field"),
    [(["good", "bad \ud800"], None, "texts[1]"), (["one"], TranslateOptions(beam_size=-1), "options")],
)
async def test_what_the_wire_cannot_carry_is_refused_before_the_call(client, running, texts, options, field):
    with pytest.raises(InvalidInput) as caught:
        await client.translate(texts, options=options)
    assert caught.value.field == field
    assert running.service.requests == []


async def test_a_long_list_keeps_its_order_in_bounded_calls(running):
    three_are_there = asyncio.Event()

    async def later_first(request: pb.TranslateRequest, context: object) -> pb.TranslateResponse:
        if len(running.service.requests) == 3:
            three_are_there.set()
        await three_are_there.wait()
        for _ in range(50 - len(running.service.requests)):  # the first calls take the most turns of the loop
            await asyncio.sleep(0)
        return await shout(request, context)

    running.service.handler = later_first
    texts = [f"text {number}" for number in range(47)]
    async with AsyncClient(running.address, ClientConfig(batch_size=5, max_calls=3)) as client:
        translations = [translation.text async for translation in client.translate_all(texts)]

    assert translations == [text.upper() for text in texts]
    assert [len(request.texts) for request in running.service.requests] == [5] * 9 + [2]
    assert running.service.most_live == 3


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_a_failed_batch_is_raised_and_the_others_are_cancelled(running, is_blocking):
    third_is_there, released = asyncio.Event(), asyncio.Event()

    async def second_fails(request: pb.TranslateRequest, context: Context) -> pb.TranslateResponse:
        if request.texts[0] == "b":
            await third_is_there.wait()
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such pair")
        if request.texts[0] == "c":
            third_is_there.set()
            try:
                await asyncio.Event().wait()
            finally:
                released.set()
        return await shout(request, context)

    running.service.handler = second_fails
    config = ClientConfig(batch_size=1, max_calls=3)

    def blocking() -> None:
        with Client(running.address, config) as client:
            list(client.translate_all(["a", "b", "c"]))

    async def in_a_task() -> None:
        async with AsyncClient(running.address, config) as client:
            _ = [translation async for translation in client.translate_all(["a", "b", "c"])]

    with pytest.raises(NotFound, match="no such pair"):
        await (asyncio.to_thread(blocking) if is_blocking else in_a_task())
    await asyncio.wait_for(released.wait(), 60)


async def test_blocking_client_does_the_same(running):
    def call() -> tuple[list[str], list[str], str]:
        with Client(running.address, ClientConfig(batch_size=2, max_calls=2)) as client:
            client.wait_until_ready(5.0)
            reply = client.translate(text for text in ("one", "two"))
            many = [translation.text for translation in client.translate_all(f"t{n}" for n in range(9))]
            return [translation.text for translation in reply.translations], many, client.models()[0].name

    one_call, many, model = await asyncio.to_thread(call)

    assert one_call == ["ONE", "TWO"]
    assert many == [f"T{n}" for n in range(9)]
    assert model == "loud"
    assert running.service.most_live <= 2


@pytest.mark.parametrize("method", ["translate_all", "translate_stream"])
async def test_texts_that_are_too_large_alone_or_together_cost_no_other_text_its_translation(running, method):
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
    async with AsyncClient(running.address) as client:
        answers = [answer async for answer in getattr(client, method)([*texts[:10], TOO_LARGE, *texts[10:]])]

    if method == "translate_stream":
        answers = [answers_of(answers)[number] for number in range(21)]
    assert isinstance(answers.pop(10).error, TooLong)
    assert [answer.text[:2] for answer in answers] == [text[:2] for text in texts]
    assert max(sizes) < 1 << 20


def answers_of(answers: list[tuple[int, Translation]]) -> dict[int, Translation]:
    return dict(answers)
