"""What comes next is encoded with what starts: in which runs, how far ahead, and never twice."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.job import FailureKind, JobFailure
from service.engine.loop import encoder_batches
from tests.fakes.clock import Clock
from tests.fakes.fake_runner import POISON_TOKEN
from tests.fakes.scripted_engine import Recorder, alone, assert_nothing_is_left, engine, job, run, tokens


def test_jobs_that_come_next_are_encoded_with_those_that_start_and_not_again():
    runner = Recorder()
    loop = engine(runner, max_rows=2)
    jobs = [job(n, [5 + n] * 3) for n in range(4)]
    for each in jobs:
        loop.submit(each)

    loop.step()

    assert runner.runs == [[each.source_ids for each in jobs]]
    assert runner.step_rows == [2]
    results = run(loop)
    assert len(runner.runs) == 1
    assert {n: tokens(results[n]) for n in (1, 2, 3)} == {n: tokens(alone(jobs[n])) for n in (1, 2, 3)}
    assert_nothing_is_left(loop)


def test_no_more_than_the_budget_is_encoded_ahead_and_the_rest_when_the_next_one_starts():
    runner = Recorder()
    loop = engine(runner, max_rows=2, max_ahead_tokens=8)
    jobs = [job(n, [5 + n] * 3, max_target_tokens=1) for n in range(5)]

    run(loop, jobs)

    assert runner.runs == [[each.source_ids for each in jobs[:3]], [each.source_ids for each in jobs[3:]]]


def test_what_is_encoded_already_is_left_out_of_the_next_run():
    runner = Recorder()
    loop = engine(runner, max_rows=4, max_ahead_tokens=4)
    jobs = [job(n, [5 + n] * 3, max_target_tokens=1) for n in range(5)]

    run(loop, jobs)

    assert runner.runs == [[each.source_ids for each in jobs[:3]], [each.source_ids for each in jobs[3:]]]


def test_nothing_is_encoded_while_nothing_starts():
    runner = Recorder()
    loop = engine(runner, max_rows=2)
    loop.submit(job(0, max_target_tokens=9))
    loop.step()
    loop.submit(job(1))

    loop.step()

    assert len(runner.runs) == 1


@pytest.mark.parametrize("why", ["cancelled", "late"])
def test_job_that_is_dropped_after_it_was_encoded_leaves_nothing_behind(why):
    clock, runner = Clock(100.0), Recorder()
    loop = engine(runner, clock, max_rows=2)
    jobs = [job(0), job(1, [8, 8], deadline=105.0 if why == "late" else None), job(2, [9, 9])]
    for each in jobs:
        loop.submit(each)
    loop.step()
    assert loop._encoded.keys() == {1, 2}

    if why == "late":
        clock.now = 105.0
    else:
        loop.cancel(1)
    outcomes = {outcome.job_id: outcome for outcome in loop.step()}
    assert loop._encoded.keys() <= {2}
    outcomes |= run(loop)

    dropped = outcomes[1]
    assert isinstance(dropped, JobFailure)
    assert dropped.kind is (FailureKind.DEADLINE if why == "late" else FailureKind.CANCELLED)
    assert tokens(outcomes[2]) == tokens(alone(jobs[2]))
    assert len(runner.runs) == 1
    assert loop.take_stats().wasted_steps == 0
    assert_nothing_is_left(loop)


def test_job_that_cannot_be_encoded_fails_when_it_would_have_started_and_no_other():
    runner = Recorder()
    loop = engine(runner, max_rows=2)
    jobs = [job(0, max_target_tokens=2), job(1, [POISON_TOKEN, 7]), job(2, [6, 6], max_target_tokens=2)]
    for each in jobs:
        loop.submit(each)

    assert all(outcome.job_id == 0 for outcome in loop.step())
    assert sorted(runner.runs[1:]) == sorted([each.source_ids] for each in jobs)  # the second try, one by one
    outcomes = run(loop)

    assert outcomes[1] == JobFailure(job_id=1, kind=FailureKind.INTERNAL, message="the encoder failed: RuntimeError")
    assert tokens(outcomes[2]) == tokens(alone(jobs[2]))
    assert len(runner.runs) == 4
    assert_nothing_is_left(loop)


def test_encoder_runs_are_of_similar_length_and_limited_in_tokens():
    lengths = [100, 3, 60, 61, 5, 4, 300, 62, 5, 191]
    jobs = [job(number, [5] * (length - 1)) for number, length in enumerate(lengths)]

    batches = [[len(each.source_ids) for each in batch] for batch in encoder_batches(jobs, 192)]

    assert batches == [[3, 4, 5, 5], [60, 61, 62], [100], [191], [300]]
    assert list(encoder_batches([], 192)) == []


@settings(max_examples=50, deadline=None)
@given(lengths=st.lists(st.integers(1, 250), max_size=40))
def test_encoder_runs_hold_every_job_once_and_keep_to_the_limit(lengths):
    jobs = [job(number, [5] * (length - 1)) for number, length in enumerate(lengths)]

    batches = [list(batch) for batch in encoder_batches(jobs, 192)]

    assert sorted(each.id for batch in batches for each in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(len(each.source_ids) for each in batch)
        assert len(batch) == 1 or len(batch) * longest <= 192
