"""The jobs that wait for a model's engines: who gets them, how long they wait, and which are too late."""

from collections.abc import Sequence
from itertools import count

import pytest

from service.call import Caller
from service.engine.wire import Job, JobResult, SearchParams, StepStats
from service.records import Priority
from service.scheduler.fair_queue import Entry
from service.scheduler.job_queue import EngineLoad, JobQueue

PARAMS = SearchParams(beam_size=1)
A, B = Caller(name="a"), Caller(name="b")
INTERACTIVE, BATCH = Priority.INTERACTIVE, Priority.BATCH
RESULT = JobResult(job_id=0, hypotheses=(), queue_s=0.0, encode_s=0.0, decode_s=0.1, num_steps=10)
IDS = count()


def pool(num_engines: int, rows: int, max_rows: int = 10) -> list[EngineLoad]:
    """Engines that each hold so many rows, of sentences that need little else."""
    return [EngineLoad(max_rows=max_rows, max_source_tokens=4_096, rows=rows) for _ in range(num_engines)]


IDLE, PART, FULL = pool(1, 0), pool(1, 4), pool(1, 10)


def job(deadline: float | None = None, priority: Priority = INTERACTIVE) -> Job:
    return Job(
        id=next(IDS), source_ids=(5,) * 10, params=PARAMS, deadline=deadline, is_batch=priority is Priority.BATCH
    )


def new() -> JobQueue[Entry[Job]]:
    return JobQueue(aging_s=10.0, max_lookahead_jobs=8)


def measured() -> JobQueue[Entry[Job]]:
    """Of an engine that translates 100 sentences of 10 tokens a second, 10 at a time, in 10 steps of 10 ms."""
    queue = new()
    for _ in range(40):
        queue.cost_model.finished(job(), RESULT)
    queue.cost_model.reported(StepStats(steps=5, rows=50, busy_s=0.05, waiting_jobs=3))
    return queue


def add(
    queue: JobQueue[Entry[Job]], number: int = 1, caller: Caller = A, priority: Priority = INTERACTIVE, at: float = 0.0
) -> None:
    for _ in range(number):
        queue.add(Entry(job(priority=priority), caller, priority, at))


def load_of(num_jobs: int) -> EngineLoad:
    load = EngineLoad(max_rows=10, max_source_tokens=4_096)
    for _ in range(num_jobs):
        load.add(job())
    return load


def forecast(
    queue: JobQueue[Entry[Job]],
    num_sentences: int = 1,
    *,
    caller: Caller = A,
    priority: Priority = INTERACTIVE,
    loads: Sequence[EngineLoad] = FULL,
) -> tuple[float, float]:
    return queue.forecast([10] * num_sentences, PARAMS, caller=caller, priority=priority, loads=loads)


class TestForecast:
    def test_own_work_that_waits_goes_ahead(self):
        queue = measured()
        add(queue, 100)

        ahead_s, finish_s = forecast(queue)

        assert ahead_s == pytest.approx(1.0)
        assert finish_s == pytest.approx(1.0 + 0.01 + 0.12)  # a place for itself, its steps and two to join
        assert forecast(queue, loads=pool(4, 10))[0] == pytest.approx(0.25)

    @pytest.mark.parametrize(
        ("num_sentences", "loads", "ahead_s", "finish_s"),
        [
            (1, pool(1, 13), 0.03, 0.04 + 0.12),  # what full engines hold goes ahead
            (1, PART, 0.0, 0.12),  # it starts at once: its steps and two to join
            (100, FULL, 0.0, 1.0 + 0.12),  # a request ends with its last sentence
            (1, IDLE, 0.0, 0.0),  # otherwise a wrong figure would never meet a sentence that corrects it
        ],
    )
    def test_sentences_wait_for_what_the_engines_hold(self, num_sentences, loads, ahead_s, finish_s):
        found = forecast(measured(), num_sentences, loads=loads)

        assert found == pytest.approx((ahead_s, finish_s))

    def test_it_takes_longer_the_more_run_beside_it(self):
        queue = measured()
        for rows in (10, 50, 100) * 30:
            queue.cost_model.reported(
                StepStats(steps=5, loop_steps=5, rows=5 * rows, busy_s=5 * (0.001 + 0.0001 * rows))
            )

        few, many = (forecast(queue, loads=[*pool(1, rows, 256), *pool(1, 0, 256)])[1] for rows in (19, 179))

        assert (few, many) == pytest.approx((12 * 0.002, 12 * 0.010))

    def test_all_that_waits_is_known_in_seconds(self):
        queue = measured()
        add(queue, 100, caller=A)
        add(queue, 100, caller=B, priority=BATCH)

        assert queue.waiting_s(pool(1, 12)) == pytest.approx(2.02)


