"""One version's life, with a pool that has no processes."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from model.bundle import Bundle, BundleError, GoldenSentence
from service.config import ModelsConfig, ServerConfig
from service.engine.wire import SearchParams
from service.errors import InternalError
from service.models.info import describe
from service.models.repository import BundleCandidate
from service.models.version import ModelVersion, run_self_test
from tests.fakes.character_spans import CharacterSpans
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.engine_pools import EchoPool


def serving(directory: Path, pool: Any, *, self_test: bool = True) -> ModelVersion:
    bundle, config = Bundle.load(directory), ServerConfig(models=ModelsConfig(self_test=self_test))
    return ModelVersion(BundleCandidate(directory=directory), bundle, describe(bundle), pool, config)


@pytest.fixture
def pool() -> EchoPool:
    return EchoPool()


async def test_tokenizer_is_not_opened_here_before_an_engine_has_survived_it(tmp_path, pool):
    bundle = write_echo_bundle(tmp_path / "b")
    host = serving(bundle, pool)
    (bundle / "shared.spm").write_bytes(b"crafted")
    pool.error = InternalError("the engine did not start: killed by SIGSEGV")

    with pytest.raises(InternalError, match="SIGSEGV"):
        await host.start()


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
