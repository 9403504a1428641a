"""Jobs run to their end in an engine of this process."""

from collections.abc import Iterable, Sequence

import numpy as np

from service.engine.job import Hypothesis, Job, JobResult, Outcome, SearchParams
from service.engine.loop import EngineLoop
from service.engine.runner import Runner


def run(loop: EngineLoop, jobs: Iterable[Job] = (), arrivals: np.random.Generator | None = None) -> dict[int, Outcome]:
    """Submit these, all at once or a few before each step, and step until nothing is left; each job's only outcome."""
    waiting, outcomes = list(jobs), dict[int, Outcome]()
    while waiting or not loop.is_idle:
        num_joining = len(waiting) if arrivals is None else int(arrivals.integers(0, 5))
        for job in waiting[:num_joining]:
            loop.submit(job)
        del waiting[:num_joining]
        for outcome in loop.step():
            assert outcome.job_id not in outcomes
            outcomes[outcome.job_id] = outcome
    return outcomes


def hypotheses(outcome: Outcome) -> tuple[Hypothesis, ...]:
    """Those of a job that has a result."""
    assert isinstance(outcome, JobResult), outcome
    return outcome.hypotheses


def translate(runner: Runner, sources: Sequence[Sequence[int]], params: SearchParams) -> list[tuple[Hypothesis, ...]]:
    """What each source gets, all of them in one batch."""
    jobs = [Job(id=number, source_ids=tuple(source), params=params) for number, source in enumerate(sources)]
    outcomes = run(EngineLoop(runner), jobs)
    return [hypotheses(outcomes[job.id]) for job in jobs]
