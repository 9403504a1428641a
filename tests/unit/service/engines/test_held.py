"""What an engine holds, against what it can run: the same sums as its scheduler's."""

import pytest

from service.engine.job import Job, SearchParams
from service.engine.scheduler import Scheduler, SchedulerConfig
from service.engines.held import Held
from service.queue.placement import Room

BUDGETS = SchedulerConfig(max_rows=32, max_source_tokens=4_096, max_encode_tokens=10**6)


def job(number: int, beam: int, source_tokens: int) -> Job:
    return Job(id=number, source_ids=(5,) * source_tokens, params=SearchParams(beam_size=beam))


@pytest.mark.parametrize(
    ("beam", "source_tokens", "runs"),
    [(4, 20, 8), (1, 20, 32), (1, 128, 32), (1, 129, 16), (2, 300, 8), (1, 1_000, 4)],
)
@pytest.mark.parametrize("lookahead", [0, 1, 3])
def test_it_has_room_for_what_the_scheduler_runs_and_what_looks_ahead(beam, source_tokens, runs, lookahead):
    held, scheduler = Held.none_of(BUDGETS), Scheduler(BUDGETS)
    given = 0
    while held.has_room(next_one := job(given, beam, source_tokens), lookahead):
        held.add(next_one)
        scheduler.add(next_one)
        given += 1
    scheduler.schedule(0.0)

    assert (scheduler.num_running, scheduler.num_waiting) == (runs, lookahead)
    assert held.runnable_rows == runs * beam


def test_short_sentences_leave_the_rows_to_decide():
    held = Held.none_of(BUDGETS)

    assert held.runnable_rows == 32
    held.add(job(1, 4, 20))
    assert (held.runnable_rows, held.share) == (32, 4 / 32)


def test_long_sentences_leave_room_for_short_ones_as_the_scheduler_does():
    held, scheduler = Held.none_of(BUDGETS), Scheduler(BUDGETS)
    jobs = [job(0, 1, 1_000), *(job(number, 1, 20) for number in range(1, 32))]
    held.add(jobs[0])
    for each in jobs:
        scheduler.add(each)
    scheduler.schedule(0.0)

    assert held.runnable_rows == scheduler.num_running == 32


def test_a_sentence_over_the_budget_runs_alone():
    held = Held.none_of(SchedulerConfig(max_rows=2, max_source_tokens=64))

    held.add(job(1, 4, 900))

    assert (held.runnable_rows, held.share) == (4, 1.0)


def test_what_is_removed_or_lost_counts_no_more():
    held = Held.none_of(BUDGETS)
    held.add(job(1, 4, 20))
    held.add(job(2, 1, 900))
    held.remove(job(2, 1, 900))
    assert (held.rows, held.source_tokens, held.work) == (4, 64, 80)

    held.clear()
    assert (held.rows, held.source_tokens, held.work, held.share) == (0, 0, 0, 0.0)


def test_room_is_what_the_budgets_leave():
    held = Held.none_of(BUDGETS)
    assert held.room == Room(work=0, free_rows=32, free_tokens=4_096)

    held.add(job(1, 4, 20))
    held.add(job(2, 1, 900))

    assert held.room == Room(work=80 + 900, free_rows=27, free_tokens=4_096 - 64 - 1_024)
