"""One server in virtual time: the real admission, job queue, placement and engine scheduler around a decoder that takes
a given time a step, behind a core that takes a given time for each call.  No clock, no process: the same seed
gives the same figures.

As in the real one, what an engine reports arrives with the end of its step, and what it is then given starts with the
next step but one.
"""

import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import count

from service.call import Caller
from service.config import LimitsConfig
from service.engine.scheduler import Scheduler
from service.engine.wire import FinishReason, Hypothesis, Job, JobResult, SchedulerConfig, SearchParams, StepStats
from service.errors import Overloaded
from service.records import Priority
from service.scheduler.admission import Admission, Reservation
from service.scheduler.fair_queue import Entry
from service.scheduler.job_queue import EngineLoad, JobQueue

HYPOTHESIS = Hypothesis(token_ids=(), score=0.0, finish_reason=FinishReason.END_OF_SENTENCE)
STATS_STEPS = 5  # between two reports of what was done


@dataclass(slots=True, eq=False)
class Request:
    """One call with one text, and what became of it."""

    caller: Caller
    at: float
    source_tokens: int
    num_steps: int  # that its translation takes
    timeout_s: float
    priority: Priority = Priority.INTERACTIVE
    params: SearchParams | None = None  # the server's
    heard_at: float = 0.0  # when the core came to it
    reservation: Reservation | None = None
    steps_left: int = 0
    decode_s: float = 0.0
    done_at: float | None = None  # answered in time
    refused: str = ""

    @property
    def deadline(self) -> float:
        return self.at + self.timeout_s

    @property
    def latency_s(self) -> float:
        assert self.done_at is not None
        return self.done_at - self.at


def poisson(
    caller: Caller,
    rate: float,
    seconds: float,
    *,
    seed: int,
    num_steps: Sequence[int] = (10,),
    timeout_s: float = 60.0,
    priority: Priority = Priority.INTERACTIVE,
    params: SearchParams | None = None,
) -> list[Request]:
    """Calls of one client, so many a second."""
    rng = random.Random(seed)
    requests: list[Request] = []
    now = rng.expovariate(rate)
    while now < seconds:
        steps = rng.choice(num_steps)
        requests.append(Request(caller, now, steps, steps, timeout_s, priority, params))
        now += rng.expovariate(rate)
    return requests


@dataclass
class SimulatedServer:
    """One engine; every step takes `step_s`, and `row_s` for each row."""

    step_s: float = 0.01
    row_s: float = 0.0
    max_rows: int = 10
    params: SearchParams = field(default_factory=lambda: SearchParams(beam_size=1))
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    max_lookahead_jobs: int = 8
    call_s: float = 0.0  # of the core's time for each call, refused ones too

    def __post_init__(self) -> None:
        self.admission = Admission(self.limits)
        self.queue: JobQueue[Entry[Job]] = JobQueue(
            aging_s=self.limits.batch_aging_s, max_lookahead_jobs=self.max_lookahead_jobs
        )
        self.scheduler = Scheduler(SchedulerConfig(max_rows=self.max_rows))
        self.load = EngineLoad(self.max_rows, self.scheduler.config.max_source_tokens)
        self.requests: dict[int, Request] = {}  # in the queue or the engine, by job id
        self.running: dict[int, Job] = {}
        self.stats = StepStats()
        self.ids = count()
        self.wasted_row_steps = 0
        self.row_steps = 0

    def run(self, requests: Iterable[Iterable[Request]]) -> None:
        """All of these to their end, however that is."""
        arrivals = deque(merge(*requests, key=lambda request: request.at))
        free_at, now, number = 0.0, 0.0, 0
        for request in arrivals:
            free_at = request.heard_at = max(free_at, request.at) + self.call_s
        results: list[Job] = []  # ended, and the front has not heard of it
        inbox: list[Job] = []
        while arrivals or self.requests:
            for job in inbox:
                self.scheduler.add(job)
            inbox = []
            lasted_s = self._step(now, results)
            now += lasted_s
            number += 1
            for job in results:
                self._finish(job, now)
            results = []
            while arrivals and arrivals[0].heard_at <= now:
                self._arrive(arrivals.popleft())
                inbox += self._hand_out(max(now - lasted_s, 0.0))
            if number % STATS_STEPS == 0:
                self.queue.cost_model.reported(replace(self.stats, waiting_jobs=self.scheduler.num_waiting))
                self.stats = StepStats()
            for entry in [entry for entry in self.queue if self.requests[entry.item.id].deadline <= now]:
                self.queue.remove(entry)
                self._end(entry.item)
            inbox += self._hand_out(now)

    def _arrive(self, request: Request) -> None:
        now, params, deadline = request.heard_at, request.params or self.params, request.deadline
        caller, priority = request.caller, request.priority
        try:
            request.reservation = self.admission.admit(1, now=now, deadline=deadline, caller=caller)
            request.reservation.take_tokens(request.source_tokens)
            sources = [request.source_tokens]
            forecast = self.queue.forecast(sources, params, caller=caller, priority=priority, loads=[self.load])
            request.reservation.check(*forecast, now=now, deadline=deadline)
        except Overloaded as error:
            request.refused = error.reason
            if request.reservation is not None:
                request.reservation.release()
            return
        job = Job(
            id=next(self.ids),
            source_ids=(5,) * request.source_tokens,
            params=params,
            deadline=deadline,
            is_batch=priority is Priority.BATCH,
        )
        request.steps_left = request.num_steps
        self.requests[job.id] = request
        self.queue.add(Entry(job, caller, priority, now))

    def _hand_out(self, now: float) -> list[Job]:
        found = [(entry.item, engine) for entry, engine in self.queue.hand_out([self.load], now)]
        for job, engine in found:
            if engine is None:
                self._end(job)
        return [job for job, engine in found if engine is not None]

    def _step(self, now: float, results: list[Job]) -> float:
        """Seconds that it takes; a step with nothing to do takes some as well."""
        plan = self.scheduler.schedule(now)
        for drop in plan.drops:
            self.wasted_row_steps += self.requests[drop.job.id].num_steps - self.requests[drop.job.id].steps_left
            self.load.add(drop.job, -1)
            self.running.pop(drop.job.id, None)
            self._end(drop.job)
        self.running |= {job.id: job for job in plan.starts}
        rows, has_worked = self.scheduler.rows, bool(self.running)
        lasted_s = self.step_s + rows * self.row_s
        self.row_steps += rows
        for job in list(self.running.values()):
            request = self.requests[job.id]
            request.decode_s += lasted_s
            request.steps_left -= 1
            if request.steps_left == 0:
                self.scheduler.release(job.id)
                results.append(self.running.pop(job.id))
        self.stats = StepStats(
            loop_steps=self.stats.loop_steps + has_worked,
            rows=self.stats.rows + rows,
            busy_s=self.stats.busy_s + has_worked * lasted_s,
        )
        return lasted_s

    def _finish(self, job: Job, now: float) -> None:
        request = self.requests[job.id]
        self.load.add(job, -1)
        result = JobResult(
            job_id=job.id,
            hypotheses=(HYPOTHESIS,),
            queue_s=0.0,
            encode_s=0.0,
            decode_s=request.decode_s,
            num_steps=request.num_steps,
        )
        self.queue.cost_model.finished(job, result)
        request.done_at = now if now <= request.deadline else None
        self._end(job)

    def _end(self, job: Job) -> None:
        reservation = self.requests.pop(job.id).reservation
        assert reservation is not None
        reservation.release()


def percentile(values: Iterable[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
