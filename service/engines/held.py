"""What an engine holds against what it can run, as its scheduler counts: rows and source tokens.

Pure; knows sentences by their beam and their length.
"""

from dataclasses import dataclass

from service.engine.job import Job
from service.engine.scheduler import SMALLEST_WIDTH, SchedulerConfig, source_width
from service.queue.placement import Room, Share


@dataclass(slots=True)
class Held:
    """The sentences given to one engine that have no answer yet, in sums."""

    max_rows: int  # that it runs at most
    max_source_tokens: int  # of them, each sentence counted with its `source_width`
    sentences: int = 0
    rows: int = 0
    source_tokens: int = 0
    work: int = 0  # what they cost it, see `Share`

    @classmethod
    def none_of(cls, budgets: SchedulerConfig) -> "Held":
        """Nothing, of an engine with these budgets."""
        return cls(max_rows=budgets.max_rows, max_source_tokens=budgets.max_source_tokens)

    def add(self, job: Job) -> None:
        """It is given this one."""
        share = Share.of(job)
        self.sentences += 1
        self.rows += share.rows
        self.source_tokens += share.source_width
        self.work += share.work

    def remove(self, job: Job) -> None:
        """It has answered, or never began."""
        share = Share.of(job)
        self.sentences -= 1
        self.rows -= share.rows
        self.source_tokens -= share.source_width
        self.work -= share.work

    def clear(self) -> None:
        """All that it held is lost."""
        self.sentences = self.rows = self.source_tokens = self.work = 0

    def has_room(self, job: Job, lookahead_jobs: int) -> bool:
        """Whether it may be given this one, holding so many such sentences more than it can run."""
        rows, tokens = job.params.beam_size, source_width(len(job.source_ids))
        return (
            self.rows + rows <= self.max_rows + lookahead_jobs * rows
            and self.source_tokens + tokens <= self.max_source_tokens + lookahead_jobs * tokens
        )

    @property
    def room(self) -> Room:
        """What it can take and run at once."""
        return Room(self.work, self.max_rows - self.rows, self.max_source_tokens - self.source_tokens)

    @property
    def runnable_rows(self) -> int:
        """Rows that it can run: of what it holds as many as its budgets allow, and short sentences of one row beside.

        At least those of one of its sentences, which runs alone where it is over a budget.
        """
        free_tokens = self.max_source_tokens - self.source_tokens
        if free_tokens >= 0:
            runnable = min(self.max_rows, self.rows + free_tokens // SMALLEST_WIDTH)
        else:
            runnable = min(self.max_rows, self.rows * self.max_source_tokens // self.source_tokens)
        return max(runnable, self.rows // self.sentences) if self.sentences else self.max_rows

    @property
    def share(self) -> float:
        """Of what it can run; above 1 some wait inside."""
        return self.rows / self.runnable_rows
