"""The client against a small real server whose answers the test scripts."""

import asyncio
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2

from protos import translation_pb2 as pb
from service.client import AsyncClient, Client
from service.client.channel import ClientConfig
from service.client.retry import RetryPolicy
from service.engine.job import FinishReason
from service.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidInput,
    NotFound,
    Unavailable,
)
from service.records import TranslateOptions
from tests.fakes.connected_client import QUICK, client
from tests.fakes.scripted_server import Context, failing, running, shout

__all__ = ["client", "running"]


async def test_reply_carries_texts_scores_tokens_and_model(client):
    reply = await client.translate(["one", "two"])

    assert [translation.text for translation in reply.translations] == ["ONE", "TWO"]
    assert reply.translations[0].source_tokens == 4
    assert reply.translations[0].hypotheses[0].score == -0.5
    assert reply.translations[0].hypotheses[0].finish_reason is FinishReason.LENGTH
    assert reply.translations[0].hypotheses[0].target_tokens == 3
    assert (reply.model, reply.model_version) == ("loud", "7")


async def test_absent_options_stay_absent_on_the_wire(client, running):
    await client.translate(["one"])
    await client.translate(
        ["one"], options=TranslateOptions(beam_size=2, patience=0.5), model="loud", target_language="de"
    )

    bare, full = running.service.requests
    assert not bare.HasField("options")
    assert not bare.HasField("model")
    assert full.options.beam_size == 2
    assert full.options.patience == 0.5
    assert not full.options.HasField("length_penalty")
    assert (full.model, full.target_language) == ("loud", "de")


async def test_every_call_has_a_deadline(client, running):
    await client.translate(["one"])
    await client.translate(["one"], timeout_s=3.0)

    default, own = running.service.deadlines
    assert 5.0 < default < 11.0
    assert 0.0 < own < 4.0


async def test_one_failed_text_keeps_its_own_error(client, running):
    async def half(_: object, __: object) -> pb.TranslateResponse:
        bad = pb.Translation(status=pb.Status(code=3, message="text has 9 tokens, at most 8 are accepted"))
        return pb.TranslateResponse(translations=[bad, pb.Translation(hypotheses=[pb.Hypothesis(text="gut")])])

    running.service.handler = half
    bad, good = (await client.translate(["bad", "good"])).translations

    assert isinstance(bad.error, InvalidInput)
    with pytest.raises(InvalidInput, match="at most 8"):
        _ = bad.text
    assert good.text == "gut"


@pytest.mark.parametrize("num_answers", [0, 1, 3])
async def test_answer_with_another_number_of_translations_is_refused(client, running, num_answers):
    async def miscounting(_: object, __: object) -> pb.TranslateResponse:
        return pb.TranslateResponse(translations=[pb.Translation(hypotheses=[pb.Hypothesis(text="gut")])] * num_answers)

    def translate_all() -> None:
        with Client(running.address, QUICK) as blocking:
            list(blocking.translate_all(["one", "two"]))

    def translate() -> None:
        with Client(running.address, QUICK) as blocking:
            blocking.translate(["one", "two"])

    running.service.handler = miscounting
    message = f"the answer has {num_answers} translations for 2 texts"

    with pytest.raises(InternalError, match=message):
        await client.translate(["one", "two"])
    with pytest.raises(InternalError, match=message):
        _ = [translation async for translation in client.translate_all(["one", "two"])]
    for call in (translate, translate_all):
        with pytest.raises(InternalError, match=message):
            await asyncio.to_thread(call)


async def test_a_slow_server_meets_the_deadline(client, running):
    async def sleepy(_: object, __: object) -> pb.TranslateResponse:
        await asyncio.Event().wait()
        raise AssertionError

    running.service.handler = sleepy

    with pytest.raises(DeadlineExceeded):
        await client.translate(["one"], timeout_s=0.05)


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
    await asyncio.wait_for(left.wait(), 5.0)


