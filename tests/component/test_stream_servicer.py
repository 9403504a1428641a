"""TranslateStream's service: which model a text gets, how a stream ends, and that its place comes back."""

import asyncio
from dataclasses import replace
from itertools import count
from typing import Any

import grpc
import grpc.aio
import pytest

from protos import translation_pb2 as pb
from service.errors import Unavailable
from tests.fakes.calls import eventually, failure
from tests.fakes.stream_service import INFO, SHORT_LIMITS, calls, harness, limits, send
from tests.fakes.streams import answers_of

__all__ = ["calls", "harness", "limits"]

AS_IT_IS = pb.TranslateOptions(segmentation=pb.SEGMENTATION_NONE)  # a long text then takes the server milliseconds


async def test_each_text_goes_to_the_version_that_serves_when_it_starts(harness, calls):
    harness.model.gates["slow"] = asyncio.Event()
    call = calls.translate_stream()
    answers = answers_of(call)
    await send(call, "slow")
    await harness.model.begun.get()

    harness.model.info = replace(INFO, version="2")
    await call.write(pb.TranslateStreamRequest(texts=[pb.StreamText(id=7, text="later")]))
    later = await anext(answers)
    harness.model.gates["slow"].set()
    slow = await anext(answers)

    assert [(answer.id, answer.model_version) for answer in (later, slow)] == [(7, "2"), (0, "1")]
    call.cancel()


async def test_text_that_fails_is_counted_by_its_status_and_the_stream_goes_on(harness, calls):
    harness.model.errors = {"bad": [Unavailable("lost")] * 4}
    call = calls.translate_stream()
    await send(call, "good", "bad", "bad", "x" * 200_001)
    await call.done_writing()
    statuses = {answer.id: answer.translation.status async for answer in answers_of(call)}

    assert {number: status.code for number, status in statuses.items()} == {0: 0, 1: 14, 2: 14, 3: 3}
    assert statuses[3].message.startswith("the text has 200001 characters")
    assert harness.failed() == {"UNAVAILABLE": 2, "INVALID_ARGUMENT": 1}
    assert await call.code() is grpc.StatusCode.OK
    await eventually(lambda: bool(harness.ended))
    assert (harness.ended[0].phase, harness.ended[0].texts, harness.ended[0].finished_texts) == ("stream", 4, 4)


async def test_message_with_more_texts_than_a_request_may_have_is_refused(harness, calls):
    fits, fails = calls.translate_stream(), calls.translate_stream()
    await send(fits, *["x"] * 70)
    assert (await anext(answers_of(fits))).translation.status.code == 0
    await send(fails, *["x"] * 71)

    error = await failure(anext(answers_of(fails)))

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "texts has 71 entries, at most 70 are accepted in a message"
    fits.cancel()


@pytest.mark.parametrize("limits", [SHORT_LIMITS])
async def test_stream_that_lasts_too_long_ends(harness, calls):
    error = await failure(anext(answers_of(calls.translate_stream())))

    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert error.details() == "the call took longer than 0.5 s, the most this server allows"
    await eventually(lambda: harness.admission.streams == 0)


@pytest.mark.parametrize("limits", [replace(SHORT_LIMITS, max_stream_seconds=2.0)])
async def test_place_of_a_stream_whose_client_does_not_read_comes_back_at_the_limit(harness, calls):
    """Its answers are far more than gRPC takes from the server's hands unread."""
    call = calls.translate_stream()
    await call.write(pb.TranslateStreamRequest(settings=pb.StreamSettings(options=AS_IT_IS)))
    sending = asyncio.create_task(send_for_ever(call, "x" * 100_000))
    await eventually(lambda: harness.admission.streams == 1)
    await eventually(lambda: harness.admission.streams == 0)

    assert not harness.ended
    assert harness.model.begun.qsize() > 2
    sending.cancel()
    call.cancel()


async def test_stream_that_is_cancelled_while_an_answer_is_on_its_way_gives_its_place_back(harness, calls):
    """gRPC closes the server's generator then, in which nothing is cancelled."""
    harness.model.gates["slow"] = asyncio.Event()
    call = calls.translate_stream()
    await send(call, "slow")
    sending = asyncio.create_task(send_for_ever(call, "x" * 100_000))
    texts = -1
    while texts != harness.model.begun.qsize():  # until the server is held, too
        texts = harness.model.begun.qsize()
        await asyncio.wait([sending], timeout=0.3)

    call.cancel()

    await eventually(lambda: harness.admission.streams == 0 and bool(harness.ended))
    assert harness.ended[0].code == "CANCELLED"
    await asyncio.gather(sending, return_exceptions=True)


async def send_for_ever(call: Any, text: str) -> None:
    for number in count(1):
        await call.write(pb.TranslateStreamRequest(texts=[pb.StreamText(id=number, text=text)]))
