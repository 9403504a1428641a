"""The engine with a scripted model: what joins, leaves or fails never changes the result of a neighbour."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import EOS_ID
from service.engine.cpu.runner import CpuEncoded
from service.engine.wire import (
    FailureKind,
    Job,
    JobFailure,
    JobResult,
    Outcome,
    SchedulerConfig,
    SearchParams,
)
from tests.fakes.clock import Clock
from tests.fakes.engine_runs import (
    Recorder,
    alone,
    assert_nothing_is_left,
    engine,
    engine_with,
    job,
    kind_of,
    never_ending,
    run,
    tokens,
)
from tests.fakes.fake_runner import NAN_TOKEN, POISON_TOKEN, FakeRunner, Script, random_script


def random_job(job_id: int, rng: np.random.Generator, beam_sizes: Sequence[int] = (1, 2, 3, 5)) -> Job:
    length = 70 if rng.random() < 0.1 else int(rng.integers(1, 9))
    source = rng.integers(4, 30, size=length).tolist()
    beam_size = int(rng.choice(beam_sizes))
    return job(job_id, source, beam_size=beam_size, max_target_tokens=int(rng.integers(1, 14)))


@pytest.mark.promise("B1", "B2", "B3")
@pytest.mark.parametrize("why", [FailureKind.CANCELLED, FailureKind.DEADLINE])
@pytest.mark.parametrize("is_running", [True, False])
def test_dropped_job_frees_its_rows_at_the_next_step_or_is_never_started(why, is_running):
    clock, runner = Clock(100.0), FakeRunner(never_ending)
    loop = engine(runner, clock, max_rows=4 if is_running else 2)
    stays, dropped = job(0), job(1, [8, 8], deadline=105.0 if why is FailureKind.DEADLINE else None)
    loop.submit(stays)
    loop.submit(dropped)
    loop.step()

    if why is FailureKind.DEADLINE:
        clock.now = 105.0
    else:
        loop.cancel(1)
    (outcome,) = loop.step()

    assert (outcome.job_id, kind_of(outcome)) == (1, why)
    assert runner.step_rows == [4 if is_running else 2, 2]
    assert isinstance(run(loop)[0], JobResult)
    assert_nothing_is_left(loop)


@pytest.mark.promise("E1")
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


@pytest.mark.promise("B2")
@settings(max_examples=12, deadline=None)
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


def test_finished_job_frees_its_rows_before_the_next_step():
    runner = FakeRunner()
    loop = engine(runner, max_rows=4)
    for each in (job(0, max_target_tokens=1), job(1, max_target_tokens=9), job(2, [9, 9, 9, 9])):
        loop.submit(each)

    first = loop.step()
    loop.step()

    assert [outcome.job_id for outcome in first] == [0]
    assert runner.step_rows == [4, 4]
    assert len(runner.encoded) == 3  # job 2 took the place at once


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


class Ticking(FakeRunner):
    """Every run of the encoder takes two seconds, every decoder step of one sentence half a second."""

    def __init__(self, clock: Clock, script: Script = random_script) -> None:
        def ticking(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
            clock.now += 0.25  # for each of two hypotheses
            return script(source, prefix)

        super().__init__(ticking)
        self._clock = clock

    def encode(self, sources: Sequence[Sequence[int]]) -> CpuEncoded:
        self._clock.now += 2.0
        return super().encode(sources)


def test_times_of_a_job_begin_with_its_submission():
    clock = Clock(100.0)
    loop = engine(Ticking(clock), clock)
    early = Job(id=0, source_ids=(5, EOS_ID), params=SearchParams(beam_size=2, max_target_tokens=3), submitted_at=90.0)
    loop.submit(early)
    clock.now = 104.0

    result = run(loop)[0]

    assert isinstance(result, JobResult)
    assert (result.queue_s, result.encode_s, result.decode_s) == (14.0, 2.0, 0.5 * result.num_steps)
    stats = loop.take_stats()
    assert stats.encode_s == [2.0]
    assert stats.step_decode_s == [0.5] * result.num_steps
    assert stats.step_beam_s == [0.0] * result.num_steps
    assert stats.busy_s == 2.0 + 0.5 * result.num_steps


@pytest.mark.promise("A15")
def test_decoder_without_memory_fails_its_batch_and_the_next_sentence_is_translated():
    failures = [MemoryError(), MemoryError("Unable to allocate 3 GiB")]

    def short(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        if failures:
            raise failures.pop()
        return random_script(source, prefix)

    loop = engine(FakeRunner(short), max_rows=4)

    outcomes = run(loop, [job(number) for number in range(4)])  # two at a time, and one with half of the rows

    assert [kind_of(outcomes[number]) for number in range(4)] == [FailureKind.OUT_OF_MEMORY] * 3 + [None]
    assert_nothing_is_left(loop)


class ShortEncoder(FakeRunner):
    """There is no memory to encode a source that begins with one of `finds_none`."""

    finds_none: Sequence[int] = ()

    def encode(self, sources: Sequence[Sequence[int]]) -> CpuEncoded:
        if any(source[0] in self.finds_none for source in sources):
            raise MemoryError
        return super().encode(sources)


@pytest.mark.promise("A15")
@pytest.mark.parametrize(
    ("finds_none", "failed"), [(range(5, 11), [0, 1]), (range(7, 11), [])], ids=["all", "those that come next"]
)
def test_sentences_that_find_no_memory_ahead_of_their_turn_are_translated_if_there_is_some_when_they_start(
    finds_none, failed
):
    runner = ShortEncoder()
    loop = engine(runner, max_rows=4)
    jobs = [job(number, [5 + number] * 3) for number in range(6)]  # two start, the others come next
    for each in jobs:
        loop.submit(each)

    runner.finds_none = finds_none
    outcomes = {outcome.job_id: outcome for outcome in loop.step()}
    runner.finds_none = ()
    outcomes |= run(loop)

    assert [number for number in range(6) if kind_of(outcomes[number]) is FailureKind.OUT_OF_MEMORY] == failed
    translated = [each for each in jobs if each.id not in failed]
    assert [tokens(outcomes[each.id]) for each in translated] == [tokens(alone(each)) for each in translated]
    assert loop.take_stats().max_rows == 2
    assert_nothing_is_left(loop)


@pytest.mark.promise("A15")
@pytest.mark.parametrize(("error", "rows"), [(MemoryError, 64), (RuntimeError, 128)])
def test_rows_are_halved_where_only_a_joint_run_of_the_encoder_is_short_of_memory(error, rows):
    class OneByOne(FakeRunner):
        def encode(self, sources: Sequence[Sequence[int]]) -> CpuEncoded:
            if len(sources) > 1:
                raise error
            return super().encode(sources)

    loop = engine(OneByOne(), max_rows=128)
    jobs = [job(number) for number in range(7)]

    outcomes = run(loop, jobs)

    assert [kind_of(outcomes[each.id]) for each in jobs] == [None] * 7
    assert loop.take_stats().max_rows == rows
