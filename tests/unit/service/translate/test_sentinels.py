"""Spans as tokens of a model that has sentinels; the model is the test's own."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Self

import pytest

from service.engine.wire import FinishReason, Hypothesis, Job, JobResult, SearchParams, Settled
from service.models.codec import TextCodec
from service.records import Translation
from service.translate.search import SearchBatcher, Settings
from service.translate.texts import translate_text
from tests.fakes.manual_pool import CharacterTokenizer

ONE, TWO = "\x90", "\x91"


class SentinelTokenizer(CharacterTokenizer):
    """Has two sentinels; one that stands in an unmarked text is a blank, and one that is written there is nothing."""

    sentinels: tuple[str, ...] = (ONE, TWO)
    is_marked = False

    def marked(self) -> Self:
        marked = type(self)()
        marked.is_marked = True
        return marked

    def encode(self, text: str) -> list[int]:
        return super().encode(text if self.is_marked else text.replace(ONE, " ").replace(TWO, " "))

    def decode(self, ids: Sequence[int]) -> str:
        text = super().decode(ids)
        return text if self.is_marked else text.replace(ONE, "").replace(TWO, "")


def translated(text: str, model: Callable[[str], str]) -> tuple[Translation, list[str]]:
    """Return the translation, and the texts that the model saw."""
    codec = TextCodec(SentinelTokenizer(), max_characters=5_000, max_source_tokens=1_000)
    seen: list[str] = []

    async def run(jobs: Sequence[Job]) -> list[Settled]:
        results = list[Settled]()
        for job in jobs:
            seen.append(CharacterTokenizer().decode(job.source_ids[:-1]))
            ids = tuple(CharacterTokenizer().encode(model(seen[-1]))[:-1])
            hypothesis = Hypothesis(ids, -0.5, FinishReason.END_OF_SENTENCE)
            results.append(JobResult(0, (hypothesis,), 0.0, 0.0, 0.0, num_steps=2))
        return results

    settings = Settings(
        codec, SearchParams(), SearchBatcher(run), source_language="en", target_language="de", max_tokens=1_000
    )
    return asyncio.run(translate_text(text, 0, settings)), seen


def test_a_model_sees_sentinels_and_the_spans_come_back_in_their_place():
    model = {f"Dear {ONE}, see {TWO}.": f"Siehe {TWO}, lieber {ONE}."}.__getitem__

    translation, seen = translated("Dear {name}, see https://a.example/b.", model)

    assert seen == [f"Dear {ONE}, see {TWO}."]
    assert translation.text == "Siehe https://a.example/b, lieber {name}."


@pytest.mark.parametrize("wrong", ["Lieber, guten Tag.", f"Lieber {ONE} {ONE}.", f"Lieber {ONE} {TWO}."])
def test_a_sentinel_that_is_lost_doubled_or_made_up_leads_to_the_next_strategy(wrong):
    translation, seen = translated("Dear {name}, good day.", lambda text: wrong if ONE in text else "Lieber XA.")

    assert seen == [f"Dear {ONE}, good day.", "Dear XA, good day."]
    assert translation.text == "Lieber {name}."


def test_a_sentinel_in_the_text_of_a_caller_is_a_blank():
    with_span, without = f"Dear{TWO}{{name}}, good day.", f"Good{ONE}day."

    assert translated(with_span, lambda text: text)[1] == [f"Dear {ONE}, good day."]
    assert translated(without, lambda text: f"{TWO}{text}")[0].text == "Good day."