@pytest.mark.promise("C3")
async def test_text_that_utf8_cannot_carry_is_refused_before_the_call(client, running):
    with pytest.raises(InvalidInput, match=r"texts\[1\]") as caught:
        await client.translate(["good", "bad \ud800"])
    assert caught.value.field == "texts[1]"
    assert running.service.requests == []


async def test_option_that_the_wire_cannot_carry_is_refused_before_the_call(client, running):
    with pytest.raises(InvalidInput, match="-1"):
        await client.translate(["one"], options=TranslateOptions(beam_size=-1))
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


async def test_a_failed_batch_is_raised_and_the_others_are_cancelled(running):
    released = asyncio.Event()

    async def second_fails(request: pb.TranslateRequest, context: Context) -> pb.TranslateResponse:
        if request.texts[0] == "b":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such pair")
        if request.texts[0] == "c":
            try:
                await asyncio.Event().wait()
            finally:
                released.set()
        return await shout(request, context)

    running.service.handler = second_fails
    async with AsyncClient(running.address, ClientConfig(batch_size=1, max_calls=3)) as client:
        translations = client.translate_all(["a", "b", "c"])
        seen = (await anext(translations)).text
        with pytest.raises(NotFound, match="no such pair"):
            await anext(translations)

    assert seen == "A"
    await asyncio.wait_for(released.wait(), 5.0)


async def test_models_are_listed_with_the_defaults_that_are_set(client):
    (model,) = await client.models()

    assert (model.name, model.target_language) == ("loud", "de")
    assert model.default_options == TranslateOptions(beam_size=4, length_penalty=1.0)


async def test_wait_until_ready_returns_when_the_health_turns(client, running):
    await running.health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    waiting = asyncio.create_task(client.wait_until_ready(10.0))
    await client.models()  # one round trip later it still waits
    assert not waiting.done()

    await running.health.set("", health_pb2.HealthCheckResponse.SERVING)
    await waiting


async def test_wait_until_ready_names_the_address_that_did_not_answer():
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 within 0.1 s"):
            await client.wait_until_ready(0.1)


async def test_without_waiting_a_missing_server_is_an_error_at_once():
    config = ClientConfig(wait_for_ready=False, retry=RetryPolicy(max_attempts=1))
    async with AsyncClient("127.0.0.1:1", config) as client:
        with pytest.raises(Unavailable):
            await client.translate(["one"])


async def test_blocking_client_does_the_same(running):
    def call() -> tuple[list[str], list[str], str]:
        with Client(running.address, ClientConfig(batch_size=2, max_calls=2)) as client:
            client.wait_until_ready(5.0)
            reply = client.translate(["one", "two"])
            many = [translation.text for translation in client.translate_all(f"t{n}" for n in range(9))]
            return [translation.text for translation in reply.translations], many, client.models()[0].name

    one_call, many, model = await asyncio.to_thread(call)

    assert one_call == ["ONE", "TWO"]
    assert many == [f"T{n}" for n in range(9)]
    assert model == "loud"
    assert running.service.most_live <= 2


async def test_blocking_client_raises_the_same_errors(running):
    running.service.handler = failing(grpc.StatusCode.NOT_FOUND, "no model for en-xx")

    def call() -> None:
        with Client(running.address, QUICK) as client:
            client.translate(["one"])

    with pytest.raises(NotFound, match="en-xx"):
        await asyncio.to_thread(call)


async def test_blocking_client_reads_its_texts_only_as_answers_are_taken(running):
    taken = []

    def texts() -> Iterator[str]:
        for number in range(100):
            taken.append(number)
            yield str(number)

    def first() -> str:
        with Client(running.address, ClientConfig(batch_size=2, max_calls=3)) as client:
            return next(client.translate_all(texts())).text

    assert await asyncio.to_thread(first) == "0"
    assert len(taken) == 6


def test_wrong_client_settings_are_refused():
    with pytest.raises(ValueError, match="batch_size is 0"):
        ClientConfig(batch_size=0)
