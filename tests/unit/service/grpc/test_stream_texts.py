"""Texts of a stream that fail, are refused or are too long: what each is told, and that the stream goes on."""

import asyncio
from importlib.resources import files

import grpc
import grpc.aio
import pytest

from protos import translation_pb2 as pb
from service.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidInput,
    NotFound,
    OutOfMemory,
    Overloaded,
    PermissionDenied,
    Unavailable,
)
from service.grpc.status import code_number, code_of
from service.grpc.stream_servicer import _pause_s
from service.queue.admission import MIN_RETRY_S
from tests.fakes.stream_service import INFO, OUT_OF_MEMORY, calls, harness, limits, send
from tests.fakes.streams import answers_of

__all__ = ["calls", "harness", "limits"]


OF_A_TEXT = [
    *(NotFound("gone"), DeadlineExceeded("too late"), Unavailable("lost"), InternalError("odd")),
    *(PermissionDenied("not yours"), OutOfMemory("too much", retry_after_s=1.0)),
]


def refusal(reason: str, *, retry_after_s: float) -> Overloaded:
    return Overloaded("no room", reason=reason, retry_after_s=retry_after_s)


async def test_text_whose_model_is_gone_says_so_and_the_stream_goes_on(harness, calls):
    call = calls.translate_stream()
    answers = answers_of(call)
    await send(call, "before")
    assert (await anext(answers)).translation.hypotheses[0].text == "BEFORE"

    harness.catalog.info = None
    await send(call, "between")
    between = (await anext(answers)).translation.status
    harness.catalog.info = INFO
    await send(call, "after")

    assert (between.code, between.message) == (5, "there is no model; loaded: ")
    assert (await anext(answers)).translation.hypotheses[0].text == "AFTER"
    call.cancel()


def test_contract_names_every_code_that_a_text_can_have():
    contract = files("protos").joinpath("translation.proto").read_text(encoding="utf-8")
    comment = contract.partition("message Status {")[2].partition("int32 code")[0]
    said = " ".join(comment.replace("//", "").split())

    for error in [*OF_A_TEXT, InvalidInput("too long", field="text")]:
        assert f"{code_number(error)} {code_of(error).name}" in said


@pytest.mark.parametrize("error", OF_A_TEXT)
async def test_text_that_fails_is_counted_by_its_status(harness, calls, error):
    harness.catalog.loud.errors = {"bad": [error] * 9}
    call = calls.translate_stream()
    await send(call, "good", "bad", "bad", "x" * 200_001)
    await call.done_writing()
    answers = [answer.translation.status.code async for answer in answers_of(call)]

    assert len([code for code in answers if code]) == 3
    assert harness.failed() == {code_of(error).name: 2, "INVALID_ARGUMENT": 1}


@pytest.mark.parametrize(
    ("lost", "code"),
    [
        (Unavailable("the engine process was lost (killed); try again"), 14),
        (OutOfMemory("there is too little memory for this batch", retry_after_s=1.0), 8),
    ],
)
async def test_text_whose_engine_is_lost_or_short_of_memory_is_tried_once_more(harness, calls, lost, code):
    harness.catalog.loud.errors = {"once": [lost], "twice": [lost, lost]}
    call = calls.translate_stream()
    await send(call, "once", "twice", "never")
    await call.done_writing()
    answers = {answer.id: answer.translation async for answer in answers_of(call)}

    assert {number: answer.status.code for number, answer in answers.items()} == {0: 0, 1: code, 2: 0}
    assert answers[0].hypotheses[0].text == "ONCE"
    assert answers[1].status.message == str(lost)
    assert await call.code() is grpc.StatusCode.OK


async def test_text_that_an_engine_had_no_memory_for_is_tried_again_though_nothing_leaves(harness, calls):
    harness.catalog.loud.errors = {"big": [refusal(OUT_OF_MEMORY, retry_after_s=0.01)] * 3}
    call = calls.translate_stream()
    await send(call, "big")

    answer = await asyncio.wait_for(anext(answers_of(call)), 10)

    assert answer.translation.hypotheses[0].text == "BIG"
    assert harness.catalog.loud.begun.qsize() == 4
    call.cancel()


def test_server_that_asks_for_no_wait_is_not_asked_without_one():
    assert _pause_s(refusal("queue_full", retry_after_s=0.0)) == MIN_RETRY_S
    assert _pause_s(refusal("queue_full", retry_after_s=2.0)) == 2.0


async def test_text_that_is_refused_holds_up_no_stream_of_another_class(harness, calls):
    harness.catalog.loud.errors = {"batch": [refusal("queue_seconds", retry_after_s=60.0)] * 9}
    batch, interactive = calls.translate_stream(), calls.translate_stream()
    await batch.write(pb.TranslateStreamRequest(settings=pb.StreamSettings(priority=pb.PRIORITY_BATCH)))
    await send(batch, "batch")
    await harness.catalog.loud.begun.get()

    await send(interactive, "soon")

    answer = await asyncio.wait_for(anext(answers_of(interactive)), 10)
    assert answer.translation.hypotheses[0].text == "SOON"
    for call in (batch, interactive):
        call.cancel()


@pytest.mark.parametrize(
    "error", [refusal("deadline_unattainable", retry_after_s=60.0), DeadlineExceeded("too little time was left")]
)
async def test_text_that_would_be_too_late_says_so_and_the_stream_goes_on(harness, calls, error):
    harness.catalog.loud.errors = {"long": [error] * 9}
    call = calls.translate_stream()
    await send(call, "long", "short")
    await call.done_writing()

    answers = {answer.id: answer.translation.status.code async for answer in answers_of(call)}

    assert answers == {0: grpc.StatusCode.DEADLINE_EXCEEDED.value[0], 1: 0}
    assert harness.rejected("deadline_unattainable") == isinstance(error, Overloaded)


async def test_text_that_is_too_long_is_counted(harness, calls):
    call = calls.translate_stream()
    await send(call, "x" * 200_001)
    assert (await anext(answers_of(call))).translation.status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]

    assert harness.rejected("too_long") == 1
    call.cancel()
