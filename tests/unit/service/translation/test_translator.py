"""Texts to jobs and back, against a dispatcher that the test answers by hand."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from service.config import LimitsConfig
from service.engine.job import FinishReason, Hypothesis, JobResult, SearchParams
from service.errors import DeadlineExceeded, InternalError, InvalidInput, Overloaded, Unavailable
from service.queue.admission import Admission
from service.queue.callers import Caller, Priority
from service.queue.job_queue import Forecast
from service.registry.codec import BLANK_TRANSLATION, SupportsTokens, TextCodec
from service.telemetry.calls import Progress, follow
from service.translation import translator as translator_module
from service.translation.translator import KeptSources, Translator

PARAMS = SearchParams(beam_size=3, num_hypotheses=2)
MAX_SOURCE_TOKENS = 8


class CharacterTokenizer:
    """One token per character (its code point + 100) and 3 for end-of-sentence; "~" cannot be tokenised."""

    def encode(self, text: str) -> list[int]:
        if "~" in text:
            raise RuntimeError("a message that quotes the text")
        text = text.strip()
        return [*(ord(character) + 100 for character in text), 3] if text else []

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(token - 100) for token in ids)


def codec(tokenizer: SupportsTokens) -> TextCodec:
    return TextCodec(tokenizer, max_characters=20, max_source_tokens=MAX_SOURCE_TOKENS)


class ManualDispatcher:
    """Remembers what was submitted; the test resolves the futures."""

    def __init__(self) -> None:
        self.jobs: list[tuple[tuple[int, ...], SearchParams, float | None]] = []
        self.futures: list[asyncio.Future[JobResult]] = []
        self.asked: list[tuple[Caller, Priority]] = []
        self.forecasts: list[tuple[int, ...]] = []
        self.answer_to_forecast = Forecast()
        self.queued_work_s = 0.0

    def forecast(self, sources, params, *, caller, priority):
        self.forecasts.append(tuple(sources))
        return self.answer_to_forecast

    def submit(self, source_ids, params, deadline, *, caller, priority):
        self.jobs.append((tuple(source_ids), params, deadline))
        self.asked.append((caller, priority))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    def answer(self, index: int, *texts: str, **times: float) -> None:
        hypotheses = tuple(
            Hypothesis(
                token_ids=tuple(ord(character) + 100 for character in text),
                score=-0.5,
                finish_reason=FinishReason.END_OF_SENTENCE,
            )
            for text in texts
        )
        self.futures[index].set_result(
            JobResult(
                job_id=0,
                hypotheses=hypotheses,
                **{"queue_s": 0.0, "encode_s": 0.0, "decode_s": 0.0, **times},
                num_steps=1,
            )
        )


class Setup:
    """A translator and everything around it."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.dispatcher = ManualDispatcher()
        self.admission = Admission(LimitsConfig(max_queued_tokens=30))
        self.permit = self.admission.admit(1, now=0.0)
        self.translator = Translator(codec(CharacterTokenizer()), self.dispatcher, executor)

    def start(self, *texts: str, deadline: float | None = None) -> "asyncio.Task[Any]":
        return asyncio.create_task(self.translator.translate(texts, PARAMS, permit=self.permit, deadline=deadline))

    async def submitted(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.dispatcher.futures) < count:  # noqa: ASYNC110  a list raises no events
                await asyncio.sleep(0)


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    with ThreadPoolExecutor(1) as executor:
        yield Setup(executor)


async def test_each_text_becomes_a_job_with_the_call_s_parameters_and_deadline(setup):
    task = setup.start("ab", "c", deadline=12.5)
    await setup.submitted(2)

    assert setup.dispatcher.jobs == [((197, 198, 3), PARAMS, 12.5), ((199, 3), PARAMS, 12.5)]
    task.cancel()


async def test_progress_of_the_call_is_noted_on_the_way(setup):
    progress = Progress()
    follow(progress)
    task = setup.start("ab", "", "x" * 999, "c")
    await setup.submitted(2)
    before = (progress.phase, progress.finished_texts, progress.source_tokens)
    setup.dispatcher.answer(0, "zwei", decode_s=0.25)
    async with asyncio.timeout(5):
        while progress.finished_texts < 3:  # noqa: ASYNC110  a record raises no events
            await asyncio.sleep(0)
    timings = progress.timings()
    setup.dispatcher.answer(1, "eins")
    await task

    assert before == ("queue", 2, 5)  # the blank one, and the one that is too long
    assert timings is not None
    assert timings.decode_ms == 250.0
    assert (progress.phase, progress.finished_texts, progress.target_tokens) == ("detokenize", 4, 8)


