"""What the scheduler keeps does not outgrow the jobs there are, and what is late is found whatever the order."""

import random

from service.engine.job import FailureKind, Job, SearchParams
from service.engine.scheduler import Scheduler, SchedulerConfig


def job(job_id: int, deadline: float | None) -> Job:
    return Job(id=job_id, source_ids=(5, 3), params=SearchParams(beam_size=1), deadline=deadline)


def test_deadlines_of_jobs_that_ended_are_forgotten_long_before_they_pass():
    scheduler = Scheduler(SchedulerConfig(max_rows=4))

    for number in range(10_000):
        scheduler.add(job(number, deadline=1e9 + number))
        (started,) = scheduler.schedule(0.0).starts
        scheduler.release(started.id)

    assert len(scheduler._deadlines) < 100


def test_late_jobs_are_found_at_once_in_any_order_of_deadlines():
    rng = random.Random(1)
    scheduler = Scheduler(SchedulerConfig(max_rows=8))
    deadlines = {number: rng.choice([None, rng.uniform(0, 100)]) for number in range(500)}
    for number, deadline in deadlines.items():
        scheduler.add(job(number, deadline))

    ended: dict[int, float] = {}
    for now in range(101):
        plan = scheduler.schedule(float(now))
        assert all(drop.kind is FailureKind.DEADLINE for drop in plan.drops)
        ended |= {drop.job.id: float(now) for drop in plan.drops}
        for started in plan.starts:  # some end in time
            if rng.random() < 0.5:
                scheduler.release(started.id)
                ended[started.id] = -1.0

    for number, deadline in deadlines.items():
        if deadline is None:
            assert ended.get(number, -1.0) == -1.0
        elif ended[number] >= 0:
            assert ended[number] - 1 < deadline <= ended[number]


def test_job_that_is_cancelled_and_late_is_dropped_once_as_cancelled():
    scheduler = Scheduler(SchedulerConfig())
    scheduler.add(job(1, deadline=1.0))
    scheduler.cancel(1)

    (drop,) = scheduler.schedule(2.0).drops

    assert drop.kind is FailureKind.CANCELLED
    assert scheduler.schedule(3.0).drops == ()
