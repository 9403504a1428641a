"""Which jobs run: WAITING -> RUNNING while the budgets allow, and out again when done, cancelled or late.

Pure, synchronous and tensor-free: counts rows and tokens, and is told the time.  First come, first served.
"""

from dataclasses import dataclass, field

from service.engine.job import FailureKind, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Budgets of the running batch.  A single job over a budget still runs, alone."""

    max_rows: int = 128  # live hypotheses
    max_source_tokens: int = 16_384  # of running sentences, each counted as long as the longest
    max_encode_tokens: int = 2_048  # the same for one encoder run: running sentences wait for it between two steps

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_source_tokens", "max_encode_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, at least 1 is needed")


@dataclass(frozen=True, slots=True)
class Drop:
    """A job that ends without a result."""

    job: Job
    kind: FailureKind  # CANCELLED or DEADLINE
    was_running: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What changes before the next decoder step; drops come first, their rows are free for the starts."""

    drops: tuple[Drop, ...]
    starts: tuple[Job, ...]


@dataclass(slots=True)
class _PaddedTokens:
    """Sentences in a rectangle as wide as the longest."""

    count: int = 0
    longest: int = 0

    def area_with(self, length: int) -> int:
        return (self.count + 1) * max(self.longest, length)

    def add(self, length: int) -> None:
        self.count += 1
        self.longest = max(self.longest, length)


@dataclass(slots=True)
class Scheduler:
    """The jobs of one engine."""

    config: SchedulerConfig
    _waiting: dict[int, Job] = field(default_factory=dict)  # by id, in order of arrival
    _running: dict[int, Job] = field(default_factory=dict)
    _cancelled: set[int] = field(default_factory=set)
    _deadlines: dict[int, float] = field(default_factory=dict)  # of the jobs that have one
    _rows: int = 0

    @property
    def num_waiting(self) -> int:
        """Jobs that have not started."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Jobs that have rows."""
        return len(self._running)

    @property
    def rows(self) -> int:
        """Live hypotheses of the running jobs."""
        return self._rows

    def add(self, job: Job) -> None:
        """Queue a job behind all others."""
        self._waiting[job.id] = job
        if job.deadline is not None:
            self._deadlines[job.id] = job.deadline

    def cancel(self, job_id: int) -> None:
        """Drop the job at the next `schedule`.  An unknown id, such as one that just finished, is no error."""
        if job_id in self._waiting or job_id in self._running:
            self._cancelled.add(job_id)

    def release(self, job_id: int) -> None:
        """Take back the rows of a running job that ended."""
        job = self._running.pop(job_id)
        self._rows -= job.params.beam_size
        self._forget(job_id)

    def schedule(self, now: float) -> Plan:
        """What to drop and what to start at this moment.

        Args:
            now: on the clock of `Job.deadline`.
        """
        drops = self._drop(now)
        return Plan(drops, self._start())

    def _drop(self, now: float) -> tuple[Drop, ...]:
        cancelled = [(job_id, FailureKind.CANCELLED) for job_id in self._cancelled]
        late = [
            (job_id, FailureKind.DEADLINE)
            for job_id, deadline in self._deadlines.items()
            if deadline <= now and job_id not in self._cancelled
        ]
        return tuple(self._drop_one(job_id, kind) for job_id, kind in sorted(cancelled + late))

    def _drop_one(self, job_id: int, kind: FailureKind) -> Drop:
        job = self._running.get(job_id)
        if job is not None:
            self.release(job_id)
            return Drop(job, kind, was_running=True)
        self._forget(job_id)
        return Drop(self._waiting.pop(job_id), kind, was_running=False)

    def _forget(self, job_id: int) -> None:
        self._deadlines.pop(job_id, None)
        self._cancelled.discard(job_id)

    def _start(self) -> tuple[Job, ...]:
        starts: list[Job] = []
        encoded = _PaddedTokens()
        cached = self._cached_tokens() if self._waiting else _PaddedTokens()
        while self._waiting:
            job = next(iter(self._waiting.values()))
            if not self._fits(job, encoded, cached):
                break
            encoded.add(len(job.source_ids))
            cached.add(len(job.source_ids))
            self._rows += job.params.beam_size
            self._running[job.id] = self._waiting.pop(job.id)
            starts.append(job)
        return tuple(starts)

    def _cached_tokens(self) -> _PaddedTokens:
        longest = max((len(job.source_ids) for job in self._running.values()), default=0)
        return _PaddedTokens(len(self._running), longest)

    def _fits(self, job: Job, encoded: _PaddedTokens, cached: _PaddedTokens) -> bool:
        length = len(job.source_ids)
        if not self._running:
            return True
        return (
            self._rows + job.params.beam_size <= self.config.max_rows
            and cached.area_with(length) <= self.config.max_source_tokens
            and (encoded.count == 0 or encoded.area_with(length) <= self.config.max_encode_tokens)
        )
