"""An engine loop of this process around a scripted model: jobs for it, and what became of them."""

from collections.abc import Iterable, Sequence

import numpy as np

from model.config import EOS_ID
from service.engine.cpu.runner import CpuEncoded
from service.engine.loop import EngineLoop
from service.engine.runner import Runner
from service.engine.wire import (
    FailureKind,
    Hypothesis,
    Job,
    JobFailure,
    JobResult,
    Outcome,
    SchedulerConfig,
    SearchParams,
)
from tests.fakes.clock import Clock
from tests.fakes.fake_runner import FakeRunner, Script, misbehaving_script


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
    assert isinstance(outcome, JobResult), outcome
    return outcome.hypotheses


def translate(
    runner: Runner, sources: Sequence[Sequence[int]], params: SearchParams, prefix_ids: tuple[int, ...] = ()
) -> list[tuple[Hypothesis, ...]]:
    """What each source gets, all of them in one batch."""
    jobs = [
        Job(id=number, source_ids=tuple(source), params=params, prefix_ids=prefix_ids)
        for number, source in enumerate(sources)
    ]
    outcomes = run(EngineLoop(runner), jobs)
    return [hypotheses(outcomes[job.id]) for job in jobs]


def job(job_id: int, source: Sequence[int] = (5, 6, 7), *, deadline: float | None = None, **params: float) -> Job:
    """Two hypotheses of ten tokens at most, unless `params` say otherwise; end-of-sentence is added to the source."""
    defaults = {"beam_size": 2, "max_target_tokens": 10}
    search = SearchParams(**{**defaults, **params})  # type: ignore[arg-type]
    return Job(id=job_id, source_ids=(*source, EOS_ID), params=search, deadline=deadline)


def engine(runner: FakeRunner | None = None, clock: Clock | None = None, **budgets: int) -> EngineLoop:
    """One that is idle, with these budgets of its scheduler."""
    return engine_with(SchedulerConfig(**budgets), runner, clock)


def engine_with(config: SchedulerConfig, runner: FakeRunner | None = None, clock: Clock | None = None) -> EngineLoop:
    """The same with a configuration; its time begins at 100 s."""
    return EngineLoop(runner or FakeRunner(misbehaving_script), config, clock=clock or Clock(100.0))


def alone(each: Job) -> Outcome:
    """What becomes of the job in an engine of its own."""
    return run(engine(), [each])[each.id]


def tokens(outcome: Outcome) -> object:
    return outcome.hypotheses if isinstance(outcome, JobResult) else outcome


def kind_of(outcome: Outcome) -> FailureKind | None:
    """Of the failure; None of a result."""
    return outcome.kind if isinstance(outcome, JobFailure) else None


def assert_nothing_is_left(loop: EngineLoop) -> None:
    assert loop.is_idle
    assert loop._encoded == {}
    assert loop._arrived_at == {}
    assert not any(group.sentences for group in loop._groups.values())


def never_ending(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
    log_probs = misbehaving_script(source, prefix)
    log_probs[EOS_ID] = -1000.0
    return log_probs


class Recorder(FakeRunner):
    """Remembers what was encoded together."""

    def __init__(self, script: Script = misbehaving_script) -> None:
        super().__init__(script)
        self.runs: list[list[tuple[int, ...]]] = []

    def encode(self, sources: Sequence[Sequence[int]]) -> CpuEncoded:
        self.runs.append([tuple(source) for source in sources])
        return super().encode(sources)
