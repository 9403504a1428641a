"""Which jobs are dropped: the cancelled and the late, at once and once; of those that ended, nothing is kept."""

import random
from dataclasses import replace

import pytest

from service.engine.job import FailureKind
from service.engine.scheduler import Drop, Plan, Scheduler, SchedulerConfig
from tests.fakes.roomy_scheduler import ROOMY, job, scheduler_with, started


def test_cancelled_waiting_job_never_starts():
    scheduler = scheduler_with(ROOMY, job(0), job(1), job(2))

    scheduler.cancel(1)

    assert scheduler.schedule(0.0) == Plan((Drop(job(1), FailureKind.CANCELLED, was_running=False),), (job(0), job(2)))
    assert scheduler.num_waiting == 0
    assert scheduler.schedule(0.0) == Plan((), ())


def test_cancelled_running_job_frees_its_rows_for_the_same_moment():
    scheduler = scheduler_with(replace(ROOMY, max_rows=4), job(0), job(1))
    scheduler.schedule(0.0)

    scheduler.cancel(0)

    assert scheduler.schedule(0.0) == Plan((Drop(job(0), FailureKind.CANCELLED, was_running=True),), (job(1),))
    assert (scheduler.num_running, scheduler.rows) == (1, 4)


def test_cancelling_what_is_not_there_changes_nothing():
    scheduler = scheduler_with(ROOMY, job(0))
    scheduler.schedule(0.0)
    scheduler.release(0)

    scheduler.cancel(0)
    scheduler.cancel(99)
    scheduler.add(job(0))

    assert scheduler.schedule(0.0) == Plan((), (job(0),))


def test_job_cancelled_before_its_release_does_not_come_back():
    scheduler = scheduler_with(ROOMY, job(0))
    scheduler.schedule(0.0)

    scheduler.cancel(0)
    scheduler.release(0)

    assert scheduler.schedule(0.0) == Plan((), ())


def test_cancelled_first_job_lets_the_next_of_another_size_start():
    scheduler = scheduler_with(replace(ROOMY, max_rows=8), job(0), job(1, beam_size=8), job(2))
    scheduler.schedule(0.0)

    scheduler.cancel(1)

    assert started(scheduler.schedule(0.0)) == [2]


@pytest.mark.parametrize("is_running", [True, False])
def test_job_is_dropped_when_its_deadline_has_come(is_running):
    late = job(0, deadline=10.0)
    scheduler = scheduler_with(ROOMY, late)
    if is_running:
        assert started(scheduler.schedule(9.99)) == [0]

    assert scheduler.schedule(10.0) == Plan((Drop(late, FailureKind.DEADLINE, was_running=is_running),), ())
    assert (scheduler.num_waiting, scheduler.num_running, scheduler.rows) == (0, 0, 0)
    assert scheduler.schedule(11.0) == Plan((), ())


def test_deadline_of_a_released_job_is_forgotten():
    scheduler = scheduler_with(ROOMY, job(0, deadline=10.0))
    scheduler.schedule(0.0)
    scheduler.release(0)

    assert scheduler.schedule(20.0) == Plan((), ())


def test_deadlines_of_jobs_that_ended_do_not_pile_up():
    scheduler = scheduler_with(ROOMY, job(0, deadline=10.0))
    for number in range(1, 1_000):
        scheduler.add(job(number, deadline=1e9))
        scheduler.schedule(0.0)
        scheduler.release(number)

    assert len(scheduler._deadlines) < 100
    assert [drop.job.id for drop in scheduler.schedule(10.0).drops] == [0]


def test_deadlines_of_jobs_that_ended_are_forgotten_long_before_they_pass():
    scheduler = Scheduler(SchedulerConfig(max_rows=4))

    for number in range(10_000):
        scheduler.add(job(number, beam_size=1, deadline=1e9 + number))
        (each,) = scheduler.schedule(0.0).starts
        scheduler.release(each.id)

    assert len(scheduler._deadlines) < 100


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


def test_cancelled_and_late_job_is_dropped_once_as_cancelled():
    scheduler = scheduler_with(ROOMY, job(0, deadline=10.0), job(1, deadline=10.0))

    scheduler.cancel(0)

    assert [(drop.job.id, drop.kind) for drop in scheduler.schedule(10.0).drops] == [
        (0, FailureKind.CANCELLED),
        (1, FailureKind.DEADLINE),
    ]


def test_job_that_is_cancelled_and_late_is_dropped_once_as_cancelled():
    scheduler = Scheduler(SchedulerConfig())
    scheduler.add(job(1, deadline=1.0))
    scheduler.cancel(1)

    (drop,) = scheduler.schedule(2.0).drops

    assert drop.kind is FailureKind.CANCELLED
    assert scheduler.schedule(3.0).drops == ()
