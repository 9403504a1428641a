"""What a sentence costs and how long work takes, as far as it was measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.job import JobResult, SearchParams, StepStats
from service.queue.cost_model import CostModel

GREEDY = SearchParams(beam_size=1, max_target_tokens=100)
BEAM = SearchParams(beam_size=4, max_target_tokens=100)


def result(num_steps: int, step_s: float = 0.01) -> JobResult:
    return JobResult(
        job_id=0, hypotheses=(), queue_s=0.0, encode_s=0.0, decode_s=num_steps * step_s, num_steps=num_steps
    )


def report(rows: int, busy_s: float, source_tokens: int = 0) -> StepStats:
    return StepStats(steps=1, rows=rows, busy_s=busy_s, source_tokens=source_tokens, waiting_jobs=1)


@pytest.fixture
def meter() -> CostModel:
    """Of sentences of 10 source tokens and 20 steps of 10 ms, greedy, 2,000 decoded rows a second."""
    meter = CostModel()
    for _ in range(40):
        meter.finished(10, GREEDY, result(20))
    meter.reported(report(rows=100, busy_s=0.05))
    return meter


class TestBeforeAnythingWasMeasured:
    def test_no_work_takes_time(self):
        meter = CostModel()

        assert not meter.is_measured
        assert (meter.seconds(1e9, 1), meter.own_s(10, BEAM, 10), meter.least_s(10, BEAM, 10)) == (0.0, 0.0, 0.0)

    def test_a_sentence_is_as_long_as_its_source(self):
        assert CostModel().cost(10, GREEDY) == 10 + 10

    def test_a_rate_without_sentences_is_no_rate(self):
        meter = CostModel()
        meter.reported(report(rows=100, busy_s=0.05))

        assert meter.rate is None

    def test_a_few_sentences_are_not_enough(self):
        meter = CostModel()
        for _ in range(3):
            meter.finished(10, GREEDY, result(20))
        meter.reported(report(rows=100, busy_s=0.05))

        assert (meter.is_measured, meter.seconds(1e9, 1), meter.least_s(10, GREEDY, 10)) == (False, 0.0, 0.0)

    def test_report_of_an_engine_that_did_nothing_says_nothing(self, meter):
        before = meter.rate
        meter.reported(StepStats())

        assert meter.rate == before


class TestEnginesThatAreNotFull:
    def test_report_says_nothing_about_the_rate_of_full_ones(self, meter):
        before = meter.rate
        meter.reported(StepStats(steps=1, loop_steps=1, rows=4, busy_s=0.05))

        assert meter.rate == before

    def test_time_of_a_sentence_grows_with_the_rows_beside_it(self, meter):
        for rows in (10, 50, 100) * 30:
            meter.reported(StepStats(steps=5, loop_steps=5, rows=5 * rows, busy_s=5 * (0.001 + 0.0001 * rows)))

        assert meter.own_s(10, GREEDY, 10) == pytest.approx(22 * 0.002)
        assert meter.own_s(10, GREEDY, 90) == pytest.approx(22 * 0.010)
        assert meter.least_s(10, GREEDY, 10) == pytest.approx(20 * 0.002)
        assert meter.least_s(10, GREEDY, 200) == pytest.approx(20 * 0.010)  # as the last ones that ended had it


class TestCost:
    def test_encoder_counts_once_and_decoder_for_each_hypothesis(self, meter):
        assert meter.cost(10, GREEDY) == pytest.approx(10 + 20)
        assert meter.cost(10, BEAM) == pytest.approx(10 + 4 * 20)

    def test_no_translation_is_longer_than_it_may_be(self, meter):
        assert meter.cost(90, GREEDY) == pytest.approx(90 + 100)

    @given(st.integers(1, 500), st.integers(1, 16), st.integers(1, 16))
    def test_longer_sources_and_wider_beams_cost_more(self, source_tokens, beam, more):
        meter = CostModel()
        params, wider = SearchParams(beam_size=beam), SearchParams(beam_size=beam + more)

        assert meter.cost(source_tokens, params) < meter.cost(source_tokens, wider)
        assert meter.cost(source_tokens, params) < meter.cost(source_tokens + more, params)


class TestTime:
    def test_work_takes_the_longer_the_fewer_engines_there_are(self, meter):
        sentence = meter.cost(10, GREEDY)

        assert meter.seconds(sentence * 100, 1) == pytest.approx(1.0)  # 2,000 rows a second are 100 sentences
        assert meter.seconds(sentence * 100, 4) == pytest.approx(0.25)

    def test_rate_does_not_depend_on_when_the_encoder_ran(self, meter):
        before = meter.rate
        meter.reported(report(rows=100, busy_s=0.05, source_tokens=500))

        assert meter.rate == pytest.approx(before)

    def test_rate_follows_the_engines(self, meter):
        before = meter.rate
        for _ in range(100):
            meter.reported(report(rows=50, busy_s=0.05))

        assert meter.rate == pytest.approx(before / 2, rel=0.02)

    def test_engine_that_was_held_up_once_is_not_slow_from_now_on(self, meter):
        before = meter.rate
        meter.reported(report(rows=10, busy_s=5.0))

        assert meter.rate == pytest.approx(0.75 * before, rel=0.01)

    def test_own_time_is_its_steps_and_two_to_join(self, meter):
        assert meter.own_s(10, BEAM, 10) == pytest.approx(0.22)

    def test_sentences_that_are_all_alike_take_at_least_what_they_take(self, meter):
        assert meter.least_s(10, GREEDY, 10) == pytest.approx(0.2, rel=0.05)

    def test_least_time_is_little_where_sentences_differ(self):
        meter = CostModel()
        for number in range(40):
            meter.finished(10, GREEDY, result(5 if number % 2 else 30))

        assert meter.least_s(10, GREEDY, 10) < 0.05 < meter.own_s(10, GREEDY, 10)