class TestHandOut:
    def test_jobs_go_to_engines_in_turn_until_all_are_full_and_count_in_their_loads(self):
        queue, loads = new(), [load_of(9), load_of(8)]
        add(queue, 20)

        found = queue.hand_out(loads, now=0.0)

        assert [number for _, number in found] == [1, 0, 1, 0, 1, 0, 1]  # two jobs ahead for each
        assert [load.rows for load in loads] == [12, 12]
        assert (len(queue), queue.source_tokens) == (13, 130)

    def test_nothing_is_handed_out_while_no_engine_is_up(self):
        queue = measured()
        queue.add(Entry(job(deadline=0.001), A, INTERACTIVE, 0.0))

        found = queue.hand_out([], now=5.0)

        assert (found, len(queue)) == ([], 1)

    @pytest.mark.parametrize(
        ("left_s", "num_held", "is_too_late"),
        [
            (0.05, 10, True),  # it needs 0.1 s
            (0.12, 10, False),
            (0.05, 0, False),  # an idle engine tries whatever was measured
            (0.11, 12, True),  # two sentences go before it
            (None, 10, False),
        ],
    )
    def test_job_with_too_little_time_for_its_own_steps_leaves_the_queue(self, left_s, num_held, is_too_late):
        queue, loads = measured(), [load_of(num_held)]
        hurried = Entry(job(None if left_s is None else 5.0 + left_s), A, INTERACTIVE, 5.0)
        queue.add(hurried)

        found = queue.hand_out(loads, now=5.0)

        assert found == ([(hurried, None)] if is_too_late else [(hurried, 0)])

    @pytest.mark.parametrize(
        ("queue", "step_s", "ahead"),
        [
            (new(), None, 2),  # before anything was measured
            (measured(), None, 2),  # two steps of 10 ms, in which two sentences end
            (measured(), 0.1, 8),  # as many as allowed
        ],
    )
    def test_engine_is_given_the_sentences_of_two_steps_ahead(self, queue, step_s, ahead):
        if step_s:
            for _ in range(400):
                queue.cost_model.finished(job(), RESULT._replace(decode_s=10 * step_s))
        add(queue, 30)

        assert len(queue.hand_out([load_of(10)], now=0.0)) == ahead


class TestBatchBesideInteractive:
    """A document's sentences in an engine of 100 rows, whose step takes as long with 20 rows as twice with none."""

    @pytest.fixture
    def queue(self) -> JobQueue[Entry[Job]]:
        queue = measured()
        for rows in (10, 50, 100) * 30:
            queue.cost_model.reported(StepStats(steps=5, loop_steps=5, rows=5 * rows, busy_s=5 * (0.02 + 0.001 * rows)))
        return queue

    @staticmethod
    def rows_of(queue: JobQueue[Entry[Job]], load: EngineLoad, now: float) -> tuple[int, int]:
        """All rows, and those of batch work, once what has its turn is handed out."""
        queue.hand_out([load], now)
        return load.rows, load.batch_rows

    @pytest.mark.parametrize(("num_interactive", "num_batch"), [(1, 10), (10, 15), (60, 40)])
    def test_batch_work_makes_a_step_at_most_half_as_long_again(self, queue, num_interactive, num_batch):
        add(queue, 200, priority=BATCH)
        add(queue, num_interactive, caller=B)

        rows, batch_rows = self.rows_of(queue, EngineLoad(100, 16_384), now=0.0)

        assert rows - batch_rows == num_interactive
        assert batch_rows == pytest.approx(num_batch, abs=1)

    def test_batch_work_takes_the_whole_engine_again_when_no_interactive_sentence_has_come_for_ten_seconds(self, queue):
        load = EngineLoad(100, 16_384)
        add(queue, 200, priority=BATCH)
        add(queue, 1, caller=B)

        found = [self.rows_of(queue, load, now)[1] >= 100 for now in (0.0, 9.9, 10.1)]

        assert found == [False, False, True]

    @pytest.mark.parametrize(
        ("num_interactive", "batch_rows"),
        [(2, [10, 0]), (140, [40, 35])],  # where many interactive sentences run, a share of all engines
    )
    def test_of_several_engines_half_have_no_batch_work_beside_a_few_interactive_sentences(
        self, queue, num_interactive, batch_rows
    ):
        loads = [EngineLoad(110, 16_384), EngineLoad(110, 16_384)]
        add(queue, num_interactive, caller=B)
        add(queue, 200, priority=BATCH)

        queue.hand_out(loads, now=0.0)

        assert [load.batch_rows for load in loads] == [pytest.approx(rows, abs=3) for rows in batch_rows]

    def test_a_sentence_of_batch_work_runs_however_long_it_makes_a_step(self, queue):
        queue.add(Entry(job(priority=BATCH)._replace(params=SearchParams(beam_size=32)), A, BATCH, 0.0))
        add(queue, 1, caller=B)

        assert self.rows_of(queue, EngineLoad(100, 16_384), now=0.0) == (33, 32)

    def test_batch_work_that_has_waited_long_and_gives_way_holds_up_nobody(self, queue):
        load = EngineLoad(100, 16_384)
        add(queue, 200, priority=BATCH)
        for _ in range(3):  # the aged work has credit once interactive work was served beside it
            add(queue, 20, caller=B, at=20.0)
            rows, batch_rows = self.rows_of(queue, load, now=20.0)

        assert rows - batch_rows == 60


def test_translation_to_score_costs_what_its_tokens_cost():
    queue = measured()
    add(queue)
    before = queue.waiting_s(FULL)

    queue.add(Entry(job()._replace(params=PARAMS._replace(max_target_tokens=1), scored_ids=(6,) * 8), A, BATCH, 0.0))

    assert queue.waiting_s(FULL) - before == pytest.approx(queue.cost_model.seconds(10 + 8 + 1, 1))
