"""TranslateStream on a gRPC server in this process, with models that the test replaces and loses."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from protos import translation_pb2 as pb
from service.api import stream_servicer
from service.api.interceptors import CallInterceptor
from service.api.status import code_of
from service.api.stream_servicer import METHOD, StreamServicer, _pause_s
from service.config import LimitsConfig
from service.engine.job import FinishReason
from service.errors import (
    DeadlineExceeded,
    DragomanError,
    InternalError,
    NotFound,
    OutOfMemory,
    Overloaded,
    PermissionDenied,
    Unavailable,
)
from service.models.catalog import Catalog, LoadedModel
from service.models.translator import Translator
from service.telemetry.calls import EndedCall, current_progress
from service.telemetry.metrics import Metrics
from service.traffic.admission import MIN_RETRY_S, Admission
from service.traffic.usage import UsageBooks
from service.traffic.waiting_lines import WaitingLines
from service.translation import ModelInfo, Timings, TranslatedText, TranslateOptions, Translation
from tests.fakes.calls import Calls, eventually, failure

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
LIMITS = LimitsConfig(max_streams=2, max_texts=70, max_characters=200_000, max_stream_seconds=60.0)
SHORT_LIMITS = replace(LIMITS, max_stream_seconds=0.5)
OUT_OF_MEMORY = "out_of_memory"
TIMINGS = Timings(tokenize_ms=0, queue_ms=0, encode_ms=0, decode_ms=0, detokenize_ms=0, total_ms=0)


class Loud:
    """Upper case as translation; some texts wait, and some meet, once admitted, what the test has scripted for them."""

    queued_work_s = 0.0

    def __init__(self) -> None:
        self.errors: dict[str, list[DragomanError]] = {}  # by text, in the order of its tries
        self.gates: dict[str, asyncio.Event] = {}
        self.begun: asyncio.Queue[str] = asyncio.Queue()

    async def translate(
        self, texts: Sequence[str], params: object, *, on_admitted: Callable[[], None], **_: object
    ) -> tuple[list[Translation], Timings]:
        (text,) = texts
        progress = current_progress()
        progress.phase, progress.read_timings, progress.source_tokens = "decode", lambda: TIMINGS, len(text)
        if not any(
            isinstance(error, Overloaded) and error.reason != OUT_OF_MEMORY for error in self.errors.get(text, ())
        ):
            on_admitted()
        self.begun.put_nowait(text)
        if errors := self.errors.get(text):
            raise errors.pop(0)
        if gate := self.gates.get(text):
            await gate.wait()
        progress.target_tokens += 1
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

    def __init__(self, limits: LimitsConfig = LIMITS) -> None:
        self.catalog, self.metrics, self.lines = OneModel(), Metrics(), WaitingLines()
        self.ended: list[EndedCall] = []
        self.admission = Admission(limits, on_leave=self.lines.departed)
        self.servicer = StreamServicer(
            cast("Catalog", self.catalog), self.admission, self.lines, self.metrics, limits, UsageBooks(self.metrics)
        )
        interceptor = CallInterceptor(
            self.metrics,
            methods=frozenset({METHOD}),
            max_request_seconds=60.0,
            own_limits={METHOD: limits.max_stream_seconds},
            observers=[self.ended.append],
        )
        self.server = grpc.aio.server(interceptors=[interceptor])
        stream_servicer.add_to_server(self.servicer, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    def rejected(self, reason: str) -> int:
        """What the metric says."""
        return int(self.metrics.registry.get_sample_value("dragoman_rejected_total", {"reason": reason}) or 0)

    def failed(self) -> dict[str, int]:
        """Texts of streams that failed, by status, where there are any."""
        families = self.metrics.registry.collect()
        counter = next(family for family in families if family.name == "dragoman_stream_failed_texts")
        return {item.labels["code"]: int(item.value) for item in counter.samples if item.value}


@pytest.fixture
def limits() -> LimitsConfig:
    return LIMITS


@pytest.fixture
async def harness(limits: LimitsConfig) -> AsyncIterator[Harness]:
    harness = Harness(limits)
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
    "error",
    [
        *(NotFound("gone"), DeadlineExceeded("too late"), Unavailable("lost"), InternalError("odd")),
        *(PermissionDenied("not yours"), OutOfMemory("too much", retry_after_s=1.0)),
    ],
)
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


def refusal(reason: str, *, retry_after_s: float) -> Overloaded:
    return Overloaded("no room", reason=reason, retry_after_s=retry_after_s)


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


async def test_message_with_more_texts_than_a_request_may_have_is_refused(harness, calls):
    fits, fails = calls.translate_stream(), calls.translate_stream()
    await send(fits, *["x"] * 70)
    assert (await anext(answers_of(fits))).translation.status.code == 0
    await send(fails, *["x"] * 71)

    error = await failure(anext(answers_of(fails)))

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "texts has 71 entries, at most 70 are accepted in a message"
    fits.cancel()


async def test_progress_of_a_stream_is_the_sum_of_its_texts_and_has_no_phases(harness, calls):
    harness.catalog.loud.gates["slow"] = asyncio.Event()
    harness.catalog.loud.errors = {"bad": [NotFound("gone")]}
    call = calls.translate_stream()
    answers = answers_of(call)
    await send(call, "slow", "xy", "bad")
    assert sorted([(await anext(answers)).id, (await anext(answers)).id]) == [1, 2]
    harness.catalog.loud.gates["slow"].set()
    await anext(answers)
    await call.done_writing()
    await call.code()
    await eventually(lambda: bool(harness.ended))

    progress = harness.ended[0].progress
    assert (progress.phase, progress.timings()) == ("stream", None)
    assert (progress.texts, progress.finished_texts) == (3, 3)
    assert (progress.source_tokens, progress.target_tokens) == (len("slow" + "xy" + "bad"), 2)


@pytest.mark.parametrize("limits", [SHORT_LIMITS])
async def test_stream_that_lasts_too_long_ends(harness, calls):
    error = await failure(anext(answers_of(calls.translate_stream())))

    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert error.details() == "the call took longer than 0.5 s, the most this server allows"
    await eventually(lambda: harness.admission.streams == 0)


@pytest.mark.parametrize("limits", [SHORT_LIMITS])
async def test_place_of_a_stream_whose_client_does_not_read_comes_back_at_the_limit(harness, calls):
    """Its answers are far more than gRPC takes from the server's hands unread."""
    call = calls.translate_stream()
    sending = asyncio.create_task(send_for_ever(call, "x" * 100_000))
    await eventually(lambda: harness.admission.streams == 1)
    await eventually(lambda: harness.admission.streams == 0)

    assert not harness.ended
    assert harness.catalog.loud.begun.qsize() > 2
    sending.cancel()
    call.cancel()


async def send_for_ever(call: Any, text: str) -> None:
    for number in count():
        await call.write(pb.TranslateStreamRequest(texts=[pb.StreamText(id=number, text=text)]))
