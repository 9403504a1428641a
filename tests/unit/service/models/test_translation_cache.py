"""What is answered again without an engine, to whom, and what it takes."""

import asyncio
import time
from typing import Any, cast

import pytest

from service.call import ANYBODY, Call, Caller
from service.config import LimitsConfig
from service.engine.wire import FinishReason, Hypothesis, Job, JobResult, SearchParams, Settled
from service.errors import InternalError, Overloaded
from service.models.call_scheduler import CallScheduler, Work
from service.models.catalogue import Catalogue
from service.models.translation_cache import Key, TranslationCache
from service.telemetry.metrics import Metrics
from tests.fakes.books import sample_of
from tests.fakes.manual_pool import ManualModel

PARAMS = SearchParams()
ONE, TWO = (1_000, 2_000, 3), (70_000, 3)


def result_of(*lengths: int) -> JobResult:
    hypotheses = tuple(
        Hypothesis(tuple(range(1_000, 1_000 + length)), -0.25 * (length + 1), FinishReason.LENGTH) for length in lengths
    )
    return JobResult(job_id=9, hypotheses=hypotheses, queue_s=1.0, encode_s=2.0, decode_s=3.0, num_steps=4)


class Cache(TranslationCache):
    """One whose metrics can be read."""

    def __init__(self, max_bytes: int = 1 << 20) -> None:
        self.metrics = Metrics()
        super().__init__(max_bytes, self.metrics)

    def count(self, name: str, **labels: str) -> float | None:
        return sample_of(self.metrics, f"dragoman_translation_cache_{name}", labels)

    def key_of(self, *ids: int, host: int = 0, caller: Caller = ANYBODY, prefix: tuple[int, ...] = ()) -> Key:
        key = self.key(host, caller, Job(ids, PARAMS, prefix))
        assert key is not None
        return key


class TestEntries:
    def test_answer_comes_back_as_it_was_but_that_it_took_nothing(self):
        cache, given = Cache(), result_of(3, 0, 5)
        cache.keep(cache.key_of(*ONE), given)

        found = cache.find(cache.key_of(*ONE))

        assert found is not None
        assert found.hypotheses == given.hypotheses
        assert (found.queue_s, found.encode_s, found.decode_s, found.num_steps) == (0.0, 0.0, 0.0, 0)

    def test_every_part_of_the_question_counts(self):
        cache = Cache()
        cache.keep(cache.key_of(*ONE), result_of(1))
        other = PARAMS._replace(length_penalty=0.5)

        assert cache.find(cache.key_of(*TWO)) is None
        assert cache.find(cache.key_of(*ONE, host=1)) is None
        assert cache.find(cache.key_of(*ONE, prefix=(7,))) is None
        assert cache.find(cache.key_of(*ONE)._replace(params=other)) is None

    def test_callers_with_keys_and_those_that_a_proxy_names_have_their_own(self):
        cache = Cache()
        shop = Caller(name="shop", source="key")
        for caller in (shop, Caller(name="shop", source="proxy"), Caller(name="10.0.0.1")):
            assert cache.find(cache.key_of(*ONE, caller=caller)) is None
            cache.keep(cache.key_of(*ONE, caller=caller), result_of(1))

        assert cache.find(cache.key_of(*ONE, caller=Caller(name="10.0.0.2"))) is not None  # as all without a key
        assert cache.find(cache.key_of(*ONE, caller=Caller(name="other", source="key"))) is None
        assert len(cache) == 3

    def test_least_recently_used_entries_make_room(self):
        cache = Cache(max_bytes=40_000)
        keys = [cache.key_of(number, 3) for number in range(100)]
        for key in keys:
            cache.keep(key, result_of(2))
            cache.find(keys[0])

        assert cache.find(keys[0]) is not None
        assert cache.find(keys[-1]) is not None
        assert cache.find(keys[1]) is None
        assert cache.num_bytes <= 40_000
        assert cache.count("evictions_total") == 100 - len(cache)
        assert cache.count("bytes") == cache.num_bytes

    @pytest.mark.parametrize(
        "params",
        [SearchParams(beam_size=1, sampling_top_k=5), SearchParams(suppressed=(((5, 0),),))],
    )
    def test_drawn_answers_and_those_with_suppressed_phrases_are_not_kept(self, params):
        kept = SearchParams(beam_size=5, num_hypotheses=2, return_alternatives=True)

        assert Cache().key(0, ANYBODY, Job(ONE, params)) is None
        assert Cache().key(0, ANYBODY, Job(ONE, kept)) is not None


