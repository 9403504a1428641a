"""The use case against models that the test answers by hand."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast

import pytest

from service.call import Call, Caller
from service.config import LimitsConfig
from service.errors import InvalidInput, Overloaded, Unavailable
from service.models.call_scheduler import CallScheduler
from service.records import Priority, TranslateOptions, TranslationRequest, TranslationResult
from service.telemetry.metrics import Metrics
from service.telemetry.usage import UsageMeter
from service.translate import translator as translator_module
from service.translate.translator import WAIT_HOLDS_S, Translator
from tests.fakes.books import sample_of
from tests.fakes.manual_pool import CharacterTokenizer, ManualModel, codec, registry_of
from tests.fakes.model_info import model_info

LIMITS = LimitsConfig(max_queued_tokens=30)
SHOP = Caller(name="shop", source="key")
TWO_HYPOTHESES = TranslateOptions(beam_size=3, num_hypotheses=2)


class Setup:
    """A translator with one model, and what is around it."""

    def __init__(self, executor: ThreadPoolExecutor, limits: LimitsConfig = LIMITS) -> None:
        self.model = ManualModel()
        self.pool = self.model.pool
        self.metrics = Metrics()
        scheduler = CallScheduler(registry_of(self.model).catalogue, limits)
        self.admission = scheduler.admission
        self.translator = Translator(scheduler, UsageMeter(self.metrics), limits, executor)
        self.call = new_call()

    def start(self, *texts: str, priority: Priority | None = None) -> "asyncio.Task[TranslationResult]":
        request = TranslationRequest(texts=texts, options=TWO_HYPOTHESES, priority=priority)
        return asyncio.create_task(self.translate(request))

    async def translate(self, request: TranslationRequest) -> TranslationResult:
        self.call.priority = self.call.caller.allowed(request.priority)
        with self.translator.admit(len(request.texts), self.call) as reservation:
            return await self.translator.translate(request, self.call, reservation)


def new_call(deadline: float | None = None, models: frozenset[str] | None = None) -> Call:
    now = time.monotonic()
    return Call(method="m", caller=SHOP, started=now, deadline=deadline or now + 600.0, models=models)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
async def setup(executor: ThreadPoolExecutor) -> Setup:
    return Setup(executor)


class TestModelAndSearch:
    def translator(self, executor: ThreadPoolExecutor) -> Translator:
        catalogue = registry_of(*(ManualModel(info=model_info(name)) for name in ("first", "second"))).catalogue
        return Translator(CallScheduler(catalogue, LIMITS), UsageMeter(Metrics()), LIMITS, executor)

    def test_option_out_of_range_is_refused_after_the_model_was_noted(self, executor):
        call = new_call()

        with pytest.raises(InvalidInput, match="beam_size is 99"):
            self.translator(executor).resolve(TranslationRequest(options=TranslateOptions(beam_size=99)), call)

        assert call.model == "first"


class TestResult:
    async def test_each_text_becomes_a_job_of_its_call_longest_first_and_its_answer_goes_to_its_place(self, setup):
        task = setup.start("c", "abc", "ab", priority=Priority.BATCH)
        await setup.pool.submitted(3)
        for index, text in enumerate(("drei", "zwei", "eins")):
            setup.pool.answer(index, text)

        result = await task

        assert [job.source_ids for job in setup.pool.jobs] == [(197, 198, 199, 3), (197, 198, 3), (199, 3)]
        assert setup.pool.calls == [setup.call] * 3
        for job in setup.pool.jobs:
            assert (job.params.beam_size, job.params.num_hypotheses) == (3, 2)
        assert setup.call.priority is Priority.BATCH
        assert [translation.text for translation in result.translations] == ["eins", "drei", "zwei"]
        assert [translation.source_tokens for translation in result.translations] == [2, 4, 3]
        assert (result.model, result.model_version, result.beam_size) == ("m", "1", 3)

    async def test_answer_is_counted_for_the_model_and_the_caller(self, setup):
        task = setup.start("ab", "x" * 21, priority=Priority.BATCH)
        await setup.pool.submitted(1)
        setup.pool.answer(0, "eins", queue_s=2.0)
        await task

        read = partial(sample_of, setup.metrics)
        assert read("dragoman_client_texts_total", {"client": "shop"}) == 1.0
        assert read("dragoman_rejected_total", {"reason": "too_long"}) == 1.0
        labels = {"method": "_other", "model": "m", "priority": "batch"}
        assert read("dragoman_queue_duration_seconds_sum", labels) == 2.0


class TestWholeCall:
    async def test_progress_is_noted_in_the_call_on_the_way(self, setup):
        call = setup.call
        task = setup.start("ab", "", "x" * 21, "c")
        await setup.pool.submitted(2)
        before = (call.phase, call.texts, call.finished_texts, call.source_tokens)
        setup.pool.answer(0, "zwei", decode_s=0.25)
        setup.pool.answer(1, "eins")
        await task

        assert before == ("queue", 4, 2, 5)  # the blank one, and the one that is too long
        assert call.decode_s == 0.25
        assert (call.phase, call.finished_texts, call.target_tokens) == ("detokenize", 4, 8)
        assert call.tokenize_s > 0.0

    async def test_lost_job_ends_the_call_at_once_and_cancels_the_others(self, setup):
        task = setup.start("a", "b", "c")
        await setup.pool.submitted(3)
        assert (setup.model.in_use.calls, setup.admission.requests) == (1, 1)
        setup.pool.futures[1].set_exception(Unavailable("engine lost"))

        with pytest.raises(Unavailable, match="engine lost"):
            await task
        assert [future.cancelled() for future in setup.pool.futures] == [True, False, True]
        assert (setup.model.in_use.calls, setup.admission.requests) == (0, 0)


class TestAdmission:
    async def test_tokens_are_admitted_before_anything_is_queued(self, setup):
        setup.admission.admit(1, now=0.0, caller=SHOP).take_tokens(26)

        with pytest.raises(Overloaded):
            await setup.start("ab", "c")  # 3 + 2 tokens
        assert setup.pool.jobs == []

    async def test_characters_are_admitted_before_anything_is_encoded(self, setup):
        cast("Any", setup.model).codec = None
        setup.admission.admit(1, now=0.0, caller=SHOP).take_characters(8 * 30)

        with pytest.raises(Overloaded, match="the request has 3 characters"):
            await setup.start("ab", "c")

    async def test_request_that_would_be_late_is_refused_before_anything_is_queued(self, setup):
        setup.pool.answer_to_forecast = (0.0, 5.0)
        setup.call = new_call(deadline=time.monotonic() + 3.0)

        with pytest.raises(Overloaded) as error:
            await setup.start("ab", "", "c")

        assert error.value.reason == "deadline_unattainable"
        assert setup.pool.forecasts == [(3, 2)]
        assert setup.pool.jobs == []

    async def test_large_request_behind_too_much_work_is_refused_before_it_is_encoded(self, setup, monkeypatch):
        monkeypatch.setattr(translator_module, "INLINE_CHARACTERS", 3)
        cast("Any", setup.model).codec = None
        setup.pool.answer_to_forecast = (31.0, 31.0)

        with pytest.raises(Overloaded) as error:
            await setup.start("abcd")

        assert error.value.reason == "queue_seconds"


class TestRefusalBeforeTheMessage:
    """A caller that was refused because it would be late is refused unread for a moment."""

    async def refused(self, setup: Setup, finish_s: float) -> None:
        """Have a call with 3 s left refused, after which the next text would take `finish_s`."""
        setup.pool.answer_to_forecast = (0.0, 5.0)
        setup.pool.answer_to_typical_forecast = (0.0, finish_s)
        setup.call = new_call(deadline=time.monotonic() + 3.0)
        with pytest.raises(Overloaded):
            await setup.start("ab")

    async def test_who_has_no_more_time_is_refused_and_who_has_more_is_not(self, setup):
        await self.refused(setup, 5.0)
        now = time.monotonic()

        early, late = (setup.translator.refusal(SHOP, now + seconds) for seconds in (3.0, 6.0))

        assert isinstance(early, Overloaded)
        assert (early.reason, late) == ("deadline_unattainable", None)

    async def test_others_are_not_concerned_and_the_moment_passes(self, setup, monkeypatch):
        await self.refused(setup, 5.0)
        now = time.monotonic()
        assert setup.translator.refusal(Caller(name="other", source="key"), now + 3.0) is None

        monkeypatch.setattr("time.monotonic", lambda: now + 2 * WAIT_HOLDS_S)

        assert setup.translator.refusal(SHOP, now + 3.0) is None

    async def test_closed_door_and_full_budgets_refuse_unread(self, setup):
        with setup.admission.admit(1, now=0.0, caller=SHOP) as reservation:
            reservation.take_tokens(100)
            full = setup.translator.refusal(SHOP, time.monotonic() + 3.0)
        setup.admission.close("the server is draining")
        closed = setup.translator.refusal(SHOP, time.monotonic() + 3.0)

        assert isinstance(full, Overloaded)
        assert (full.reason, str(closed)) == ("token_budget", "the server is draining")


class WatchedTokenizer(CharacterTokenizer):
    """Remembers what it was asked but for single characters, and whether in the main thread."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []

    def encode(self, text: str) -> list[int]:
        if len(text) > 1:
            self.asked.append((text, threading.current_thread() is threading.main_thread()))
        return super().encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        if len(ids) > 1:
            self.asked.append(("", threading.current_thread() is threading.main_thread()))
        return super().decode(ids)


async def test_large_requests_are_encoded_and_decoded_in_a_thread(setup, monkeypatch):
    monkeypatch.setattr(translator_module, "INLINE_CHARACTERS", 4)  # times hypotheses, of which there are two
    tokenizer = WatchedTokenizer()
    setup.model.codec = codec(tokenizer)

    for text in ("ab", "abcd"):
        setup.call = new_call()
        task = setup.start(text)
        await setup.pool.submitted(1)
        setup.pool.answer(0, text)
        await task
        setup.pool.futures.clear()

    assert [is_main for _, is_main in tokenizer.asked] == [True, True, False, False]
