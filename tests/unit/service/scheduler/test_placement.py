"""Loads of engines, counted as their schedulers count, and the engine that takes the next job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.scheduler import Scheduler
from service.engine.wire import Job, SchedulerConfig, SearchParams
from service.scheduler.job_queue import EngineLoad, choose_engine, rows_beside

JOBS = st.lists(st.tuples(st.integers(1, 16), st.integers(1, 300)), max_size=30)  # beam, source tokens


def job(beam_size: int = 1, source_tokens: int = 10) -> Job:
    return Job(id=0, source_ids=(5,) * source_tokens, params=SearchParams(beam_size=beam_size))


def load_of(*jobs: Job, max_rows: int = 8, max_source_tokens: int = 4_096) -> EngineLoad:
    load = EngineLoad(max_rows, max_source_tokens)
    for one in jobs:
        load.add(one)
    return load


def num_taken(load: EngineLoad, one: Job, lookahead_jobs: int) -> int:
    taken = 0
    while load.has_room(one.params.num_rows, one.source_width, lookahead_jobs):
        load.add(one)
        taken += 1
    return taken


@pytest.mark.parametrize(
    ("one", "lookahead_jobs", "taken"),
    [
        (job(2), 0, 4),
        (job(2), 3, 7),
        (job(1, source_tokens=2_000), 0, 2),  # each as wide as 2,048
        (job(1, source_tokens=2_000), 1, 3),
        (job(16), 0, 0),  # which an idle engine runs alone: it is looked ahead to
        (job(16), 1, 1),
    ],
)
def test_engine_takes_what_it_can_run_and_the_jobs_to_look_ahead(one, lookahead_jobs, taken):
    assert num_taken(load_of(), one, lookahead_jobs) == taken


@given(JOBS)
def test_what_has_room_without_looking_ahead_the_engine_starts_at_once(jobs):
    budgets = SchedulerConfig(max_rows=32, max_source_tokens=1_024, max_encode_tokens=100_000)
    scheduler, load = Scheduler(budgets), EngineLoad(32, 1_024)
    for number, (beam_size, source_tokens) in enumerate(jobs):
        one = Job(id=number, source_ids=(5,) * source_tokens, params=SearchParams(beam_size=beam_size))
        if load.has_room(one.params.num_rows, one.source_width, 0):
            load.add(one)
            scheduler.add(one)

    scheduler.schedule(0.0)

    assert (scheduler.num_waiting, scheduler.rows) == (0, load.rows)


@given(JOBS)
def test_load_is_nothing_again_when_every_job_has_left(jobs):
    load = load_of(*(job(*one) for one in jobs))
    for one in jobs:
        load.add(job(*one), -1)

    assert (load.jobs, load.rows, load.source_tokens, load.work) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("load", "runnable"),
    [
        (load_of(), 8),
        (load_of(job(2)), 8),
        (load_of(job(2, source_tokens=4_000)), 2),  # no room for another source
        (load_of(job(2, source_tokens=4_000), job(2, source_tokens=4_000)), 2),  # one of them waits
        (load_of(job(16)), 16),  # alone
    ],
)
def test_runnable_rows_are_those_that_all_budgets_allow(load, runnable):
    assert load.runnable_rows == runnable


def test_more_rows_spread_over_the_engines_as_far_as_they_can_run():
    loads = [load_of(job(2)), load_of(job(2, source_tokens=4_000)), load_of()]  # 18 of their rows can run

    assert (rows_beside(loads, 5), rows_beside(loads, 500)) == (3.0, 6.0)


@pytest.mark.parametrize(
    ("loads", "chosen"),
    [
        ([load_of(job(2)), load_of(), load_of(job(1))], 1),
        ([load_of(job(2)), load_of(job(4), max_rows=32)], 1),  # rows count as a share of what the engine can run
        ([load_of(job(2, 30)), load_of(job(2, 20))], 1),  # of equal rows the least work
        ([load_of(job(8)), load_of(job(8))], None),
        ([], None),
    ],
)
def test_job_goes_to_the_least_loaded_engine_with_room(loads, chosen):
    assert choose_engine(loads, job(), lookahead_jobs=0) == chosen
