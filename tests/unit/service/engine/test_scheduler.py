"""Who starts when and who is dropped: order, budgets, deadlines, and what is looked ahead at."""

import random
from dataclasses import replace

import numpy as np
import pytest

from service.engine.scheduler import Drop, Plan, Scheduler
from service.engine.wire import FailureKind, Job, SchedulerConfig, SearchParams

ROOMY = SchedulerConfig(max_rows=1_000, max_source_tokens=10_000, max_encode_tokens=10_000)  # has room for all jobs


def job(job_id: int, *, beam_size: int = 4, length: int = 5, deadline: float | None = None) -> Job:
    return Job(id=job_id, source_ids=(4,) * length, params=SearchParams(beam_size=beam_size), deadline=deadline)


def scheduler_with(config: SchedulerConfig, *jobs: Job) -> Scheduler:
    scheduler = Scheduler(config)
    for each in jobs:
        scheduler.add(each)
    return scheduler


def started(plan: Plan) -> list[int]:
    return [each.id for each in plan.starts]


def ahead(scheduler: Scheduler) -> list[int]:
    return [each.id for each in scheduler.ahead()]


def test_rows_are_taken_in_order_and_free_at_once_when_a_job_is_released_or_dropped():
    scheduler = scheduler_with(replace(ROOMY, max_rows=8), job(0), job(1, beam_size=8), job(2, beam_size=1), job(3))
    assert started(scheduler.schedule(0.0)) == [0]  # nobody overtakes the second, which does not fit yet
    scheduler.release(0)
    assert started(scheduler.schedule(0.0)) == [1]

    scheduler.cancel(1)
    scheduler.cancel(2)

    drops = [
        Drop(job(1, beam_size=8), FailureKind.CANCELLED, was_running=True),
        Drop(job(2, beam_size=1), FailureKind.CANCELLED, was_running=False),
    ]
    assert scheduler.schedule(0.0) == Plan(drops, [job(3)])
    assert (scheduler.num_waiting, scheduler.num_running, scheduler.rows) == (0, 1, 4)
    assert scheduler.schedule(0.0) == Plan([], [])


def test_job_larger_than_every_budget_runs_alone():
    tight = SchedulerConfig(max_rows=2, max_source_tokens=3, max_encode_tokens=3)
    scheduler = scheduler_with(tight, job(0, beam_size=1, length=1), job(1, beam_size=5, length=9), job(2, beam_size=1))

    assert started(scheduler.schedule(0.0)) == [0]
    scheduler.release(0)
    assert started(scheduler.schedule(0.0)) == [1]
    assert started(scheduler.schedule(0.0)) == []
    scheduler.release(1)
    assert started(scheduler.schedule(0.0)) == [2]


def test_what_starts_next_is_looked_ahead_in_the_order_of_arrival():
    config = replace(ROOMY, max_rows=8, max_ahead_tokens=15)
    scheduler = scheduler_with(config, *(job(n, length=5) for n in range(7)))

    plan = scheduler.schedule(0.0)

    assert (started(plan), ahead(scheduler)) == ([0, 1], [2, 3, 4])
    assert scheduler.num_waiting == 5
    scheduler.release(0)
    plan = scheduler.schedule(0.0)
    assert (started(plan), ahead(scheduler)) == ([2], [3, 4, 5])


@pytest.mark.parametrize("seed", range(5))
def test_budgets_hold_and_every_job_ends_whatever_happens(seed):
    rng = np.random.default_rng(seed)
    config = SchedulerConfig(max_rows=20, max_source_tokens=400, max_encode_tokens=200, max_ahead_tokens=100)
    scheduler = Scheduler(config)
    running: dict[int, Job] = {}
    open_ids = set(range(100))
    arrivals = iter(range(100))
    for now in range(400):
        for job_id in [next(arrivals, None) for _ in range(int(rng.integers(0, 3)))]:
            if job_id is not None:
                deadline = float(now + rng.integers(1, 30)) if rng.random() < 0.3 else None
                sizes = {"beam_size": int(rng.integers(1, 9)), "length": int(rng.choice([3, 20, 70]))}
                scheduler.add(job(job_id, deadline=deadline, **sizes))
        if rng.random() < 0.2:
            scheduler.cancel(int(rng.integers(0, 100)))
        plan = scheduler.schedule(float(now))
        for drop in plan.drops:
            assert (running.pop(drop.job.id, None) is not None) == drop.was_running
            open_ids.remove(drop.job.id)
        running |= {each.id: each for each in plan.starts}
        assert scheduler.num_running == len(running)
        assert scheduler.rows == sum(each.params.beam_size for each in running.values()) <= config.max_rows
        assert sum(width_of(each) for each in running.values()) <= config.max_source_tokens
        assert sum(width_of(each) for each in plan.starts) <= config.max_encode_tokens
        next_ones = scheduler.ahead()
        assert len(next_ones) * max((len(each.source_ids) for each in next_ones), default=0) <= 100
        assert not ({each.id for each in next_ones} & ({*running, *(drop.job.id for drop in plan.drops)}))
        for job_id in [job_id for job_id in running if rng.random() < 0.3]:
            scheduler.release(job_id)
            del running[job_id]
            open_ids.remove(job_id)

    assert not open_ids


def width_of(each: Job) -> int:
    return each.source_width


class TestMemory:
    """Budgets after memory was short."""

    CONFIG = SchedulerConfig(
        max_rows=100, max_source_tokens=64, max_encode_tokens=64, max_ahead_tokens=64, encoder_run_tokens=5
    )

    def rows_at(self, scheduler: Scheduler, *times: float) -> list[int]:
        """The budget of rows that a step at each time has."""
        rows = []
        for now in times:
            scheduler.schedule(now)
            rows.append(scheduler.config.max_rows)
        return rows

    def test_budgets_grow_back_step_by_step_to_what_was_given(self):
        scheduler = Scheduler(self.CONFIG)
        for _ in range(3):
            scheduler.halve(now=1_000.0)
        assert scheduler.config.encoder_run_tokens == 1

        assert self.rows_at(scheduler, 1_059.0, 1_060.0, 1_119.0, 1_120.0, 1_180.0, 1_240.0, 9_999.0) == [
            *(12, 24, 24, 48, 96, 100, 100)
        ]
        assert scheduler.config == self.CONFIG


def test_late_jobs_are_found_at_once_in_any_order_of_deadlines():
    rng = random.Random(1)
    scheduler = Scheduler(SchedulerConfig(max_rows=8))
    deadlines = {number: rng.choice([None, rng.uniform(0, 100)]) for number in range(500)}
    for number, deadline in deadlines.items():
        scheduler.add(job(number, beam_size=1, deadline=deadline))

    ended: dict[int, float] = {}
    for now in range(101):
        plan = scheduler.schedule(float(now))
        assert all(drop.kind is FailureKind.DEADLINE for drop in plan.drops)
        ended |= {drop.job.id: float(now) for drop in plan.drops}
        for each in plan.starts:  # some end in time
            if rng.random() < 0.5:
                scheduler.release(each.id)
                ended[each.id] = -1.0

    for number, deadline in deadlines.items():
        if deadline is None:
            assert ended.get(number, -1.0) == -1.0
        elif ended[number] >= 0:
            assert ended[number] - 1 < deadline <= ended[number]
