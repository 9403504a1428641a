"""Texts of a stream that fail, are refused or lose their engine: what becomes of each."""

import asyncio
import gc
import time
import weakref

import pytest

from service.call import Call
from service.errors import (
    DeadlineExceeded,
    DragomanError,
    InternalError,
    NotFound,
    OutOfMemory,
    Overloaded,
    PermissionDenied,
    TooLong,
    Unavailable,
)
from service.records import Priority, TranslationRequest, TranslationResult
from service.scheduler.admission import MIN_RETRY_S
from service.telemetry.metrics import Metrics
from service.translate.stream import StreamTranslator
from tests.fakes.books import sample_of
from tests.fakes.stream_service import LIMITS, OUT_OF_MEMORY, OneModel, router_to


def refusal(reason: str, *, retry_after_s: float) -> Overloaded:
    return Overloaded("no room", reason=reason, retry_after_s=retry_after_s)


class Setup:
    """One model, and a stream to it."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.model = OneModel()
        self.scheduler, self.router = router_to(self.model, self.metrics)
        self.call, self.texts = self.stream()

    def stream(self, *, timeout_s: float = 60.0, priority: Priority | None = None) -> tuple[Call, StreamTranslator]:
        now = time.monotonic()
        call = Call(method="m", started=now, deadline=now + timeout_s, phase="stream")
        texts = StreamTranslator(self.router, call, self.scheduler.admission.admit_stream())
        texts.use(TranslationRequest(priority=priority))
        return call, texts

    def rejected(self, reason: str) -> int:
        """What the metric says."""
        return int(sample_of(self.metrics, "dragoman_rejected_total", {"reason": reason}) or 0)


@pytest.fixture
async def setup() -> Setup:
    return Setup()


def error_of(result: TranslationResult) -> DragomanError | None:
    return result.translations[0].error


async def test_text_whose_model_is_gone_says_so_and_the_next_one_is_translated(setup):
    info, setup.model.info = setup.model.info, None
    gone = await setup.texts.translate("a")
    setup.model.info = info

    assert isinstance(error_of(gone), NotFound)
    assert (gone.model, gone.model_version) == ("loud", "")  # the last one that was there
    assert (await setup.texts.translate("b")).translations[0].text == "B"


@pytest.mark.parametrize(
    "error",
    [DeadlineExceeded("too late"), InternalError("odd"), PermissionDenied("not yours")],
)
async def test_text_that_fails_carries_its_error_and_is_not_tried_again(setup, error):
    setup.model.errors = {"bad": [error, error]}

    assert error_of(await setup.texts.translate("bad")) is error
    assert setup.model.errors["bad"] == [error]


async def test_text_that_fails_leaves_nothing_for_the_garbage_collector(setup):
    gc.disable()
    try:
        failed = weakref.ref(error_of(await setup.texts.translate("x" * (LIMITS.max_characters + 1))))

        assert failed() is None
    finally:
        gc.enable()


async def test_deadline_of_the_stream_ends_it(setup):
    _, texts = setup.stream(timeout_s=0.01)
    setup.model.errors = {"late": [DeadlineExceeded("while decoding")]}

    with pytest.raises(DeadlineExceeded):
        await texts.translate("late")


@pytest.mark.parametrize("lost", [Unavailable("the engine process was lost"), OutOfMemory("", retry_after_s=1.0)])
async def test_text_whose_engine_is_lost_or_short_of_memory_is_tried_once_more(setup, lost):
    setup.model.errors = {"once": [lost], "twice": [lost, lost]}

    assert (await setup.texts.translate("once")).translations[0].text == "ONCE"
    assert error_of(await setup.texts.translate("twice")) is lost


async def test_text_that_is_refused_is_tried_again_though_nothing_leaves(setup):
    setup.model.errors = {"big": [refusal(OUT_OF_MEMORY, retry_after_s=0.0)] * 3}
    started = time.monotonic()

    result = await asyncio.wait_for(setup.texts.translate("big"), 60)

    assert result.translations[0].text == "BIG"
    assert setup.model.begun.qsize() == 4
    assert time.monotonic() - started >= 3 * MIN_RETRY_S  # it does not only try, although nobody asks for a pause


async def test_text_that_waits_is_tokenised_once_and_holds_nothing(setup):
    setup.model.errors = {"busy": [refusal("queue_seconds", retry_after_s=60.0)] * 9}
    waiting = asyncio.create_task(setup.texts.translate("busy"))
    await setup.model.begun.get()
    setup.model.codec = None  # whoever asks for it again fails
    await asyncio.sleep(0)
    held = setup.scheduler.admission.characters, setup.scheduler.admission.tokens
    setup.model.errors = {}
    setup.scheduler.lines.departed()

    assert (await asyncio.wait_for(waiting, 60)).translations[0].text == "BUSY"
    assert held == (0, 0)


async def test_text_that_is_refused_holds_up_no_stream_of_another_class(setup):
    setup.model.errors = {"batch": [refusal("queue_seconds", retry_after_s=60.0)] * 9}
    _, batch = setup.stream(priority=Priority.BATCH)
    waiting = asyncio.create_task(batch.translate("batch"))
    await setup.model.begun.get()

    result = await asyncio.wait_for(setup.texts.translate("soon"), 60)

    assert result.translations[0].text == "SOON"
    waiting.cancel()


async def test_text_that_would_be_too_late_does_not_wait(setup):
    setup.model.errors = {"long": [refusal("deadline_unattainable", retry_after_s=60.0)]}

    result = await setup.texts.translate("long")

    assert isinstance(error_of(result), DeadlineExceeded)
    assert setup.rejected("deadline_unattainable") == 1


async def test_text_that_is_too_long_never_waits_and_is_counted(setup):
    error = error_of(await setup.texts.translate("x" * (LIMITS.max_characters + 1)))

    assert isinstance(error, TooLong)
    assert error.about("the text").startswith("the text has 200001 characters")
    assert setup.rejected("too_long") == 1
    assert setup.model.begun.empty()
