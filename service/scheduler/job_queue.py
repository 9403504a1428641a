"""The jobs that wait for one model's engines: their order, how long they will wait, which engine takes which.

The job queue holds the fair queue and the cost model, and hands each job to the least loaded engine that has room.
Room is counted as the engine's scheduler counts it: in rows and in source tokens.  Pure and synchronous: the queue is
told the time and the loads of the engines.  It knows neither processes nor futures, so a simulation can drive it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from service.call import Caller
from service.engine.wire import SMALLEST_WIDTH, Job, SearchParams
from service.records import Priority
from service.scheduler.cost import CostModel
from service.scheduler.fair_queue import Entry, FairQueue

QueuedJob = TypeVar("QueuedJob", bound=Entry[Job])

# Batch work may make a step this much longer than it is for interactive sentences alone: each of these runs in all of
# an engine's steps, and full batches of a document's sentences made a short text ten times as long (bench_files).
_SLOWER = 0.5


@dataclass(slots=True, eq=False)
class EngineLoad:
    """Sums over the jobs that one engine holds, beside what the engine can run at once."""

    max_rows: int
    max_source_tokens: int  # each sentence counts with its `Job.source_width`
    jobs: int = 0
    rows: int = 0
    batch_rows: int = 0  # of these, those of batch work
    source_tokens: int = 0
    work: int = 0  # rows x source tokens: a sentence takes about as many steps as it has source tokens

    def add(self, job: Job, sign: int = 1) -> None:
        """Count a job that the engine is given; with -1, stop counting one that it has answered."""
        rows, tokens = job.params.num_rows, len(job.source_ids)
        self.jobs += sign
        self.rows += sign * rows
        self.batch_rows += sign * rows * job.is_batch
        self.source_tokens += sign * job.source_width
        self.work += sign * rows * tokens

    def clear(self) -> None:
        """Count nothing: the engine has lost its jobs."""
        self.jobs = self.rows = self.batch_rows = self.source_tokens = self.work = 0

    def has_room(self, rows: int, width: int, lookahead_jobs: int) -> bool:
        """Whether the engine may take a job of this size while it holds up to so many more than it can run."""
        return (
            self.rows + rows <= self.max_rows + lookahead_jobs * rows
            and self.source_tokens + width <= self.max_source_tokens + lookahead_jobs * width
        )

    def gives_way(self, job: Job, fixed_rows: float) -> bool:
        """Whether a job is batch work and has to wait, because it would slow interactive sentences down too much.

        Args:
            fixed_rows: how many rows take as long as the part of a step that does not depend on rows; one sentence may
                always run.  Zero: a step is to be as short as it can be, unless there are many interactive rows in it.
        """
        if not job.is_batch or (fixed_rows and not self.batch_rows):
            return False
        return self.batch_rows + job.params.num_rows > _SLOWER * (fixed_rows + self.rows - self.batch_rows)

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
    return min(sum([load.rows for load in loads]) + more, sum([load.runnable_rows for load in loads])) / len(loads)


def choose_engine(
    loads: Sequence[EngineLoad], job: Job, lookahead_jobs: int, fixed_rows: Sequence[float] = ()
) -> int | None:
    """The number of the engine that takes the job: the one with the smallest share of its rows taken, then of work.

    Args:
        fixed_rows: of each engine, see `EngineLoad.gives_way`; none where no batch work gives way.

    Returns:
        None if no engine has room, see `EngineLoad.has_room`.
    """
    rows, width = job.params.num_rows, job.source_width
    best: int | None = None
    least = inf, inf
    for number, load in enumerate(loads):
        if load.has_room(rows, width, lookahead_jobs) and not (fixed_rows and load.gives_way(job, fixed_rows[number])):
            taken = load.rows / load.runnable_rows, load.work
            if taken < least:
                best, least = number, taken
    return best


# An engine holds sentences for two steps beyond those that run, so that no step passes with a row free while the
# scheduler process hears of it, and at least for as long as that process may be busy with something else.  Sentences
# inside an engine are served first come, first served: more of them would be delay for clients who ask seldom.
_LOOKAHEAD_STEPS = 2.0
_LOOKAHEAD_S = 0.01
_MEMORY = 64  # sentences over which an average is taken
_FIRST_LOOKAHEAD_JOBS = 2  # before anything was measured
_FIRST_FIXED_ROWS = 32.0  # likewise: four sentences of a usual beam are then half of a step
# So long after an interactive sentence the next one is expected.  It would find the engines full, and full engines take
# half a second to get empty.
_EXPECTED_S = 10.0


class JobQueue(Generic[QueuedJob]):
    """Jobs of all callers."""

    def __init__(self, *, aging_s: float, max_lookahead_jobs: int) -> None:
        """Create an empty queue.

        Args:
            aging_s: see `FairQueue`.
            max_lookahead_jobs: maximum number of jobs that an engine is given beyond what it can run.
        """
        self._queue: FairQueue[QueuedJob] = FairQueue(aging_s=aging_s)
        self.cost_model = CostModel()  # told by those who hear of finished jobs and of the engines' steps
        self._max_lookahead_jobs = max_lookahead_jobs
        self.typical_tokens = 0.0  # of a sentence: a moving average over what was added
        self._interactive_at = -inf  # when interactive work last came, or had its turn

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[QueuedJob]:
        """The jobs that wait, in no order."""
        return iter(self._queue)

    @property
    def source_tokens(self) -> int:
        """Number of source tokens that wait."""
        return sum(len(queued.item.source_ids) for queued in self)

    def add(self, queued: QueuedJob) -> None:
        """Put a job at the end of its caller's line."""
        job = queued.item
        queued.cost = self.cost_model.cost(job.num_tokens, job.params)
        self.typical_tokens += (len(job.source_ids) - self.typical_tokens) / (_MEMORY if self.typical_tokens else 1)
        if not job.is_batch:
            self._interactive_at = queued.arrived_at
        self._queue.push(queued)

    def remove(self, queued: QueuedJob) -> None:
        """Take a job out; one that is not in the queue any more is no error."""
        self._queue.remove(queued)

    def hand_out(self, loads: Sequence[EngineLoad], now: float) -> list[tuple[QueuedJob, int | None]]:
        """Take out the jobs whose turn it is, as far as the engines have room, and count them in the engines' loads.

        Args:
            loads: of the engines that are up.
            now: time.monotonic().

        Returns:
            Each job with the number of the engine that takes it; None: no engine could finish it before its deadline.
        """
        found: list[tuple[QueuedJob, int | None]] = []
        lookahead_jobs, may_be_batch = self._lookahead_jobs(), True
        while loads and (queued := self._queue.peek(now, may_be_batch=may_be_batch)) is not None:
            job = queued.item
            if self._is_hopeless(job, loads, now):
                self._queue.remove(queued)
                found.append((queued, None))
                continue
            fixed_rows = self._fixed_rows(loads, now) if job.is_batch else ()
            number = choose_engine(loads, job, lookahead_jobs, fixed_rows)
            if number is None and fixed_rows and choose_engine(loads, job, lookahead_jobs) is not None:
                may_be_batch = False  # what gives way holds up nobody
                continue
            if number is None:
                break
            if not job.is_batch:
                self._interactive_at = now
            self._queue.serve(queued)
            loads[number].add(job)
            found.append((queued, number))
        return found

    def waiting_s(self, loads: Sequence[EngineLoad]) -> float:
        """Seconds of work that waits, here and in the engines."""
        return self.cost_model.seconds(self._queue.cost + max(0.0, self._held_beyond(loads)), len(loads))

    def forecast(
        self,
        sources: Sequence[int],
        params: SearchParams,
        *,
        caller: Caller,
        priority: Priority,
        loads: Sequence[EngineLoad],
    ) -> tuple[float, float]:
        """When sentences with so many source tokens each would be done if they came now.

        Returns:
            Seconds of work that goes before them, and seconds until the last one is done; zeros before enough was
            measured.
        """
        cost_model = self.cost_model
        total = sum([cost_model.cost(source_tokens, params) for source_tokens in sources])
        ahead = self._queue.cost_ahead(caller, priority, total) + self._held_beyond(loads)
        ahead_s = cost_model.seconds(ahead, len(loads))
        wait_s = cost_model.seconds(ahead + total, len(loads))  # until the last one has its place
        if wait_s <= 0.0 and not sum([load.rows for load in loads]):  # whatever was measured, it can correct it
            return ahead_s, 0.0
        rows = rows_beside(loads, params.num_rows * len(sources))
        return ahead_s, wait_s + cost_model.own_s(max(sources, default=0), params, rows)

    def _lookahead_jobs(self) -> int:
        """How many jobs an engine is given beyond those that it can run."""
        rate, cost = self.cost_model.rate, self._queue.typical_cost
        if not rate or not cost:
            return min(self._max_lookahead_jobs, _FIRST_LOOKAHEAD_JOBS)
        seconds = max(_LOOKAHEAD_S, _LOOKAHEAD_STEPS * self.cost_model.step_s.mean)
        return min(self._max_lookahead_jobs, max(1, round(seconds * rate / cost)))

    def _fixed_rows(self, loads: Sequence[EngineLoad], now: float) -> list[float]:
        """Return what `choose_engine` wants; half of several engines are kept free for a few interactive sentences."""
        growth = self.cost_model.step_time.growth
        fixed_rows = _FIRST_FIXED_ROWS if growth is None else 1.0 / growth if growth else inf
        is_never_slow = all(_SLOWER * fixed_rows >= load.max_rows for load in loads)
        if now - self._interactive_at > _EXPECTED_S or is_never_slow:
            return []
        num_free = len(loads) // 2
        return [fixed_rows] * (len(loads) - num_free) + [0.0] * num_free

    def _is_hopeless(self, job: Job, loads: Sequence[EngineLoad], now: float) -> bool:
        """Whether a job that goes to an engine now is too late; never if the engines have nothing else to do."""
        if job.deadline is None or not sum([load.rows for load in loads]):
            return False
        wait_s = self.cost_model.seconds(self._held_beyond(loads), len(loads))
        least_s = self.cost_model.least_s(len(job.source_ids), job.params, rows_beside(loads, job.params.num_rows))
        return now + wait_s + least_s > job.deadline

    def _held_beyond(self, loads: Sequence[EngineLoad]) -> float:
        """Row-steps that the engines hold beyond what they can run; below zero, what they could still start."""
        return sum([load.rows - load.runnable_rows for load in loads]) * self.cost_model.row_cost