async def test_answers_stand_in_the_order_of_the_texts(setup):
    task = setup.start("ab", "c")
    await setup.submitted(2)
    setup.dispatcher.answer(1, "zwei")
    setup.dispatcher.answer(0, "eins")

    translations, _ = await task

    assert [translation.text for translation in translations] == ["eins", "zwei"]
    assert [translation.source_tokens for translation in translations] == [3, 2]


async def test_the_longest_text_goes_first_and_its_answer_to_its_place(setup):
    task = setup.start("c", "abc", "ab")
    await setup.submitted(3)
    lengths = [len(source_ids) for source_ids, _, _ in setup.dispatcher.jobs]
    for index, text in enumerate(("drei", "zwei", "eins")):
        setup.dispatcher.answer(index, text)

    translations, _ = await task

    assert lengths == [4, 3, 2]
    assert [translation.text for translation in translations] == ["eins", "drei", "zwei"]


async def test_all_hypotheses_are_returned_with_their_facts(setup):
    task = setup.start("a")
    await setup.submitted(1)
    cut = Hypothesis(token_ids=(165, 166), score=-1.5, finish_reason=FinishReason.LENGTH)
    ended = Hypothesis(token_ids=(165,), score=-0.5, finish_reason=FinishReason.END_OF_SENTENCE)
    setup.dispatcher.futures[0].set_result(
        JobResult(job_id=0, hypotheses=(ended, cut), queue_s=0, encode_s=0, decode_s=0, num_steps=2)
    )

    (translation,), _ = await task

    facts = [(item.text, item.score, item.finish_reason, item.target_tokens) for item in translation.hypotheses]
    assert facts == [("A", -0.5, FinishReason.END_OF_SENTENCE, 2), ("AB", -1.5, FinishReason.LENGTH, 2)]


@pytest.mark.parametrize("blank", ["", "   ", "\t\n"])
async def test_blank_text_gives_an_empty_translation_without_a_job(setup, blank):
    (translation,), _ = await setup.start(blank)

    assert setup.dispatcher.jobs == []
    assert translation == BLANK_TRANSLATION


class TestBadTexts:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("x" * 21, "texts[1] has 21 characters, at most 20 are accepted"),
            ("x" * 8, "texts[1] has 9 tokens, at most 8 are accepted"),
            ("~", "texts[1] cannot be split into tokens"),
        ],
    )
    async def test_bad_text_carries_its_own_error_and_the_others_go_on(self, setup, text, message):
        task = setup.start("a", text, "b")
        await setup.submitted(2)
        setup.dispatcher.answer(0, "eins")
        setup.dispatcher.answer(1, "drei")

        first, bad, last = (await task)[0]

        assert (first.text, last.text) == ("eins", "drei")
        assert isinstance(bad.error, InvalidInput)
        assert (str(bad.error), bad.error.field) == (message, "texts[1]")

    async def test_text_of_exactly_the_largest_size_is_translated(self, setup):
        task = setup.start("x" * 7)
        await setup.submitted(1)
        task.cancel()

        assert len(setup.dispatcher.jobs[0][0]) == MAX_SOURCE_TOKENS

    async def test_sentence_without_numbers_fails_alone(self, setup):
        task = setup.start("a", "b")
        await setup.submitted(2)
        setup.dispatcher.futures[0].set_exception(InternalError("the model produced non-finite scores"))
        setup.dispatcher.answer(1, "zwei")

        bad, good = (await task)[0]

        assert isinstance(bad.error, InternalError)
        assert (bad.source_tokens, good.text) == (2, "zwei")


