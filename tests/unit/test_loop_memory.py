"""An engine without memory fails what it cannot hold, runs fewer rows for a while, and goes on."""

from collections.abc import Sequence

import numpy as np
import pytest

from service.engine.job import FailureKind
from service.engine.kv_cache import Encoded, KeyValueCache
from tests.fakes.clock import Clock
from tests.fakes.fake_runner import POISON_TOKEN, FakeRunner, misbehaving_script, random_script
from tests.fakes.scripted_engine import alone, assert_nothing_is_left, engine, job, kind_of, never_ending, run, tokens


@pytest.mark.promise("A15")
def test_encoder_without_memory_fails_its_sentence_as_out_of_memory():
    class Short(FakeRunner):
        def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
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
        def new_cache(self, beam_size: int) -> KeyValueCache:
            raise MemoryError

    loop = engine(Full())

    assert kind_of(run(loop, [job(0)])[0]) is FailureKind.OUT_OF_MEMORY
    assert_nothing_is_left(loop)


@pytest.mark.promise("A15")
def test_step_without_memory_halves_the_rows_once_however_many_sentences_it_fails():
    class Short(FakeRunner):
        def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
            raise MemoryError

    loop = engine(Short(), max_rows=128)
    for number in range(7):
        loop.submit(job(number))

    outcomes = loop.step()

    assert [kind_of(outcome) for outcome in outcomes] == [FailureKind.OUT_OF_MEMORY] * 7
    assert loop.take_stats().max_rows == 64
    loop.step()
    assert loop.take_stats().max_rows == 64


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
