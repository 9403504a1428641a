"""What a sentence costs and how long steps and work take, as far as it was measured."""

from itertools import cycle, islice

import pytest

from service.engine.wire import Job, JobResult, SearchParams, StepStats
from service.scheduler.cost import CostModel, StepTime

GREEDY = SearchParams(beam_size=1, max_target_tokens=100)
BEAM = SearchParams(beam_size=4, max_target_tokens=100)
JOB = Job(id=0, source_ids=(5,) * 10, params=GREEDY)


def result(num_steps: int, step_s: float = 0.01) -> JobResult:
    return JobResult(
        job_id=0, hypotheses=(), queue_s=0.0, encode_s=0.0, decode_s=num_steps * step_s, num_steps=num_steps
    )


def report(rows: int, busy_s: float, source_tokens: int = 0) -> StepStats:
    return StepStats(steps=1, rows=rows, busy_s=busy_s, source_tokens=source_tokens, waiting_jobs=1)


@pytest.fixture
def model() -> CostModel:
    """Of sentences of 10 source tokens and 20 steps of 10 ms, greedy, 2,000 decoded rows a second."""
    model = CostModel()
    for _ in range(40):
        model.finished(JOB, result(20))
    model.reported(report(rows=100, busy_s=0.05))
    return model


class TestBeforeEnoughWasMeasured:
    def test_a_sentence_is_as_long_as_its_source(self):
        assert CostModel().cost(10, GREEDY) == 10 + 10

    @pytest.mark.parametrize("num_sentences", [0, 3])
    def test_no_work_takes_time(self, num_sentences):
        model = CostModel()
        for _ in range(num_sentences):
            model.finished(JOB, result(20))
        model.reported(report(rows=100, busy_s=0.05))

        assert (model.seconds(1e9, 1), model.own_s(10, BEAM, 10), model.least_s(10, BEAM, 10)) == (0.0, 0.0, 0.0)
        assert (model.rate is None) is (num_sentences == 0)  # a rate without sentences is no rate


class TestCost:
    def test_encoder_counts_once_and_decoder_for_each_hypothesis_up_to_the_longest(self, model):
        assert model.cost(10, GREEDY) == pytest.approx(10 + 20)
        assert model.cost(10, BEAM) == pytest.approx(10 + 4 * 20)
        assert model.cost(90, GREEDY) == pytest.approx(90 + 100)


class TestRate:
    @pytest.mark.parametrize(
        ("stats", "number", "ratio"),
        [
            (StepStats(), 1, 1.0),  # an engine that did nothing
            (StepStats(steps=1, loop_steps=1, rows=4, busy_s=0.05), 1, 1.0),  # one that was not full
            (report(rows=100, busy_s=0.05, source_tokens=500), 1, 1.0),  # whenever the encoder ran
            (report(rows=50, busy_s=0.05), 100, 0.5),  # the rate follows
            (report(rows=10, busy_s=5.0), 1, 0.75),  # held up once: not slow from now on
        ],
    )
    def test_rate_follows_the_reports_of_full_engines(self, model, stats, number, ratio):
        before = model.rate
        for _ in range(number):
            model.reported(stats)

        assert model.rate == pytest.approx(ratio * before, rel=0.02)


class TestOwnTime:
    def test_own_time_is_its_steps_and_two_to_join(self, model):
        assert model.own_s(10, BEAM, 10) == pytest.approx(0.22)
        assert model.least_s(10, GREEDY, 10) == pytest.approx(0.2, rel=0.05)

    def test_least_time_is_little_where_sentences_differ(self):
        model = CostModel()
        for number in range(40):
            model.finished(JOB, result(5 if number % 2 else 30))

        assert model.least_s(10, GREEDY, 10) < 0.05 < model.own_s(10, GREEDY, 10)


def worked(
    step_time: StepTime,
    *,
    fixed_s: float,
    row_s: float,
    reports: int = 100,
    rows: tuple[int, ...] = (4, 16, 40, 64, 100),
) -> StepTime:
    """After reports of ten steps each."""
    for number in islice(cycle(rows), reports):
        step_time.worked(10, 10 * number, 10 * (fixed_s + row_s * number))
    return step_time


class TestStepTime:
    @pytest.fixture
    def step_time(self) -> StepTime:
        """Of 1 ms and 0.1 ms for each row."""
        return worked(StepTime(), fixed_s=1e-3, row_s=1e-4)

    def test_nothing_is_told_before_half_a_second_of_work(self):
        step_time = StepTime()
        step_time.worked(10, 100, 0.4)

        assert step_time.at(10) == 0.0

    def test_slower_machine_is_noticed_within_a_second_of_work(self, step_time):
        assert worked(step_time, fixed_s=2e-3, row_s=2e-4, reports=10).at(10) == pytest.approx(4e-3, rel=0.1)

    def test_engine_that_was_held_up_once_is_not_slow_from_now_on(self, step_time):
        step_time.worked(1, 50, 5.0)

        assert step_time.at(50) < 5.0 / 2
        assert worked(step_time, fixed_s=1e-3, row_s=1e-4, reports=20).at(50) == pytest.approx(6e-3, rel=0.5)

    def test_load_that_hardly_varies_changes_nothing_about_the_shape(self, step_time):
        worked(step_time, fixed_s=1e-3, row_s=1e-4, reports=5_000, rows=(50, 51))

        assert step_time.at(10) == pytest.approx(2e-3, rel=0.05)
