"""The jobs that wait for one model's engines: their order, how long they will wait, and which cannot be in time.

Holds the fair queue and the cost model and hands jobs out to the engines.  Pure and synchronous: it is told the time
and how loaded the engines are, and knows neither processes nor futures, so that a simulation can drive it.
"""

from collections.abc import Iterator, Sequence

from service.call import Caller
from service.engine.job import Job, SearchParams
from service.queue.cost_model import CostModel
from service.queue.fair_queue import Entry, FairQueue
from service.queue.placement import EngineLoad, choose_engine, rows_beside
from service.records import Priority

# An engine holds sentences for two steps beyond those that run, so that no step passes with a row free while the core
# process hears of it, and at least for as long as that process may be busy with something else.  Sentences inside an
# engine are served first come, first served: more of them would be delay for clients who ask seldom.
_LOOKAHEAD_STEPS = 2.0
_LOOKAHEAD_S = 0.01
_MEMORY = 64  # sentences over which an average is taken
_FIRST_LOOKAHEAD_JOBS = 2  # before anything was measured


class JobQueue:
    """Jobs of all callers."""

    def __init__(self, *, aging_s: float, max_lookahead_jobs: int) -> None:
        """Create an empty queue.

        Args:
            aging_s: see `FairQueue`.
            max_lookahead_jobs: maximum number of jobs that an engine is given beyond what it can run.
        """
        self._queue: FairQueue[Job] = FairQueue(aging_s=aging_s)
        self._entries: dict[int, Entry[Job]] = {}  # by job id
        self.cost_model = CostModel()  # told by those who hear of finished jobs and of the engines' steps
        self._max_lookahead_jobs = max_lookahead_jobs
        self.source_tokens = 0  # of the jobs that wait
        self.typical_tokens = 0.0  # of a sentence: a moving average over what was added

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Job]:
        """The jobs that wait, in order of arrival."""
        return (entry.item for entry in self._entries.values())

    def add(self, entry: Entry[Job]) -> None:
        """Put a job at the end of its caller's line."""
        job = entry.item
        entry.cost = self.cost_model.cost(job.num_tokens, job.params)
        self._queue.push(entry)
        self._entries[job.id] = entry
        self.source_tokens += len(job.source_ids)
        self.typical_tokens += (len(job.source_ids) - self.typical_tokens) / (_MEMORY if self.typical_tokens else 1)

    def remove(self, job: Job) -> None:
        """Take a job out; one that is not in the queue any more is no error."""
        if (entry := self._entries.pop(job.id, None)) is not None:
            self._queue.remove(entry)
            self.source_tokens -= len(job.source_ids)

    def hand_out(self, loads: Sequence[EngineLoad], now: float) -> list[tuple[Job, int | None]]:
        """Take out the jobs whose turn it is, as far as the engines have room, and count them in the engines' loads.

        Args:
            loads: of the engines that are up.
            now: time.monotonic().

        Returns:
            Each job with the number of the engine that takes it; None: no engine could finish it before its deadline.
        """
        found: list[tuple[Job, int | None]] = []
        lookahead_jobs = self._lookahead_jobs()
        while loads and (entry := self._queue.peek(now)) is not None:
            job = entry.item
            if self._is_hopeless(job, loads, now):
                self.remove(job)
                found.append((job, None))
                continue
            number = choose_engine(loads, job, lookahead_jobs)
            if number is None:
                break
            self._queue.serve(entry)
            self.remove(job)
            loads[number].add(job)
            found.append((job, number))
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
        total = sum(self.cost_model.cost(source_tokens, params) for source_tokens in sources)
        ahead = self._queue.cost_ahead(caller, priority, total) + self._held_beyond(loads)
        ahead_s = self.cost_model.seconds(ahead, len(loads))
        wait_s = self.cost_model.seconds(ahead + total, len(loads))  # until the last one has its place
        if wait_s <= 0.0 and not any(load.rows for load in loads):  # whatever was measured, this request can correct it
            return ahead_s, 0.0
        rows = rows_beside(loads, params.num_rows * len(sources))
        return ahead_s, wait_s + self.cost_model.own_s(max(sources, default=0), params, rows)

    def _lookahead_jobs(self) -> int:
        """How many jobs an engine is given beyond those that it can run."""
        rate, cost = self.cost_model.rate, self._queue.typical_cost
        if not rate or not cost:
            return min(self._max_lookahead_jobs, _FIRST_LOOKAHEAD_JOBS)
        seconds = max(_LOOKAHEAD_S, _LOOKAHEAD_STEPS * self.cost_model.step_s.mean)
        return min(self._max_lookahead_jobs, max(1, round(seconds * rate / cost)))

    def _is_hopeless(self, job: Job, loads: Sequence[EngineLoad], now: float) -> bool:
        """Whether a job that goes to an engine now is too late; never if the engines have nothing else to do."""
        if job.deadline is None or not any(load.rows for load in loads):
            return False
        wait_s = self.cost_model.seconds(self._held_beyond(loads), len(loads))
        least_s = self.cost_model.least_s(len(job.source_ids), job.params, rows_beside(loads, job.params.num_rows))
        return now + wait_s + least_s > job.deadline

    def _held_beyond(self, loads: Sequence[EngineLoad]) -> float:
        """Row-steps that the engines hold beyond what they can run; below zero, what they could still start."""
        return sum(load.rows - load.runnable_rows for load in loads) * self.cost_model.row_cost.mean
