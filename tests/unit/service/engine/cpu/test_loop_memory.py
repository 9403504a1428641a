"""An engine without memory fails what it cannot hold, runs fewer rows for a while, and goes on."""

from collections.abc import Sequence

import numpy as np
import pytest

from service.engine.cpu.cache import CpuCache, CpuEncoded
from service.engine.job import FailureKind
from tests.fakes.clock import Clock
from tests.fakes.fake_runner import POISON_TOKEN, FakeRunner, Script, misbehaving_script, random_script
from tests.fakes.scripted_engine import alone, assert_nothing_is_left, engine, job, kind_of, never_ending, run, tokens


@pytest.mark.promise("A15")
def test_encoder_without_memory_fails_its_sentence_as_out_of_memory():
    class Short(FakeRunner):
        def encode(self, sources: Sequence[Sequence[int]]) -> CpuEncoded:
            if any(source[0] == POISON_TOKEN for source in sources):
                raise MemoryError
            return super().encode(sources)

    jobs = [job(0, [5, 9]), job(1, [POISON_TOKEN, 7])]
    loop = engine(Short(misbehaving_script))

    outcomes = run(loop, jobs)

    assert kind_of(outcomes[1]) is FailureKind.OUT_OF_MEMORY
    assert tokens(outcomes[0]) == tokens(alone(jobs[0]))
    assert_nothing_is_left(loop)


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


@pytest.mark.promise("A15")
def test_sentence_that_finds_no_memory_for_its_rows_is_out_of_memory():
    class Full(FakeRunner):
        def new_state(self, beam_size: int, *, use_shortlist: bool) -> CpuCache:
            raise MemoryError

    loop = engine(Full())

    assert kind_of(run(loop, [job(0)])[0]) is FailureKind.OUT_OF_MEMORY
    assert_nothing_is_left(loop)


@pytest.mark.promise("A15")
def test_step_without_memory_halves_the_rows_once_however_many_sentences_it_fails():
    class Short(FakeRunner):
        def encode(self, sources: Sequence[Sequence[int]]) -> CpuEncoded:
            raise MemoryError

    loop = engine(Short(), max_rows=128)
    for number in range(7):
        loop.submit(job(number))

    outcomes = loop.step()

    assert [kind_of(outcome) for outcome in outcomes] == [FailureKind.OUT_OF_MEMORY] * 7
    assert loop.take_stats().max_rows == 64
    loop.step()
    assert loop.take_stats().max_rows == 64


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


@pytest.mark.promise("A15")
@pytest.mark.parametrize(("seconds_later", "rows"), [(59.0, 2), (60.0, 4)])
def test_rows_that_were_given_up_for_want_of_memory_come_back(seconds_later, rows):
    clock, failures = Clock(100.0), [MemoryError()]

    def short(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        if failures:
            raise failures.pop()
        return never_ending(source, prefix)

    loop = engine(FakeRunner(short), clock, max_rows=4)
    run(loop, [job(number) for number in range(2)])
    clock.now += seconds_later

    for number in range(2, 4):
        loop.submit(job(number))
    loop.step()

    assert loop.take_stats().live_rows == rows


class Crowded(FakeRunner):
    """There is no memory when sentence number `fails_at`, from 0, leaves the cache."""

    def __init__(self, script: Script, fails_at: int) -> None:
        super().__init__(script)
        self.leaves_before = fails_at

    def new_state(self, beam_size: int, *, use_shortlist: bool) -> CpuCache:
        """One whose sentences leave as often as there is memory for it."""
        cache = super().new_state(beam_size, use_shortlist=use_shortlist)
        remove = cache.remove

        def counted(index: int, *, is_finite: bool = True) -> None:
            self.leaves_before -= 1
            if self.leaves_before == -1:
                raise MemoryError
            remove(index, is_finite=is_finite)

        cache.remove = counted  # type: ignore[method-assign]
        return cache


@pytest.mark.promise("A15")
def test_sentence_that_ended_before_memory_did_has_its_result_and_the_others_of_its_step_fail():
    lengths = [3, 10, 3, 3]
    loop = engine(Crowded(never_ending, fails_at=1), max_rows=8)
    for number, length in enumerate(lengths):
        loop.submit(job(number, max_target_tokens=length))

    outcomes = [*loop.step(), *loop.step(), *loop.step()]

    # The last one leaves first.
    assert [(outcome.job_id, kind_of(outcome)) for outcome in outcomes] == [
        (3, None),
        (0, FailureKind.OUT_OF_MEMORY),
        (1, FailureKind.OUT_OF_MEMORY),
        (2, FailureKind.OUT_OF_MEMORY),
    ]
    assert_nothing_is_left(loop)
    assert loop.take_stats().max_rows == 4
    assert kind_of(run(loop, [job(4)])[4]) is None


@pytest.mark.promise("A15")
@pytest.mark.parametrize("fails_at", [0, 1])
def test_jobs_that_are_dropped_without_memory_end_as_dropped_and_those_beside_them_for_want_of_it(fails_at):
    clock = Clock(100.0)
    loop = engine(Crowded(never_ending, fails_at), clock, max_rows=8)
    for number, deadline in enumerate([None, 101.0, None, None]):
        loop.submit(job(number, deadline=deadline))
    loop.submit(job(4, beam_size=1))  # in another group, and not yet started
    assert loop.step() == []
    loop.cancel(3)
    clock.now = 102.0

    outcomes = loop.step()

    assert {outcome.job_id: kind_of(outcome) for outcome in outcomes} == {
        0: FailureKind.OUT_OF_MEMORY,
        1: FailureKind.DEADLINE,
        2: FailureKind.OUT_OF_MEMORY,
        3: FailureKind.CANCELLED,
    }
    assert len(outcomes) == 4
    assert kind_of(run(loop)[4]) is None
    assert_nothing_is_left(loop)
    assert loop.take_stats().max_rows == 4
