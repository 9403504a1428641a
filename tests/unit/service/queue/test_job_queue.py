"""What waits for a model's engines: how long, and what is too late."""

import pytest

from service.engine.job import JobResult, SearchParams, StepStats
from service.queue.callers import Caller, Priority
from service.queue.job_queue import EngineLoad, Forecast, JobQueue

PARAMS = SearchParams(beam_size=1)
A, B = Caller(name="a"), Caller(name="b")
INTERACTIVE, BATCH = Priority.INTERACTIVE, Priority.BATCH
RESULT = JobResult(job_id=0, hypotheses=(), queue_s=0.0, encode_s=0.0, decode_s=0.1, num_steps=10)
IDLE, PART, FULL = EngineLoad(1, 0, 10), EngineLoad(1, 4, 10), EngineLoad(1, 10, 10)


def measured() -> JobQueue[str]:
    """Of an engine that translates 100 sentences of 10 tokens a second, 10 at a time, in 10 steps of 10 ms."""
    backlog: JobQueue[str] = JobQueue(aging_s=10.0, max_lookahead_jobs=8)
    for _ in range(40):
        backlog.finished(10, PARAMS, RESULT)
    backlog.reported(StepStats(steps=5, rows=50, busy_s=0.05, waiting_jobs=3))
    return backlog


def add(backlog: JobQueue[str], number: int, caller: Caller = A, priority: Priority = INTERACTIVE) -> None:
    for index in range(number):
        backlog.add(f"{caller.name}{index}", 10, PARAMS, caller=caller, priority=priority, now=0.0)


def forecast(
    backlog: JobQueue[str],
    num_sentences: int = 1,
    *,
    caller: Caller = A,
    priority: Priority = INTERACTIVE,
    load: EngineLoad = FULL,
) -> Forecast:
    return backlog.forecast([10] * num_sentences, PARAMS, caller=caller, priority=priority, load=load)


class TestForecast:
    def test_nothing_is_known_before_anything_was_measured(self):
        backlog: JobQueue[str] = JobQueue(aging_s=10.0, max_lookahead_jobs=8)
        add(backlog, 1_000)

        assert forecast(backlog) == Forecast(0.0, 0.0)
        assert backlog.waiting_s(FULL) == 0.0
        assert not backlog.is_hopeless(10, PARAMS, 0.001, now=0.0, load=FULL)

    def test_report_of_an_engine_that_had_too_little_to_do_is_no_measurement(self):
        backlog: JobQueue[str] = JobQueue(aging_s=10.0, max_lookahead_jobs=8)
        backlog.finished(10, PARAMS, RESULT)
        backlog.reported(StepStats(steps=5, rows=1, busy_s=0.05))

        assert backlog.waiting_s(FULL) == 0.0

    def test_own_work_that_waits_goes_ahead(self):
        backlog = measured()
        add(backlog, 100)

        found = forecast(backlog)

        assert found.ahead_s == pytest.approx(1.0)
        assert found.finish_s == pytest.approx(1.0 + 0.01 + 0.12)  # a place for itself, its steps and two to join

    def test_of_a_greedy_neighbour_s_work_only_its_turn_goes_ahead(self):
        backlog = measured()
        add(backlog, 1_000, caller=A)
        add(backlog, 1, caller=B)

        assert forecast(backlog, caller=B).ahead_s == pytest.approx(0.01 + 0.02)

    def test_sentences_held_by_full_engines_go_ahead(self):
        assert forecast(measured(), load=EngineLoad(1, 13, 10)).ahead_s == pytest.approx(0.03)

    def test_more_engines_are_faster(self):
        backlog = measured()
        add(backlog, 100)

        assert forecast(backlog, load=EngineLoad(4, 40, 40)).ahead_s == pytest.approx(0.25)

    def test_request_of_many_sentences_ends_with_its_last(self):
        assert forecast(measured(), 100).finish_s == pytest.approx(1.0 + 0.12)

    def test_sentence_that_starts_at_once_takes_its_steps_and_two_to_join(self):
        found = forecast(measured(), load=PART)

        assert (found.ahead_s, found.finish_s) == pytest.approx((0.0, 0.12))

    def test_it_takes_longer_the_more_run_beside_it(self):
        backlog = measured()
        for rows in (10, 50, 100) * 30:
            backlog.reported(StepStats(steps=5, loop_steps=5, rows=5 * rows, busy_s=5 * (0.001 + 0.0001 * rows)))

        few, many = (forecast(backlog, load=EngineLoad(2, rows, 512)).finish_s for rows in (19, 179))

        assert (few, many) == pytest.approx((12 * 0.002, 12 * 0.010))

    def test_idle_engines_are_never_too_slow(self):
        """Otherwise a wrong figure would never meet a sentence that corrects it."""
        assert forecast(measured(), load=IDLE) == Forecast(0.0, 0.0)

    def test_batch_work_waits_for_interactive_work(self):
        backlog = measured()
        add(backlog, 100, caller=A)

        assert forecast(backlog, caller=B, priority=BATCH).ahead_s == pytest.approx(1.0)
        assert forecast(backlog, caller=B, priority=INTERACTIVE).ahead_s < 0.1

    def test_all_that_waits_is_known_in_seconds(self):
        backlog = measured()
        add(backlog, 100, caller=A)
        add(backlog, 100, caller=B, priority=BATCH)

        assert backlog.waiting_s(EngineLoad(1, 12, 10)) == pytest.approx(2.02)


class TestTooLate:
    @pytest.mark.parametrize(
        ("left_s", "load", "is_hopeless"),
        [
            (0.05, FULL, True),
            (0.12, FULL, False),
            (0.05, IDLE, False),
            (0.12, EngineLoad(1, 18, 10), True),
            (0.2, EngineLoad(1, 18, 10), False),
        ],
    )
    def test_sentence_with_too_little_time_for_its_own_steps_is_hopeless(self, left_s, load, is_hopeless):
        assert measured().is_hopeless(10, PARAMS, 5.0 + left_s, now=5.0, load=load) is is_hopeless

    def test_sentence_without_a_deadline_never_is(self):
        assert not measured().is_hopeless(10, PARAMS, None, now=5.0, load=FULL)


class TestLookahead:
    def test_little_is_given_ahead_before_anything_was_measured(self):
        backlog: JobQueue[str] = JobQueue(aging_s=10.0, max_lookahead_jobs=8)

        assert backlog.lookahead_jobs(0.0) == 2

    def test_engine_of_one_client_gets_as_much_ahead_as_allowed(self):
        backlog = measured()
        add(backlog, 10)

        assert backlog.lookahead_jobs(0.0) == 8

    def test_shared_engine_gets_two_steps_of_work_ahead(self):
        backlog = measured()
        add(backlog, 1, caller=A)
        add(backlog, 1, caller=B)

        assert backlog.lookahead_jobs(0.0) == 2

    def test_starts_of_a_shared_full_engine_are_spread(self):
        backlog = measured()
        add(backlog, 10, caller=A)
        add(backlog, 10, caller=B)
        backlog.ran_full(0.0)
        for _ in range(3):
            entry = backlog.peek(0.0)
            assert entry is not None
            backlog.serve(entry, rows=1)

        assert 0.01 < backlog.pause_s(0.0, FULL) < 0.03
