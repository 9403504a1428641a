"""The self-test: what passes, and what is refused with what."""

import asyncio
import math
from collections.abc import Sequence

import pytest

from model.bundle import BundleError, GoldenSentence
from service.engine.job import FinishReason, Hypothesis, JobResult, SearchParams
from service.errors import InternalError
from service.registry.self_test import judge, run_self_test


class Letters:
    """A tokenizer: a letter is its code point."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


class Echo:
    """An engine that says the source again."""

    def __init__(self, score: float = -0.5, error: Exception | None = None) -> None:
        self.score = score
        self.error = error
        self.asked: list[SearchParams] = []

    def submit(
        self, source_ids: Sequence[int], params: SearchParams, deadline: float | None
    ) -> "asyncio.Future[JobResult]":
        self.asked.append(params)
        future: asyncio.Future[JobResult] = asyncio.get_running_loop().create_future()
        if self.error:
            future.set_exception(self.error)
        else:
            best = Hypothesis(token_ids=tuple(source_ids), score=self.score, finish_reason=FinishReason.END_OF_SENTENCE)
            future.set_result(
                JobResult(job_id=0, hypotheses=(best,), queue_s=0.0, encode_s=0.0, decode_s=0.0, num_steps=1)
            )
        return future


def golden(*pairs: tuple[str, str]) -> list[GoldenSentence]:
    return [GoldenSentence(precision="fp32", source=source, translation=text) for source, text in pairs]


async def run(engine: Echo, sentences: Sequence[GoldenSentence], max_target_tokens: int = 256) -> None:
    await run_self_test(Letters(), engine, sentences, max_target_tokens=max_target_tokens, timeout_s=1.0)


async def test_sentences_that_come_out_as_expected_pass():
    engine = Echo()

    await run(engine, golden(("one", "one"), ("two", "two")))

    assert engine.asked == [SearchParams(beam_size=1, max_target_tokens=64)] * 2


async def test_translation_never_asks_for_more_than_the_model_s_limit():
    engine = Echo()

    await run(engine, golden(("one", "one")), max_target_tokens=16)

    assert engine.asked[0].max_target_tokens == 16


async def test_another_translation_is_refused_with_what_came_out():
    with pytest.raises(BundleError, match="1 of 1 golden sentences differ, at most 0 may: 'one' gave 'one', expected"):
        await run(Echo(), golden(("one", "eins")))


async def test_without_golden_sentences_one_text_must_give_a_finite_score():
    engine = Echo()
    await run(engine, [])
    assert len(engine.asked) == 1

    with pytest.raises(BundleError, match="scores that are no numbers"):
        await run(Echo(score=math.nan), [])


async def test_engine_s_error_is_the_reason():
    with pytest.raises(InternalError, match="non-finite"):
        await run(Echo(error=InternalError("the model produced non-finite scores")), [])


@pytest.mark.parametrize(("num", "num_different", "passes"), [(4, 0, True), (4, 1, False), (5, 1, True), (5, 2, False),
                                                              (15, 3, True), (15, 4, False)])  # fmt: skip
def test_one_in_five_may_differ(num, num_different, passes):
    sentences = golden(*[(str(number), "same") for number in range(num)])
    found = ["other"] * num_different + ["same"] * (num - num_different)

    if passes:
        judge(sentences, found)
    else:
        with pytest.raises(BundleError, match=f"{num_different} of {num} golden sentences differ"):
            judge(sentences, found)
