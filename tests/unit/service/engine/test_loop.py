"""The engine with a scripted model: what joins, leaves or fails never changes a neighbour's result."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import EOS_ID
from service.engine.job import FailureKind, FinishReason, Job, JobFailure, JobResult, Outcome
from service.engine.scheduler import SchedulerConfig
from tests.fakes.clock import Clock
from tests.fakes.fake_runner import NAN_TOKEN, POISON_TOKEN, FakeRunner
from tests.fakes.scripted_engine import (
    Recorder,
    alone,
    assert_nothing_is_left,
    engine,
    engine_with,
    job,
    never_ending,
    run,
    tokens,
)


def random_job(job_id: int, rng: np.random.Generator, beam_sizes: Sequence[int] = (1, 2, 3, 5)) -> Job:
    length = 70 if rng.random() < 0.1 else int(rng.integers(1, 9))
    source = rng.integers(4, 30, size=length).tolist()
    beam_size = int(rng.choice(beam_sizes))
    return job(job_id, source, beam_size=beam_size, max_target_tokens=int(rng.integers(1, 14)))


def test_new_engine_is_idle_and_a_step_gives_nothing():
    loop = engine()

    assert loop.is_idle
    assert loop.step() == []


def test_job_runs_to_its_result():
    (result,) = run(engine(), [job(4, max_target_tokens=3)]).values()

    assert isinstance(result, JobResult)
    assert result.job_id == 4
    assert result.num_steps <= 3
    assert len(result.hypotheses) == 1


def test_length_limit_ends_a_sentence():
    (result,) = run(engine(FakeRunner(never_ending)), [job(0, max_target_tokens=6)]).values()

    assert isinstance(result, JobResult)
    assert len(result.hypotheses[0].token_ids) == 6
    assert result.hypotheses[0].finish_reason is FinishReason.LENGTH
    assert result.num_steps == 6


@pytest.mark.promise("B2")
def test_cancelled_job_frees_its_rows_at_the_next_step():
    runner = FakeRunner()
    loop = engine(runner)
    loop.submit(job(0))
    loop.submit(job(1))
    loop.step()

    loop.cancel(0)
    outcomes = loop.step()

    assert outcomes == [JobFailure(job_id=0, kind=FailureKind.CANCELLED, message="the sentence was cancelled")]
    assert runner.step_rows == [4, 2]
    assert tokens(run(loop)[1]) == tokens(alone(job(1)))


def test_steps_of_a_job_that_is_dropped_are_wasted():
    loop = engine(FakeRunner(never_ending))
    for number in range(2):
        loop.submit(job(number, max_target_tokens=40))
    for _ in range(3):
        loop.step()
    loop.submit(job(2, max_target_tokens=40))
    loop.step()

    loop.cancel(2)
    loop.cancel(0)
    loop.step()

    assert loop.take_stats().wasted_steps == 4 + 1
    assert loop.step() == []


@pytest.mark.promise("B1", "B3")
@pytest.mark.parametrize("why", ["cancelled", "late"])
def test_job_that_is_dropped_while_waiting_is_never_started(why):
    clock, runner = Clock(100.0), Recorder()
    loop = engine(runner, clock, max_rows=2, max_ahead_tokens=1)
    loop.submit(job(0, max_target_tokens=3))
    loop.submit(job(1, [8, 8], deadline=105.0 if why == "late" else None))
    loop.step()

    if why == "late":
        clock.now = 105.0
    else:
        loop.cancel(1)
    outcomes = run(loop)

    assert isinstance(outcomes[1], JobFailure)
    assert runner.runs == [[(5, 6, 7, EOS_ID)]]
    assert_nothing_is_left(loop)


def test_cancelling_a_job_that_has_ended_is_no_error():
    loop = engine()
    run(loop, [job(0)])

    loop.cancel(0)

    assert loop.is_idle
    assert loop.step() == []


@pytest.mark.parametrize("is_running", [True, False])
def test_job_whose_deadline_passes_ends_at_the_next_step(is_running):
    clock = Clock(100.0)
    loop = engine(clock=clock, max_rows=2)
    if not is_running:
        loop.submit(job(7, max_target_tokens=40))
    loop.submit(job(0, deadline=105.0, max_target_tokens=40))
    assert loop.step() == []

    clock.now = 105.0

    failure = JobFailure(job_id=0, kind=FailureKind.DEADLINE, message="the sentence passed its deadline")
    assert failure in loop.step()


def test_sentence_with_nan_fails_alone_and_leaves_nothing_behind():
    jobs = [job(0, [5, 9]), job(1, [NAN_TOKEN, 7]), job(2, [6, 6, 6])]
    loop = engine()

    outcomes = run(loop, jobs)

    failure = outcomes.pop(1)
    assert isinstance(failure, JobFailure)
    assert failure.kind is FailureKind.NON_FINITE
    assert {job_id: tokens(outcome) for job_id, outcome in outcomes.items()} == {
        each.id: tokens(alone(each)) for each in (jobs[0], jobs[2])
    }
    assert loop.take_stats().non_finite_jobs == 1
    again = job(9, [5, 9])
    assert tokens(run(loop, [again])[9]) == tokens(alone(again))


@pytest.mark.promise("E1")
def test_sentence_that_cannot_be_encoded_fails_alone():
    jobs = [job(0, [5, 9]), job(1, [POISON_TOKEN, 7]), job(2, [6, 6, 6])]

    loop = engine()
    outcomes = run(loop, jobs)

    assert outcomes[1] == JobFailure(job_id=1, kind=FailureKind.INTERNAL, message="the encoder failed: RuntimeError")
    assert_nothing_is_left(loop)
    assert all(tokens(outcomes[each.id]) == tokens(alone(each)) for each in (jobs[0], jobs[2]))


def test_decoder_that_fails_takes_the_engine_with_it():
    def broken(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        raise RuntimeError("cannot tell whose fault this is")

    loop = engine(FakeRunner(broken))
    loop.submit(job(0))

    with pytest.raises(RuntimeError, match="cannot tell"):
        loop.step()


@pytest.mark.promise("B2")
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_joining_leaving_and_cancelling_at_random_never_changes_a_result(seed):
    rng = np.random.default_rng(seed)
    jobs = [random_job(n, rng) for n in range(25)]
    cancelled = set(rng.choice(25, size=4, replace=False).tolist())
    budgets = {"max_rows": (5, 40), "max_encode_tokens": (60, 600), "max_ahead_tokens": (1, 100)}
    loop = engine_with(SchedulerConfig(**{name: int(rng.integers(*bounds)) for name, bounds in budgets.items()}))
    outcomes: dict[int, Outcome] = {}
    waiting = list(jobs)
    while waiting or not loop.is_idle:
        for _ in range(int(rng.integers(0, 4))):
            if waiting:
                loop.submit(waiting.pop(0))
        if rng.random() < 0.2:
            loop.cancel(int(rng.choice(sorted(cancelled))))
        outcomes |= {outcome.job_id: outcome for outcome in loop.step()}

    assert outcomes.keys() == set(range(25))
    assert_nothing_is_left(loop)
    for each in jobs:
        outcome = outcomes[each.id]
        if isinstance(outcome, JobFailure):
            assert each.id in cancelled
        else:
            assert outcome.hypotheses == tokens(alone(each)), f"seed {seed}, job {each.id}"


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), order=st.permutations(range(8)))
def test_order_of_arrival_does_not_change_a_result(seed, order):
    rng = np.random.default_rng(seed)
    jobs = [random_job(n, rng) for n in range(8)]

    straight = run(engine(), jobs)
    permuted = run(engine(), [jobs[n] for n in order])

    assert {n: tokens(straight[n]) for n in range(8)} == {n: tokens(permuted[n]) for n in range(8)}
