"""The self-test: what passes, and what is refused with what."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from model.bundle import BundleError, GoldenSentence
from service.engine.wire import SearchParams
from service.errors import InternalError
from service.models.loaded import run_self_test
from tests.fakes.character_spans import CharacterSpans
from tests.fakes.engine_pools import EchoPool


class Letters(CharacterSpans):
    """A tokenizer: a letter is its code point, and 0 ends a sentence."""

    def encode(self, text: str) -> list[int]:
        return [*map(ord, text), 0]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


def golden(*pairs: tuple[str, str]) -> list[GoldenSentence]:
    return [GoldenSentence(precision="fp32", source=source, translation=text) for source, text in pairs]


async def run(engine: Any, sentences: Sequence[GoldenSentence], max_target_tokens: int = 256) -> None:
    await run_self_test(Letters(), engine, sentences, max_target_tokens=max_target_tokens, timeout_s=1.0)


@pytest.mark.parametrize(("limit", "asked"), [(256, 64), (16, 16)])
async def test_sentences_that_come_out_as_expected_pass_within_the_model_s_limit(limit, asked):
    engine = EchoPool()

    await run(engine, golden(("one", "one"), ("two", "two")), limit)

    assert engine.asked == [SearchParams(beam_size=1, max_target_tokens=asked)] * 2


@pytest.mark.parametrize(
    ("num", "num_different", "passes"),
    [(1, 1, False), (2, 1, True), (5, 2, True), (5, 3, False), (16, 8, True), (16, 9, False)],
)
async def test_one_in_two_may_differ(num, num_different, passes):
    sentences = golden(*[(f"text {number}", f"text {number}") for number in range(num_different, num)])
    sentences += golden(*[(f"text {number}", "other") for number in range(num_different)])

    if passes:
        await run(EchoPool(), sentences)
    else:
        facts = f"{num_different} of {num} golden sentences differ, at most {num // 2} may: 'text 0' gave 'text 0'"
        with pytest.raises(BundleError, match=facts):
            await run(EchoPool(), sentences)


async def test_without_golden_sentences_one_text_must_give_a_finite_score():
    engine = EchoPool()
    await run(engine, [])
    assert len(engine.asked) == 1

    with pytest.raises(BundleError, match="scores that are no numbers"):
        await run(EchoPool(score=math.nan), [])


async def test_engine_s_error_is_the_reason():
    with pytest.raises(InternalError, match="non-finite"):
        await run(EchoPool(error=InternalError("the model produced non-finite scores")), [])