class TestWholeCall:
    @pytest.mark.parametrize("error", [Unavailable("engine lost"), DeadlineExceeded("late")])
    async def test_lost_or_late_job_ends_the_call_and_cancels_the_others(self, setup, error):
        follow(progress := Progress())
        task = setup.start("a", "b", "c")
        await setup.submitted(3)
        setup.dispatcher.futures[1].set_exception(error)

        with pytest.raises(type(error), match=str(error)):
            await task
        assert [future.cancelled() for future in setup.dispatcher.futures] == [True, False, True]
        assert (progress.late_from <= time.monotonic()) is isinstance(error, DeadlineExceeded)

    async def test_cancelled_call_cancels_its_jobs(self, setup):
        task = setup.start("a", "b")
        await setup.submitted(2)
        setup.dispatcher.answer(0, "eins")
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        assert [future.cancelled() for future in setup.dispatcher.futures] == [False, True]

    async def test_source_tokens_are_taken_from_the_permit_before_anything_is_queued(self, setup):
        other = setup.admission.admit(1, now=0.0)
        other.take_tokens(26)

        with pytest.raises(Overloaded):
            await setup.start("ab", "c")  # 3 + 2 tokens
        assert setup.dispatcher.jobs == []

    async def test_characters_are_taken_from_the_permit_before_anything_is_tokenised(self, setup, monkeypatch):
        monkeypatch.setattr(setup.translator, "_codec", None)
        setup.admission.admit(1, now=0.0).take_characters(8 * 30)

        with pytest.raises(Overloaded, match="240 characters, 0 source tokens wait or run and the request has 3"):
            await setup.start("ab", "c")

    async def test_request_that_would_be_late_is_refused_before_anything_is_queued(self, setup):
        setup.dispatcher.answer_to_forecast = Forecast(finish_s=5.0)

        with pytest.raises(Overloaded) as error:
            await setup.start("ab", "", "c", deadline=time.monotonic() + 3.0)

        assert error.value.reason == "deadline_unattainable"
        assert setup.dispatcher.forecasts == [(3, 2)]
        assert setup.dispatcher.jobs == []

    async def test_large_request_behind_too_much_work_is_refused_before_it_is_tokenised(self, setup, monkeypatch):
        monkeypatch.setattr(translator_module, "INLINE_CHARACTERS", 3)
        monkeypatch.setattr(setup.translator, "_codec", None)
        setup.dispatcher.answer_to_forecast = Forecast(ahead_s=31.0, finish_s=31.0)

        with pytest.raises(Overloaded) as error:
            await setup.start("abcd")

        assert error.value.reason == "queue_seconds"

    async def test_jobs_are_submitted_for_the_permit_s_client_with_the_call_s_priority(self, setup):
        client = Caller(name="a")
        permit = setup.admission.admit(1, now=0.0, caller=client)
        task = asyncio.create_task(
            setup.translator.translate(["a"], PARAMS, permit=permit, deadline=None, priority=Priority.BATCH)
        )
        await setup.submitted(1)

        assert setup.dispatcher.asked == [(client, Priority.BATCH)]
        task.cancel()

    async def test_steps_of_the_search_are_known_by_row(self, setup):
        task = setup.start("a", "")
        await setup.submitted(1)
        setup.dispatcher.answer(0, "eins")

        assert [translation.row_steps for translation in (await task)[0]] == [3, 0]

    async def test_bad_and_blank_texts_take_no_tokens(self, setup):
        task = setup.start("ab", "x" * 21, "")
        await setup.submitted(1)

        assert setup.admission.tokens == 3
        task.cancel()


class TestTimings:
    async def test_phases_are_the_longest_of_the_texts(self, setup):
        task = setup.start("a", "b")
        await setup.submitted(2)
        setup.dispatcher.answer(0, "x", queue_s=3.0, encode_s=0.5, decode_s=7.0)
        setup.dispatcher.answer(1, "y", queue_s=2.0, encode_s=0.25, decode_s=9.0)

        _, timings = await task

        assert (timings.queue_ms, timings.encode_ms, timings.decode_ms) == (3000.0, 500.0, 9000.0)
        assert timings.total_ms > timings.tokenize_ms > 0.0


class TestThreads:
    async def test_large_requests_are_tokenised_and_joined_in_a_thread(self, setup, monkeypatch):
        monkeypatch.setattr(translator_module, "INLINE_CHARACTERS", 3)
        monkeypatch.setattr(translator_module, "INLINE_TOKENS", 3)
        on_main: list[bool] = []

        class WatchedTokenizer(CharacterTokenizer):
            def encode(self, text: str) -> list[int]:
                on_main.append(threading.current_thread() is threading.main_thread())
                return super().encode(text)

            def decode(self, ids: Sequence[int]) -> str:
                on_main.append(threading.current_thread() is threading.main_thread())
                return super().decode(ids)

        monkeypatch.setattr(setup.translator, "_codec", codec(WatchedTokenizer()))

        for text in ("abc", "abcd"):
            task = setup.start(text)
            await setup.submitted(1)
            setup.dispatcher.answer(0, text)
            await task
            setup.dispatcher.futures.clear()

        assert on_main == [True, True, False, False]


class CountingTokenizer(CharacterTokenizer):
    """Remembers what it was asked."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode(self, text: str) -> list[int]:
        self.texts.append(text)
        return super().encode(text)


async def test_text_that_is_tried_again_is_tokenised_once_for_each_model(setup):
    tokenizer, executor = CountingTokenizer(), ThreadPoolExecutor(1)
    first, second = (Translator(codec(tokenizer), setup.dispatcher, executor) for _ in range(2))
    kept = KeptSources()
    setup.dispatcher.answer_to_forecast = Forecast(ahead_s=1e6)
    for translator in (first, first, second, second):
        with setup.admission.admit(1, now=0.0) as permit, pytest.raises(Overloaded):
            await translator.translate(["ab"], PARAMS, permit=permit, deadline=None, kept=kept)

    assert tokenizer.texts == ["ab", "ab"]
    executor.shutdown()
