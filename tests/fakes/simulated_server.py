"""One server in virtual time: the real queue, meter, admission and engine scheduler around a decoder that takes a
given time a step, behind a front process that takes a given time for each call.  No clock, no process: the same seed
gives the same figures.

As in the real one, what an engine reports arrives with the end of its step, and what it is then given starts with the
next step but one.
"""

import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import merge

from service.config import LimitsConfig
from service.engine.job import FinishReason, Hypothesis, Job, JobResult, SearchParams, StepStats
from service.engine.scheduler import Scheduler, SchedulerConfig
from service.engines.held import Held
from service.errors import Overloaded
from service.queue.admission import Admission, Permit
from service.queue.callers import Caller, Priority
from service.queue.fair_queue import Entry
from service.queue.job_queue import EngineLoad, JobQueue

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
    heard_at: float = 0.0  # when the front process came to it
    permit: Permit | None = None
    entry: "Entry[Request] | None" = None
    job: Job | None = None  # that the engine was given
    done_at: float | None = None  # answered in time
    refused: str = ""
    was_late: bool = False
    decode_s: float = 0.0

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The process in which all calls wait for one event loop, refused ones too."""

    call_s: float = 0.0  # of its time for each call
    pause_s: float = 0.0  # in which it does nothing, as in a collection of garbage ...
    pause_every_s: float = float("inf")  # ... so often

    def hear(self, requests: Iterable[Request]) -> None:
        """Note when it comes to each of these, which are in order of arrival."""
        free_at = 0.0
        for request in requests:
            free_at = self.awake_at(max(free_at, request.at)) + self.call_s
            request.heard_at = free_at

    def awake_at(self, now: float) -> float:
        """This moment, or the end of the pause that it is in."""
        began = now // self.pause_every_s * self.pause_every_s if now >= self.pause_every_s else -self.pause_s
        return max(now, began + self.pause_s)


@dataclass(slots=True)
class Stats:
    """What the engine did since its last report."""

    steps: int = 0
    rows: int = 0
    source_tokens: int = 0
    busy_s: float = 0.0


@dataclass
class SimulatedServer:
    """One engine; every step takes `step_s`, and `row_s` for each row."""

    step_s: float = 0.01
    row_s: float = 0.0
    max_rows: int = 10
    params: SearchParams = field(default_factory=lambda: SearchParams(beam_size=1))
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    max_lookahead_jobs: int = 8
    front: Front = field(default_factory=Front)

    def __post_init__(self) -> None:
        self.admission = Admission(self.limits)
        self.backlog: JobQueue[Request] = JobQueue(
            aging_s=self.limits.batch_aging_s, max_lookahead_jobs=self.max_lookahead_jobs
        )
        self.scheduler = Scheduler(SchedulerConfig(max_rows=self.max_rows))
        self.holds = Held.none_of(self.scheduler.config)
        self.held: dict[int, Request] = {}
        self.steps_left: dict[int, int] = {}
        self.num_job = 0
        self.waited: deque[float] = deque()
        self.wasted_row_steps = 0
        self.row_steps = 0

    def run(self, requests: Iterable[Iterable[Request]]) -> None:
        """All of these to their end, however that is."""
        arrivals = deque(merge(*requests, key=lambda request: request.at))
        self.front.hear(arrivals)
        now, number = 0.0, 0
        results: list[int] = []  # ended, and the front has not heard of it
        stats = Stats()
        inbox: list[Job] = []
        while arrivals or self.held or len(self.backlog):
            for job in inbox:
                self.scheduler.add(job)
            inbox = []
            lasted_s = self._step(now, stats, results)
            now += lasted_s
            number += 1
            if self.front.awake_at(now) > now:
                continue
            for job_id in results:
                self._finish(job_id, now)
            results = []
            while arrivals and arrivals[0].heard_at <= now:
                self._arrive(arrivals.popleft())
                inbox += self._hand_out(max(now - lasted_s, 0.0))
            if number % STATS_STEPS == 0:
                self._report(stats)
                stats = Stats()
            self._expire(now)
            inbox += self._hand_out(now)

    def params_of(self, request: Request) -> SearchParams:
        """How it is searched."""
        return request.params or self.params

    def load(self) -> EngineLoad:
        """How full the engine is."""
        return EngineLoad(num_engines=1, rows=self.holds.rows, max_rows=self.holds.runnable_rows)

    def _arrive(self, request: Request) -> None:
        permit = None
        try:
            permit = self.admission.admit(1, now=request.heard_at, deadline=request.deadline, caller=request.caller)
            permit.take_tokens(request.source_tokens)
            forecast = self.backlog.forecast(
                [request.source_tokens],
                self.params_of(request),
                caller=request.caller,
                priority=request.priority,
                load=self.load(),
            )
            permit.check(forecast, now=request.heard_at, deadline=request.deadline)
        except Overloaded as error:
            request.refused = error.reason
            if permit is not None:
                permit.release()
            return
        request.permit = permit
        request.entry = self.backlog.add(
            request,
            request.source_tokens,
            self.params_of(request),
            caller=request.caller,
            priority=request.priority,
            now=request.heard_at,
        )

    def _hand_out(self, now: float) -> list[Job]:
        jobs: list[Job] = []
        while (entry := self.backlog.peek(now)) is not None:
            request, load = entry.item, self.load()
            params = self.params_of(request)
            if self.backlog.is_hopeless(request.source_tokens, params, request.deadline, now=now, load=load):
                self.backlog.remove(entry)
                self._end(request, late=True)
                continue
            source = (5,) * request.source_tokens
            job = Job(id=self.num_job + 1, source_ids=source, params=params, deadline=request.deadline)
            if not self.holds.has_room(job, self.backlog.lookahead_jobs(now)):
                self.backlog.ran_full(now)
                break
            if self.backlog.pause_s(now, load) > 0.0:
                break
            self.backlog.serve(entry, params.beam_size)
            self.num_job = job.id
            request.job = job
            self.holds.add(job)
            self.held[job.id] = request
            self.steps_left[job.id] = request.num_steps
            jobs.append(job)
        return jobs

    def _expire(self, now: float) -> None:
        for request in [request for request in self.backlog if request.deadline <= now]:
            assert request.entry is not None
            self.backlog.remove(request.entry)
            self._end(request, late=True)

    def _step(self, now: float, stats: "Stats", results: list[int]) -> float:
        """Seconds that it takes; a step with nothing to do takes some as well."""
        plan = self.scheduler.schedule(now)
        for drop in plan.drops:
            self.wasted_row_steps += self.held[drop.job.id].num_steps - self.steps_left[drop.job.id]
            self.holds.remove(drop.job)
            self._end(self.held.pop(drop.job.id), late=True)
            del self.steps_left[drop.job.id]
        started = sum(len(job.source_ids) for job in plan.starts)
        rows = self.scheduler.rows
        self.row_steps += rows
        running = sorted(self.scheduler._running)
        for job_id in running:
            self.steps_left[job_id] -= 1
            if self.steps_left[job_id] == 0:
                self.scheduler.release(job_id)
                results.append(job_id)
        lasted_s = self.step_s + rows * self.row_s
        stats.steps += bool(running)
        stats.rows += rows
        stats.source_tokens += started
        stats.busy_s += lasted_s if running else 0.0
        for job_id in running:
            self.held[job_id].decode_s += lasted_s
        return lasted_s

    def _finish(self, job_id: int, now: float) -> None:
        request = self.held.pop(job_id)
        assert request.job is not None
        self.holds.remove(request.job)
        del self.steps_left[job_id]
        result = JobResult(
            job_id=job_id,
            hypotheses=(HYPOTHESIS,),
            queue_s=0.0,
            encode_s=0.0,
            decode_s=request.decode_s,
            num_steps=request.num_steps,
        )
        self.backlog.finished(request.source_tokens, self.params_of(request), result)
        request.done_at = now if now <= request.deadline else None
        self._end(request, late=now > request.deadline)

    def _report(self, stats: "Stats") -> None:
        self.backlog.reported(
            StepStats(
                steps=stats.steps,
                loop_steps=stats.steps,
                rows=stats.rows,
                busy_s=stats.busy_s,
                source_tokens=stats.source_tokens,
                waiting_jobs=self.scheduler.num_waiting,
            )
        )

    @staticmethod
    def _end(request: Request, *, late: bool) -> None:
        request.was_late = late
        assert request.permit is not None
        request.permit.release()


def percentile(values: Iterable[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
