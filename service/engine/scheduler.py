"""Which jobs run, and which of them together.

WAITING -> RUNNING while the budgets allow, and out again when done, cancelled or late.

Pure, synchronous and tensor-free: counts rows and tokens, and is told the time.  First come, first served.
"""

from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import NamedTuple, TypeVar

from service.engine.wire import BUDGETS, FailureKind, Job, SchedulerConfig, scored_shape

_Other = TypeVar("_Other")

# Without an error of memory, after which budgets that were halved are doubled; twice as long each time that this was
# too much, so that where memory has become less for good, few batches fail for finding out.
_GROW_AFTER_S = 60.0
_MAX_GROW_AFTER_S = 3_600.0
_ENDED_DEADLINES = 64  # of jobs that have ended, kept beside as many as there are jobs


@dataclass(frozen=True, slots=True)
class Drop:
    """A job that ends without a result."""

    job: Job
    kind: FailureKind  # CANCELLED or DEADLINE
    was_running: bool


class Plan(NamedTuple):
    """What changes before the next decoder step; drops come first, their rows are free for the starts."""

    drops: Sequence[Drop]
    starts: Sequence[Job]


@dataclass(slots=True)
class Scheduler:
    """The jobs of one engine."""

    config: SchedulerConfig  # the budgets that hold now: those given, or less after memory was short
    # By id, in order of arrival.  A plain dict looks for its first entry in all places that were ever taken before it:
    # 70 us a sentence with 100,000 waiting (bench_growth).
    _waiting: OrderedDict[int, Job] = field(default_factory=OrderedDict)
    _running: dict[int, Job] = field(default_factory=dict)
    _cancelled: set[int] = field(default_factory=set)
    _deadlines: list[tuple[float, int]] = field(default_factory=list)  # a heap: deadline, id; also of jobs that ended
    rows: int = 0  # live hypotheses of the running jobs
    _source_tokens: int = 0  # of the running jobs
    _given: SchedulerConfig = field(init=False)
    _resized_at: float | None = None  # when the budgets last changed; None: never, or that is forgotten
    _has_grown: bool = False  # whether the budgets have grown since memory was short last
    _grow_after_s: float = _GROW_AFTER_S

    def __post_init__(self) -> None:
        self._given = self.config

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def add(self, job: Job) -> None:
        """Queue a job behind all others."""
        self._waiting[job.id] = job
        if job.deadline is not None:
            heappush(self._deadlines, (job.deadline, job.id))

    def cancel(self, job_id: int) -> None:
        """Drop the job at the next `schedule`.  An unknown id, such as one that just finished, is no error."""
        if self._has(job_id):
            self._cancelled.add(job_id)

    def halve(self, now: float) -> None:
        """Halve the budgets because memory was short; they grow again after a while without a shortage."""
        halves = {name: max(1, getattr(self.config, name) // 2) for name in BUDGETS}
        self.config = replace(self.config, **halves)
        if self._has_grown:
            self._grow_after_s = min(2 * self._grow_after_s, _MAX_GROW_AFTER_S)
        self._resized_at, self._has_grown = now, False

    def release(self, job_id: int) -> None:
        """Free the rows of a running job that ended."""
        job = self._running.pop(job_id)
        self.rows -= job.params.num_rows
        self._source_tokens -= job.source_width
        self._cancelled.discard(job_id)
        assert self._running or not (self.rows or self._source_tokens), "the budgets leak"

    def schedule(self, now: float, *, may_start: bool = True, encoded: Container[int] | None = None) -> Plan:
        """Return what to drop and what to start at this moment.

        Args:
            now: on the clock of `Job.deadline`.
            may_start: whether anything may.
            encoded: ids of the jobs that may; None: all may.
        """
        self._grow(now)
        return Plan(self._drop(now), self._start(encoded) if may_start else ())

    def ahead(self) -> list[Job]:
        """Return what starts next, once there is room: worth encoding together with what starts now."""
        ahead, longest = list[Job](), 0
        for job in self._waiting.values():
            longest = max(longest, len(job.source_ids))
            if (len(ahead) + 1) * longest > self.config.max_ahead_tokens:
                break
            ahead.append(job)
        return ahead

    def _grow(self, now: float) -> None:
        if self._resized_at is None or now - self._resized_at < self._grow_after_s:
            return
        if self.config == self._given:  # it was enough all that time
            self._resized_at, self._has_grown, self._grow_after_s = None, False, _GROW_AFTER_S
            return
        doubles = {name: min(getattr(self._given, name), 2 * getattr(self.config, name)) for name in BUDGETS}
        self.config = replace(self.config, **doubles)
        self._resized_at, self._has_grown = now, True

    def _drop(self, now: float) -> list[Drop]:
        if len(self._deadlines) > 2 * (self.num_waiting + self.num_running) + _ENDED_DEADLINES:
            self._deadlines = [entry for entry in self._deadlines if self._has(entry[1])]
            heapify(self._deadlines)
        if not self._cancelled and (not self._deadlines or self._deadlines[0][0] > now):
            return []
        kinds = dict.fromkeys(self._cancelled, FailureKind.CANCELLED)
        while self._deadlines and self._deadlines[0][0] <= now:
            _, job_id = heappop(self._deadlines)
            if self._has(job_id):
                kinds.setdefault(job_id, FailureKind.DEADLINE)
        drops: list[Drop] = []
        for job_id, kind in sorted(kinds.items()):
            job = self._running.get(job_id)
            if job is not None:
                self.release(job_id)
                drops.append(Drop(job, kind, was_running=True))
            else:
                self._cancelled.discard(job_id)
                drops.append(Drop(self._waiting.pop(job_id), kind, was_running=False))
        return drops

    def _has(self, job_id: int) -> bool:
        return job_id in self._waiting or job_id in self._running

    def _start(self, encoded: Container[int] | None) -> list[Job]:
        starts: list[Job] = []
        encode_tokens, config = 0, self.config
        for job in self._waiting.values():
            if encoded is not None and job.id not in encoded:
                break
            num_rows, width = job.params.num_rows, job.source_width
            started = width + len(job.scored_ids or ())
            has_room = (
                self.rows + num_rows <= config.max_rows
                and self._source_tokens + width <= config.max_source_tokens
                and (encode_tokens == 0 or encode_tokens + started <= config.max_encode_tokens)
            )
            if self._running and not has_room:
                break
            encode_tokens += started
            self._source_tokens += width
            self.rows += num_rows
            self._running[job.id] = job
            starts.append(job)
        for job in starts:
            del self._waiting[job.id]
        return starts


def encoder_batches(jobs: Iterable[Job], max_tokens: int) -> Iterator[Sequence[Job]]:
    """Yield jobs in runs of the encoder: of similar length, and no more tokens than that, padding included."""
    batch: list[Job] = []
    for job in sorted(jobs, key=lambda job: len(job.source_ids)):
        if batch and (len(batch) + 1) * len(job.source_ids) > max_tokens:
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch


def scorer_batches(jobs: Iterable[tuple[Job, _Other]], max_tokens: int) -> Iterator[list[tuple[Job, _Other]]]:
    """Yield jobs that are scored together, each with what belongs to it.

    They are of one shape, and have no more tokens of both sides than that, padding included.
    """

    def shape(encoded: tuple[Job, object]) -> tuple[int, int]:
        return scored_shape(len(encoded[0].source_ids), len(encoded[0].scored_ids or ()) + 1)

    for lengths, alike in groupby(sorted(jobs, key=shape), key=shape):
        batch: list[tuple[Job, _Other]] = []
        for encoded in alike:
            if batch and (len(batch) + 1) * sum(lengths) > max_tokens:
                yield batch
                batch = []
            batch.append(encoded)
        yield batch
