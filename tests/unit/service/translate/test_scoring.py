"""What a model thinks of given translations, against a model that the test answers by hand."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from service.call import Call, Caller
from service.config import LimitsConfig
from service.engine.wire import HeadWeights, JobResult, TokenScores
from service.errors import FailedPrecondition, InternalError, InvalidInput, NotFound, Overloaded, TooLong
from service.models.call_scheduler import CallScheduler
from service.records import AttentionHeads, Link, Priority, ScorePair, ScoreRequest, ScoreResult, Span
from service.telemetry.metrics import Metrics
from service.telemetry.usage import UsageMeter
from service.translate import scoring
from service.translate.scoring import require_scorer, score
from service.translate.translator import Translator
from tests.fakes.manual_pool import ManualModel, registry_of
from tests.fakes.model_info import OPTIONS, model_info

LIMITS = LimitsConfig(max_queued_tokens=30, max_texts=3)
SHOP = Caller(name="shop", source="key")
INFO = replace(model_info("m", default_options=replace(OPTIONS, max_target_tokens=6)), has_scorer=True)


class Setup:
    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.model = ManualModel(info=INFO)
        self.pool = self.model.pool
        self.metrics = Metrics()
        self.usage_meter = UsageMeter(self.metrics)
        catalogue = registry_of(self.model).catalogue
        self.translator = Translator(CallScheduler(catalogue, LIMITS), self.usage_meter, LIMITS, executor)
        now = time.monotonic()
        self.call = Call(method="m", caller=SHOP, started=now, deadline=now + 600.0)

    def start(
        self, *pairs: tuple[str, str], model: str | None = None, links: bool = False
    ) -> "asyncio.Task[ScoreResult]":
        request = ScoreRequest(
            pairs=[ScorePair(*pair) for pair in pairs], model=model, priority=Priority.BATCH, return_alignments=links
        )
        return asyncio.create_task(score(self.translator, request, self.call))

    def answer(self, index: int, log_probs: list[float], rows: list[list[float]] | None = None) -> None:
        attention = np.array(rows or [[1.0]], np.float16).tobytes()
        self.pool.futures[index].set_result(
            JobResult(0, (), 0.25, 0.0, 0.0, 1, scores=TokenScores(tuple(log_probs), attention))
        )


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
async def setup(executor: ThreadPoolExecutor) -> Setup:
    return Setup(executor)


async def test_each_pair_becomes_a_job_and_each_token_gets_its_log_probability(setup):
    task = setup.start(("ab", " xyz"), ("c", ""))
    await setup.pool.submitted(2)
    setup.answer(0, [-0.5, -0.25, -1.0, -0.125])
    setup.answer(1, [-3.0])

    result = await task

    assert [(job.source_ids, job.scored_ids) for job in setup.pool.jobs] == [
        ((197, 198, 3), (220, 221, 222)),
        ((199, 3), ()),
    ]
    assert {job.params.beam_size for job in setup.pool.jobs} == {1}
    first, second = result.scores
    assert [tuple(token) for token in first.tokens] == [("x", -0.5), ("y", -0.25), ("z", -1.0), ("", -0.125)]
    assert (first.log_probability, first.links, first.source_tokens) == (-1.875, (), 3)
    assert [tuple(token) for token in second.tokens] == [("", -3.0)]
    assert (result.model, result.model_version) == ("m", "1")


async def test_links_come_where_they_are_wanted(setup):
    task = setup.start(("a b", "y x"), links=True)
    await setup.pool.submitted(1)
    rows = [[0.1, 0.0, 0.9, 0.0], [0.9, 0.1, 0.0, 0.0], [0.8, 0.0, 0.1, 0.1], [0.0, 0.0, 0.0, 1.0]]
    setup.answer(0, [-1.0] * 4, rows)

    (scored,) = (await task).scores

    assert scored.links == (Link(Span(2, 3), Span(0, 1)), Link(Span(0, 1), Span(2, 3)))


@pytest.mark.parametrize(
    ("pair", "kind", "message"),
    [
        (("", "x"), InvalidInput, "pairs[1].source is blank: there is nothing to score"),
        (("x" * 8, "x"), TooLong, "pairs[1].source has 9 tokens, at most 8 are accepted"),
        (("x", "x" * 6), TooLong, "pairs[1].target has 7 tokens, at most 6 are accepted"),
        (("x", "y" * 21), TooLong, "pairs[1].target has 21 characters, at most 20 are accepted"),
        (("~", "x"), InvalidInput, "pairs[1].source cannot be split into tokens"),
        (("x", "~"), InvalidInput, "pairs[1].target cannot be split into tokens"),
    ],
)
async def test_a_pair_that_cannot_be_scored_has_its_own_error(setup, pair, kind, message):
    task = setup.start(("a", "b"), pair)
    await setup.pool.submitted(1)
    setup.answer(0, [-0.5, -0.5])

    good, bad = (await task).scores

    assert (good.error, len(good.tokens)) == (None, 2)
    assert (type(bad.error), str(bad.error)) == (kind, message)
    assert setup.call.finished_texts == 2


async def test_a_pair_for_which_the_model_gave_no_numbers_has_its_own_error(setup):
    task = setup.start(("a", "b"))
    await setup.pool.submitted(1)
    setup.pool.futures[0].set_exception(InternalError("no numbers"))

    (scored,) = (await task).scores

    assert (str(scored.error), scored.tokens) == ("no numbers", ())


async def test_what_was_used_is_counted_for_the_caller(setup):
    task = setup.start(("ab", "xyz"), ("", "x"))
    await setup.pool.submitted(1)
    assert setup.translator.admission.tokens == 3 + 3
    setup.answer(0, [-0.5] * 4)
    await task

    (used,) = setup.usage_meter.take().values()
    assert (used.calls, used.texts, used.characters) == (1, 1, 5)
    assert (used.source_tokens, used.target_tokens, used.row_steps) == (3, 4, 0)
    assert setup.translator.admission.tokens == 0
    assert (setup.call.model, setup.call.priority, setup.call.queue_s) == ("m", Priority.BATCH, 0.25)
    assert (setup.call.texts, setup.call.finished_texts, setup.call.source_tokens) == (2, 2, 3)


async def test_what_translate_refuses_is_refused(setup):
    with pytest.raises(NotFound, match="no model 'other'"):
        await setup.start(("a", "b"), model="other")
    with pytest.raises(InvalidInput, match="pairs has 4 entries, from 1 to 3"):
        await setup.start(*[("a", "b")] * 4)
    setup.pool.answer_to_forecast = (1e6, 1e6)
    with pytest.raises(Overloaded):
        await setup.start(("a", "b"))
    assert setup.pool.jobs == []


async def test_a_model_without_a_scorer_says_how_to_get_one(setup):
    setup.model.info = replace(INFO, has_scorer=False)

    with pytest.raises(FailedPrecondition, match=r"m 1 cannot score or align translations: .*python -m export"):
        await setup.start(("a", "b"))

    require_scorer(INFO)


async def test_heads_come_with_the_tokens_of_both_sides(setup):
    setup.model.info = replace(INFO, has_head_weights=True)
    request = ScoreRequest(pairs=[ScorePair("ab", "xyz")], return_heads=True)
    task = asyncio.create_task(score(setup.translator, request, setup.call))
    await setup.pool.submitted(1)
    weights = HeadWeights(1, bytes(9), bytes(12))
    scores = TokenScores((-0.5,) * 4, np.ones((4, 3), np.float16).tobytes(), weights)
    setup.pool.futures[0].set_result(JobResult(0, (), 0.0, 0.0, 0.0, 1, scores=scores))

    (scored,) = (await task).scores

    assert setup.pool.jobs[0].shows_heads
    assert scored.heads == AttentionHeads(("a", "b", ""), ("x", "y", "z", ""), weights)


async def test_heads_are_shown_of_models_that_have_them_and_of_short_sentences(setup, monkeypatch):
    monkeypatch.setattr(scoring, "MAX_SHOWN_TOKENS", 3)
    request = ScoreRequest(pairs=[ScorePair("abc", "b")], return_heads=True)
    with pytest.raises(FailedPrecondition, match="the model m 1 does not show its attention: `python -m export"):
        await score(setup.translator, request, setup.call)
    setup.model.info = replace(INFO, has_head_weights=True)

    (scored,) = (await score(setup.translator, request, setup.call)).scores

    assert "has 4 tokens, attention is shown of at most 3" in str(scored.error)
