"""What waits for one model's engines: in which order, for how long, and what cannot be in time any more.

Queue, meter and pace together, so that a dispatcher and a simulation decide alike.  Pure and synchronous; is told the
time and how full the engines are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.engine.job import JobResult, SearchParams, StepStats
from service.queue.callers import Caller, Priority
from service.queue.cost_model import CostModel
from service.queue.fair_queue import Entry, FairQueue
from service.queue.pace import Pace

# An engine that clients share holds sentences for two steps beyond those that run, so that none passes with a row free
# while the front process hears of it, and at least for as long as that process may be busy with something else.  They
# are served first come, first served: more of them would be delay for clients who ask seldom.
_LOOKAHEAD_STEPS = 2.0
_LOOKAHEAD_S = 0.01
_FIRST_LOOKAHEAD_JOBS = 2  # before anything was measured

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """How full the engines are."""

    num_engines: int  # that are up
    rows: int  # of the sentences they hold
    max_rows: int  # that they can run, all together, of such sentences

    @property
    def is_idle(self) -> bool:
        """Whether they hold nothing."""
        return self.rows == 0

    def rows_each(self, more: int) -> float:
        """That an engine runs with so many more."""
        return min(self.rows + more, self.max_rows) / self.num_engines


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a request would be served; zeros before that can be told."""

    ahead_s: float = 0.0  # of work that goes before it
    finish_s: float = 0.0  # until its last sentence is done


class JobQueue(Generic[Item]):
    """Sentences that wait, of all clients."""

    def __init__(self, *, aging_s: float, max_lookahead_jobs: int) -> None:
        """Nothing waits.

        Args:
            aging_s: see `FairQueue`.
            max_lookahead_jobs: sent to an engine beyond what it can run, at most.
        """
        self._queue: FairQueue[Item] = FairQueue(aging_s=aging_s)
        self._meter = CostModel()
        self._pace = Pace()
        self._max_lookahead_jobs = max_lookahead_jobs

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._queue)

    def add(
        self, item: Item, source_tokens: int, params: SearchParams, *, caller: Caller, priority: Priority, now: float
    ) -> Entry[Item]:
        """Have a sentence wait; keep the entry to remove it."""
        self._pace.arrived(" ".join(caller.identity), priority, now)
        cost = self._meter.cost(source_tokens, params)
        return self._queue.push(item, caller=caller, priority=priority, cost=cost, now=now)

    def remove(self, entry: Entry[Item]) -> bool:
        """Take a sentence out that nobody wants any more; False if it has left."""
        return self._queue.remove(entry)

    def peek(self, now: float) -> Entry[Item] | None:
        """Whose turn it is, if anything waits."""
        entry = self._queue.peek(now)
        if entry is None:
            self._pace.forget()
        return entry

    def pause_s(self, now: float, load: EngineLoad) -> float:
        """Seconds until what `peek` gave may start, if there is room."""
        if load.is_idle:
            self._pace.forget()
        rows_per_s = load.max_rows / self._meter.hold_s if self._meter.hold_s else 0.0
        return self._pace.pause_s(now, rows_per_s=rows_per_s, step_s=self._meter.step_s)

    def serve(self, entry: Entry[Item], rows: int) -> None:
        """What `peek` gave goes to an engine."""
        self._queue.serve(entry)
        self._pace.started(rows)

    def ran_full(self, now: float) -> None:
        """There is no room for what `peek` gave."""
        self._pace.ran_full(now)

    def finished(self, source_tokens: int, params: SearchParams, result: JobResult) -> None:
        """An engine has translated a sentence."""
        self._meter.finished(source_tokens, params, result)

    def reported(self, stats: StepStats) -> None:
        """An engine says what it did."""
        self._meter.reported(stats)

    def lookahead_jobs(self, now: float) -> int:
        """How many sentences to give an engine beyond those it can run."""
        rate, cost = self._meter.rate, self._queue.typical_cost
        if not rate:
            return min(self._max_lookahead_jobs, _FIRST_LOOKAHEAD_JOBS)
        if not cost or not self._pace.is_shared(now):
            return self._max_lookahead_jobs
        seconds = max(_LOOKAHEAD_S, _LOOKAHEAD_STEPS * self._meter.step_s)
        return min(self._max_lookahead_jobs, max(1, round(seconds * rate / cost)))

    def waiting_s(self, load: EngineLoad) -> float:
        """Seconds of work that waits, here and in the engines; 0 before that can be told."""
        row_steps = self._queue.cost + max(0.0, self._held_beyond(load))
        return self._meter.seconds(row_steps, load.num_engines)

    def forecast(
        self, sources: Sequence[int], params: SearchParams, *, caller: Caller, priority: Priority, load: EngineLoad
    ) -> Forecast:
        """When sentences with so many tokens each would be done if they came now."""
        total = sum(self._meter.cost(source_tokens, params) for source_tokens in sources)
        ahead = self._queue.cost_ahead(caller, priority, total) + self._held_beyond(load)
        ahead_s = self._meter.seconds(max(0.0, ahead), load.num_engines)
        wait_s = self._meter.seconds(max(0.0, ahead + total), load.num_engines)  # the last one's own place, too
        if wait_s <= 0.0 and load.is_idle:  # whatever was measured, this one can correct it
            return Forecast(ahead_s, 0.0)
        rows = load.rows_each(params.beam_size * len(sources))
        return Forecast(ahead_s, wait_s + self._meter.own_s(max(sources, default=0), params, rows))

    def is_hopeless(
        self, source_tokens: int, params: SearchParams, deadline: float | None, *, now: float, load: EngineLoad
    ) -> bool:
        """Whether a sentence that goes to an engine now is too late; never if the engines have nothing else to do."""
        if deadline is None or load.is_idle:
            return False
        wait_s = self._meter.seconds(max(0.0, self._held_beyond(load)), load.num_engines)
        least_s = self._meter.least_s(source_tokens, params, load.rows_each(params.beam_size))
        return now + wait_s + least_s > deadline

    def _held_beyond(self, load: EngineLoad) -> float:
        """Row-steps that engines hold beyond what they can run; below zero: that they could still start."""
        return (load.rows - load.max_rows) * self._meter.row_cost
