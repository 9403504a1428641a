"""Chooses the engine that takes a job: the least loaded one that has room.

An engine's load is counted as its scheduler counts: in rows and in source tokens.  Pure; knows neither the queue nor
the engine processes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from service.engine.job import SMALLEST_WIDTH, Job


@dataclass(slots=True, eq=False)
class EngineLoad:
    """Sums over the jobs that one engine holds, beside what the engine can run at once."""

    max_rows: int
    max_source_tokens: int  # each sentence counts with its `Job.source_width`
    jobs: int = 0
    rows: int = 0
    source_tokens: int = 0
    work: int = 0  # rows x source tokens: a sentence takes about as many steps as it has source tokens

    def add(self, job: Job, sign: int = 1) -> None:
        """Count a job that the engine is given."""
        rows, tokens = job.params.num_rows, len(job.source_ids)
        self.jobs += sign
        self.rows += sign * rows
        self.source_tokens += sign * job.source_width
        self.work += sign * rows * tokens

    def remove(self, job: Job) -> None:
        """Stop counting a job that the engine has answered."""
        self.add(job, -1)

    def clear(self) -> None:
        """Count nothing: the engine has lost its jobs."""
        self.jobs = self.rows = self.source_tokens = self.work = 0

    def has_room(self, job: Job, lookahead_jobs: int) -> bool:
        """Whether the engine may take this job while it holds up to so many such jobs beyond what it can run."""
        rows, tokens = job.params.num_rows, job.source_width
        return (
            self.rows + rows <= self.max_rows + lookahead_jobs * rows
            and self.source_tokens + tokens <= self.max_source_tokens + lookahead_jobs * tokens
        )

    @property
    def runnable_rows(self) -> int:
        """Rows that the engine can run: those its budgets allow of what it holds, and short sentences of one row more.

        At least the rows of one of its sentences, because a sentence that is over a budget runs alone.
        """
        if not self.jobs:
            return self.max_rows
        free_tokens = self.max_source_tokens - self.source_tokens
        if free_tokens >= 0:
            runnable = self.rows + free_tokens // SMALLEST_WIDTH
        else:
            runnable = self.rows * self.max_source_tokens // self.source_tokens
        return max(min(self.max_rows, runnable), self.rows // self.jobs)


def rows_beside(loads: Sequence[EngineLoad], more: int) -> float:
    """Rows that each engine runs after so many more have come, on average."""
    return min(sum(load.rows for load in loads) + more, sum(load.runnable_rows for load in loads)) / len(loads)


def choose_engine(loads: Sequence[EngineLoad], job: Job, lookahead_jobs: int) -> int | None:
    """The number of the engine that takes the job: the one with the smallest share of its rows taken, then of work.

    Returns:
        None if no engine has room, see `EngineLoad.has_room`.
    """
    with_room = (number for number, load in enumerate(loads) if load.has_room(job, lookahead_jobs))
    return min(
        with_room,
        key=lambda number: (loads[number].rows / loads[number].runnable_rows, loads[number].work),
        default=None,
    )
