"""In-process translation: order, laziness, errors and limits, with an engine loop that spells words backwards."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import pytest

from model.config import EOS_ID
from service.engine.loop import EngineLoop
from service.engine.wire import FailureKind, FinishReason, Hypothesis, Job, JobFailure, JobResult, Outcome
from service.errors import InternalError, InvalidInput, TooLong
from service.local import LocalTranslator
from service.models.codec import TextCodec
from service.records import Segmentation, TranslateOptions
from tests.fakes.character_spans import CharacterSpans
from tests.fakes.model_info import OPTIONS, model_info

INFO = model_info("backwards", default_options=replace(OPTIONS, max_target_tokens=50), max_source_tokens=10)


class Letters(CharacterSpans):
    """A tokenizer with one token a character."""

    def encode(self, text: str) -> list[int]:
        text.encode()
        return [*map(ord, text), EOS_ID] if text.strip() else []

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


class BackwardsLoop:
    """Runs `rows` jobs at a time, in order of arrival; a job of n tokens takes n steps."""

    def __init__(self, rows: int = 4, *, broken: str = "") -> None:
        self.jobs: dict[int, Job] = {}
        self.submitted: list[Job] = []
        self.cancelled: list[int] = []
        self.most_live = 0
        self._steps_left: dict[int, int] = {}
        self._rows = rows
        self._broken = broken

    def submit(self, job: Job) -> None:
        self.submitted.append(job)
        self.jobs[job.id] = job
        self._steps_left[job.id] = len(job.source_ids)
        self.most_live = max(self.most_live, len(self.jobs))

    def cancel(self, job_id: int) -> None:
        self.cancelled.append(job_id)

    def step(self) -> list[Outcome]:
        for job_id in list(self.jobs)[: self._rows]:
            self._steps_left[job_id] -= 1
        finished = [job_id for job_id in self.jobs if self._steps_left[job_id] == 0]
        return [self._end(self.jobs.pop(job_id)) for job_id in finished]

    def _end(self, job: Job) -> Outcome:
        word = job.source_ids[:-1]
        if Letters().decode(word) == self._broken:
            return JobFailure(
                job_id=job.id, kind=FailureKind.NON_FINITE, message="the model produced non-finite scores"
            )
        hypotheses = (
            Hypothesis(token_ids=word[::-1], score=-1.0, finish_reason=FinishReason.END_OF_SENTENCE),
            Hypothesis(token_ids=word, score=-2.0, finish_reason=FinishReason.LENGTH),
        )
        return JobResult(job_id=job.id, hypotheses=hypotheses, queue_s=0, encode_s=0, decode_s=0, num_steps=len(word))


def translator(loop: BackwardsLoop | None = None, window: int = 8) -> LocalTranslator:
    codec = TextCodec(Letters(), max_characters=10_000, max_source_tokens=10)
    return LocalTranslator(codec, cast("EngineLoop", loop or BackwardsLoop()), INFO, window=window)


@pytest.mark.parametrize("window", [1, 2, 3, 8, 1_000])
def test_order_is_kept_whatever_is_read_ahead(window):
    words = [f"{chr(97 + number % 20)}{'xyz'[number // 20]}" * (number % 2 + 1) for number in range(1, 60)]

    translations = list(translator(window=window).translate_all(words))

    assert [translation.text for translation in translations] == [word[::-1] for word in words]


def test_reading_ahead_is_bounded_and_the_engine_never_waits_for_the_end_of_a_window():
    loop = BackwardsLoop(rows=2)
    taken = []

    def words() -> Iterator[str]:
        for number in range(100):
            taken.append(number)
            yield "word"

    translations = translator(loop, window=6).translate_all(words())
    next(translations)

    assert len(taken) <= 6 + 3
    assert len(list(translations)) == 99
    assert loop.most_live <= 6 + 3


def test_sentences_that_were_too_many_for_the_memory_run_again_and_one_that_is_too_large_alone_fails():
    class Narrow(BackwardsLoop):
        """Has memory for so many at once, and runs half as many after each time that there were more."""

        most, at_once = 2, 16

        def step(self) -> list[Outcome]:
            running = list(self.jobs.values())[: self.at_once]
            too_large = [job for job in running if job.source_ids[0] == ord("x")]
            if len(running) <= self.most and not too_large:
                return [self._end(self.jobs.pop(job.id)) for job in running]
            self.at_once = max(1, self.at_once // 2)
            return [
                JobFailure(job_id=self.jobs.pop(job.id).id, kind=FailureKind.OUT_OF_MEMORY, message="too little memory")
                for job in running
            ]

    words = ["ab", "cd", "ef", "xx", "gh", "ij"]

    translations = list(translator(Narrow()).translate_all(words))

    assert [item.text for item in translations if item.error is None] == ["ba", "dc", "fe", "hg", "ji"]
    assert isinstance(translations[3].error, InternalError)


def test_text_that_is_too_long_or_that_the_engine_fails_for_has_an_error_of_its_own():
    texts = ["ok", "x" * 10, "y" * 10_001, "bad \ud800", "broken", "fine"]

    options = TranslateOptions(segmentation=Segmentation.NONE)
    translations = list(translator(BackwardsLoop(broken="broken")).translate_all(texts, options))

    errors = [translation.error for translation in translations]
    assert [type(error) for error in errors] == [type(None), TooLong, TooLong, InvalidInput, InternalError, type(None)]
    assert all(f"texts[{index}]" in str(errors[index]) for index in (1, 2, 3))
    assert [translations[0].text, translations[5].text] == ["ko", "enif"]


def test_a_caller_that_stops_early_leaves_nothing_behind():
    class Patient(BackwardsLoop):
        """Finishes nothing but single letters."""

        def step(self) -> list[Outcome]:
            return [self._end(self.jobs.pop(job.id)) for job in list(self.jobs.values()) if len(job.source_ids) == 2]

    loop = Patient()
    service = translator(loop)

    first = service.translate_all(["a", "bb", "cc"])
    next(first)
    first.close()  # type: ignore[attr-defined]  # it is a generator
    again = [translation.text for translation in service.translate_all(["x", "y"])]

    assert set(loop.cancelled) == {job.id for job in loop.submitted if len(job.source_ids) == 3}
    assert again == ["x", "y"]
