"""A scheduler with room for all jobs of a test, and jobs for it."""

from service.engine.scheduler import Plan, Scheduler
from service.engine.wire import Job, SchedulerConfig, SearchParams

ROOMY = SchedulerConfig(max_rows=1_000, max_source_tokens=10_000, max_encode_tokens=10_000)


def job(job_id: int, *, beam_size: int = 4, length: int = 5, deadline: float | None = None) -> Job:
    return Job(id=job_id, source_ids=(4,) * length, params=SearchParams(beam_size=beam_size), deadline=deadline)


def scheduler_with(config: SchedulerConfig, *jobs: Job) -> Scheduler:
    scheduler = Scheduler(config)
    for each in jobs:
        scheduler.add(each)
    return scheduler


def started(plan: Plan) -> list[int]:
    return [each.id for each in plan.starts]