class Setup:
    """A scheduler with a cache and one model, for whose engines the test answers."""

    def __init__(self, limits: LimitsConfig | None = None) -> None:
        self.model, self.cache = ManualModel(), Cache()
        self.pool = self.model.pool
        self.scheduler = CallScheduler(Catalogue(), limits or LimitsConfig(), self.cache)
        self.admission = self.scheduler.admission
        self.num_rooms = 0
        self.call = Call(method="m", started=0.0, deadline=0.0)

    async def run(self, work: Work, *answers: str, caller: Caller = ANYBODY) -> list[Settled]:
        """Run some work, for which the engines are asked for as many sentences as there are answers."""
        begun, now = len(self.pool.jobs), time.monotonic()
        self.call = Call(method="m", caller=caller, started=now, deadline=now + 600.0)
        with self.admission.admit(1, now=now, caller=caller) as reservation:
            reservation.on_room = self._room
            task = asyncio.create_task(self.scheduler.run(cast("Any", self.model), work, self.call, reservation))
            await self.pool.submitted(begun + len(answers))
            for index, answer in enumerate(answers):
                self.pool.answer(begun + index, answer, queue_s=1.0, decode_s=1.0)
            done = await task
        assert len(self.pool.jobs) == begun + len(answers)
        return done

    def _room(self) -> None:
        self.num_rooms += 1


def work_of(*sources: tuple[int, ...], **how: Any) -> Work:
    return Work([Job(source, PARAMS) for source in sources], **how)


def texts_of(done: list[Settled]) -> list[str]:
    return [
        "".join(chr(token - 100) for token in result.hypotheses[0].token_ids)
        for result in done
        if isinstance(result, JobResult)
    ]


class TestWork:
    @pytest.fixture
    def setup(self) -> Setup:
        return Setup()

    async def test_sentence_that_was_translated_before_reaches_no_engine(self, setup):
        first = await setup.run(work_of(ONE), "eins")
        again = await setup.run(work_of(ONE))

        assert (texts_of(first), texts_of(again)) == (["eins"], ["eins"])
        assert [result.num_steps for done in (first, again) for result in done] == [1, 0]
        assert (setup.call.target_tokens, setup.call.queue_s, again[0].beam_size) == (4, 0.0, 4)
        assert setup.num_rooms == 2
        assert (setup.cache.count("sentences_total", result="hit"), len(setup.pool.forecasts)) == (1.0, 1)

    async def test_only_what_is_missing_is_asked_for_and_each_sentence_once(self, setup):
        await setup.run(work_of(ONE), "eins")

        # The longest sentence goes to the engines first.
        done = await setup.run(work_of(TWO, ONE, (5, 6, 7, 3), TWO), "drei", "zwei")

        assert texts_of(done) == ["zwei", "eins", "drei", "zwei"]
        assert [result.num_steps for result in done] == [1, 0, 1, 0]
        assert setup.pool.forecasts[-1] == (2, 4)
        assert setup.call.target_tokens == 16

    async def test_full_queue_refuses_nothing_that_is_known(self):
        setup = Setup(LimitsConfig(max_queue_seconds=1.0))
        await setup.run(work_of(ONE), "eins")
        setup.pool.answer_to_forecast = (10.0, 20.0)

        assert texts_of(await setup.run(work_of(ONE))) == ["eins"]
        with pytest.raises(Overloaded):
            await setup.run(work_of(ONE, TWO))
        assert setup.admission.tokens == 0

    async def test_call_that_wants_no_cache_and_translations_to_score_reach_an_engine(self, setup):
        await setup.run(work_of(ONE), "eins")

        assert texts_of(await setup.run(work_of(ONE, may_use_cache=False), "uno")) == ["uno"]
        await setup.run(Work([Job(ONE, PARAMS, scored_ids=(4, 5))]), "x")
        assert texts_of(await setup.run(work_of(ONE))) == ["eins"]

    async def test_smaller_beam_under_load_is_another_question(self):
        setup = Setup(LimitsConfig(brownout_seconds=1.0))
        work = work_of(ONE, allow_smaller_beam=True)
        await setup.run(work, "eins")
        setup.pool.queued_work_s = 1.5

        done = await setup.run(work, "kleiner")

        assert (texts_of(done), setup.pool.jobs[-1].params.beam_size) == (["kleiner"], 2)

    async def test_error_is_not_kept(self, setup):
        now = time.monotonic()
        with setup.admission.admit(1, now=now) as reservation:
            call = Call(method="m", started=now, deadline=now + 600.0)
            task = asyncio.create_task(
                setup.scheduler.run(cast("Any", setup.model), work_of(ONE, ONE), call, reservation)
            )
            await setup.pool.submitted(1)
            setup.pool.futures[0].set_exception(InternalError("no numbers"))
            done = await task

        assert [type(result) for result in done] == [InternalError, InternalError]
        assert texts_of(await setup.run(work_of(ONE), "eins")) == ["eins"]
