"""TranslateStream on a gRPC server in this process, with models that the test replaces and loses."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from protos import translation_pb2 as pb
from service.api import stream_servicer
from service.api.interceptors import CallInterceptor
from service.api.stream_servicer import METHOD, StreamServicer
from service.config import LimitsConfig
from service.engine.job import FinishReason
from service.errors import DragomanError, NotFound, OutOfMemory, Unavailable
from service.models.catalog import Catalog, LoadedModel
from service.models.translator import Translator
from service.telemetry.metrics import Metrics
from service.traffic.admission import Admission
from service.traffic.room import Room
from service.translation import ModelInfo, Timings, TranslatedText, TranslateOptions, Translation
from tests.fakes.calls import Calls, failure

INFO = ModelInfo(
    name="loud",
    version="1",
    source_language="en",
    target_language="de",
    precision="fp32",
    device="cpu",
    default_options=TranslateOptions(
        beam_size=4, num_hypotheses=1, length_penalty=1.0, patience=1.0, max_target_tokens=64, use_shortlist=False
    ),
    max_source_tokens=64,
    max_beam_size=16,
)
TIMINGS = Timings(tokenize_ms=0, queue_ms=0, encode_ms=0, decode_ms=0, detokenize_ms=0, total_ms=0)


class Loud:
    """Upper case as translation; some texts wait, and some meet what the test has scripted for them."""

    queued_work_s = 0.0

    def __init__(self) -> None:
        self.errors: dict[str, list[DragomanError]] = {}  # by text, in the order of its tries
        self.gates: dict[str, asyncio.Event] = {}
        self.begun: asyncio.Queue[str] = asyncio.Queue()

    async def translate(self, texts: Sequence[str], params: object, **_: object) -> tuple[list[Translation], Timings]:
        (text,) = texts
        self.begun.put_nowait(text)
        if errors := self.errors.get(text):
            raise errors.pop(0)
        if gate := self.gates.get(text):
            await gate.wait()
        hypothesis = TranslatedText(
            text=text.upper(), score=0.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=1
        )
        return [Translation(hypotheses=(hypothesis,), source_tokens=1)], TIMINGS


class OneModel:
    """A catalog whose only model can be replaced and taken away."""

    def __init__(self) -> None:
        self.loud = Loud()
        self.info: ModelInfo | None = INFO

    def find(self, **_: object) -> LoadedModel:
        if self.info is None:
            raise NotFound("there is no model; loaded: ")
        return LoadedModel(info=self.info, max_target_tokens=64, translator=cast("Translator", self.loud))


class Harness:
    """The service with one method."""

    def __init__(self) -> None:
        self.catalog, self.metrics, self.room = OneModel(), Metrics(), Room()
        limits = LimitsConfig(max_streams=2)
        self.admission = Admission(limits, on_leave=self.room.departed)
        self.servicer = StreamServicer(cast("Catalog", self.catalog), self.admission, self.room, self.metrics, limits)
        interceptor = CallInterceptor(
            self.metrics, methods=frozenset({METHOD}), max_request_seconds=60.0, own_limits={METHOD: 60.0}
        )
        self.server = grpc.aio.server(interceptors=[interceptor])
        stream_servicer.add_to_server(self.servicer, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    harness = Harness()
    await harness.server.start()
    yield harness
    await harness.server.stop(None)


@pytest.fixture
async def calls(harness: Harness) -> AsyncIterator[Calls]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{harness.port}") as channel:
        yield Calls(channel)


async def send(call: Any, *texts: str) -> None:
    """Each text under the id that is its number among these."""
    await call.write(
        pb.TranslateStreamRequest(texts=[pb.StreamText(id=number, text=text) for number, text in enumerate(texts)])
    )


async def answers_of(call: Any) -> AsyncIterator[pb.StreamTranslation]:
    async for response in call:
        for answer in response.translations:
            yield answer


async def test_each_text_goes_to_the_version_that_serves_when_it_starts(harness, calls):
    harness.catalog.loud.gates["slow"] = asyncio.Event()
    call = calls.translate_stream()
    answers = answers_of(call)
    await send(call, "slow")
    await harness.catalog.loud.begun.get()

    harness.catalog.info = replace(INFO, version="2")
    await call.write(pb.TranslateStreamRequest(texts=[pb.StreamText(id=7, text="later")]))
    later = await anext(answers)
    harness.catalog.loud.gates["slow"].set()
    slow = await anext(answers)

    assert [(answer.id, answer.model_version) for answer in (later, slow)] == [(7, "2"), (0, "1")]
    call.cancel()


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


async def test_error_of_the_server_itself_ends_the_stream_without_its_words(harness, calls):
    harness.catalog.loud.errors = {"odd": [cast("DragomanError", RuntimeError("geheim"))]}
    call = calls.translate_stream()
    await send(call, "odd")

    error = await failure(anext(answers_of(call)))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "geheim" not in str(error)


@pytest.mark.parametrize("how", ["done", "cancelled", "failed"])
async def test_place_of_a_stream_comes_back_however_it_ends(harness, calls, how):
    harness.catalog.loud.gates["never"] = asyncio.Event()
    call = calls.translate_stream()
    await send(call, *(["x"] if how == "done" else ["never"]))
    await harness.catalog.loud.begun.get()
    assert (harness.admission.streams, harness.admission.requests) == (1, 1)

    if how == "done":
        await call.done_writing()
        assert [answer.id async for answer in answers_of(call)] == [0]
    elif how == "cancelled":
        call.cancel()
    else:
        await send(call, "never")  # the id again
        await failure(anext(answers_of(call)))

    async with asyncio.timeout(5):
        while harness.admission.requests:  # noqa: ASYNC110  the server's side of a call raises no events here
            await asyncio.sleep(0.01)
    assert (harness.admission.streams, harness.admission.tokens, harness.admission.characters) == (0, 0, 0)


async def test_stream_that_comes_while_the_server_drains_is_refused(harness, calls):
    harness.admission.close("the server is draining")

    error = await failure(anext(answers_of(calls.translate_stream())))
    assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, "the server is draining")


async def test_drained_stream_reads_no_more(harness, calls):
    harness.catalog.loud.gates["slow"] = asyncio.Event()
    call = calls.translate_stream()
    answers = answers_of(call)
    await send(call, "slow")
    await harness.catalog.loud.begun.get()

    harness.servicer.drain()
    await call.write(pb.TranslateStreamRequest(texts=[pb.StreamText(id=7, text="too late")]))
    harness.catalog.loud.gates["slow"].set()

    assert (await anext(answers)).id == 0
    error = await failure(anext(answers))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert harness.catalog.loud.begun.empty()
