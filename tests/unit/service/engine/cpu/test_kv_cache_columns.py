"""Where the columns of a sentence lie, which decides the order of sums: nothing but the sentence may matter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.cpu.cache import CpuCache
from service.engine.key_value_cache import SELF_COLUMNS
from tests.fakes.checked_cache import SHAPE, CheckedCache, Ints, encoded, own_parents, random_parents

BEAM_SIZES = (1, 4, 5, 16)


def trace_of(cache: CpuCache, index: int) -> tuple[int, bytes]:
    """Where the columns of a sentence lie that has been prepared for a step."""
    columns = int(cache.columns[index])
    return columns, (cache.mask[index, 0, :, : columns + cache.beam_size] == 0.0).tobytes()


def trace_alone(parents: Ints) -> list[tuple[int, bytes]]:
    num_steps, beam_size = parents.shape
    cache = CpuCache(SHAPE, beam_size)
    cache.append(encoded(4), [0])
    trace = []
    for step in range(num_steps):
        cache.prepare()
        trace.append(trace_of(cache, 0))
        cache.advance(parents[step : step + 1])
    return trace


@settings(max_examples=20, deadline=None)
@given(beam_size=st.sampled_from([1, 2, 4, 5]), seed=st.integers(0, 10**6))
def test_where_a_sentence_s_columns_lie_depends_on_the_sentence_alone(beam_size, seed):
    rng = np.random.default_rng(seed)
    joins = float(rng.choice([0.05, 0.3, 2.0]))  # a step
    cache = CpuCache(SHAPE, beam_size)
    live: list[tuple[Ints, list[tuple[int, bytes]]]] = []  # what each sentence's parents are to be, and its trace
    ended = []
    for _ in range(120):
        for _ in range(rng.poisson(joins) if len(live) < 40 else 0):
            cache.append(encoded(int(rng.integers(1, 70))), [0])
            steps = int(rng.integers(1, 90))
            live.append((rng.integers(0, rng.integers(1, beam_size + 1), (steps, beam_size)), []))
        if not live:
            continue
        cache.prepare()
        for index, (_, trace) in enumerate(live):
            trace.append(trace_of(cache, index))
        cache.advance(np.array([parents[len(trace) - 1] for parents, trace in live]))
        for index in reversed(range(len(live))):
            if len(live[index][1]) == len(live[index][0]):
                cache.remove(index)
                ended.append(live[index])
                live[index] = live[-1]
                live.pop()

    for parents, trace in ended + live:
        assert trace == trace_alone(parents)[: len(trace)], f"seed {seed}"


@pytest.mark.parametrize("beam_size", [2, 3, 5, 6])
def test_sentence_that_joins_just_after_a_squeeze_is_squeezed_when_it_would_be_alone(beam_size):
    """The first sentence has more room then than a new one is given."""
    parents = random_parents(np.random.default_rng(1), 60, beam_size)
    of_first = np.maximum(np.arange(beam_size) - 1, 0)
    cache = CpuCache(SHAPE, beam_size)
    cache.append(encoded(4), [0])
    while int(cache.columns[0]) == beam_size * int(cache.past_lengths[0, 0]):  # not squeezed yet
        cache.prepare()
        cache.advance(of_first[None])

    cache.append(encoded(4), [0])
    trace = []
    for step in parents:
        cache.prepare()
        trace.append(trace_of(cache, 1))
        cache.advance(np.array([of_first, step]))

    assert trace == trace_alone(parents)


@pytest.mark.parametrize("beam_size", BEAM_SIZES)
def test_there_is_always_room_for_the_next_step(beam_size):
    """The worst case: nobody takes another's place, nothing is ever squeezed out."""
    cache = CpuCache(SHAPE, beam_size)
    cache.append(encoded(3), [0])
    for step in range(100):
        if step == 30:
            cache.append(encoded(3), [0])
        cache.prepare()
        columns = cache.self_arrays()[0].shape[2]
        assert cache.mask.shape == (cache.num_sentences, 1, beam_size, columns)
        assert columns % SELF_COLUMNS == 0
        assert (cache.columns + beam_size <= columns).all()
        assert ((cache.mask == 0.0).sum(axis=-1) == cache.past_lengths[:, :, None] + 1).all()
        cache.advance(own_parents(cache.num_sentences, beam_size))

    assert cache.columns.tolist() == [100 * beam_size, 70 * beam_size]


@pytest.mark.parametrize("beam_size", BEAM_SIZES)
def test_columns_that_no_hypothesis_sees_any_more_are_squeezed_out(beam_size):
    checked = CheckedCache(beam_size)
    checked.append(encoded(3), [0])
    most = 0
    for _ in range(100):
        checked.step(np.zeros((1, beam_size), np.int64))  # all go on from the first: one column a step stays
        most = max(most, int(checked.cache.columns[0]))

    between_two_squeezes = 8 * beam_size + 32 + SELF_COLUMNS  # at most
    assert most <= 100 + between_two_squeezes
    assert checked.cache.self_arrays()[0].shape[2] <= 2 * (100 + between_two_squeezes)


def test_a_step_writes_behind_the_filled_columns_and_every_hypothesis_sees_its_own_column_of_them():
    cache = CpuCache(SHAPE, 2)
    cache.append(encoded(3), [0])

    cache.prepare()

    assert np.argwhere(cache.mask[0, 0] == 0.0).tolist() == [[0, 0], [1, 1]]
    cache.advance(np.array([[1, 1]]))
    assert cache.columns.tolist() == [2]
    assert np.argwhere(cache.mask[0, 0] == 0.0).tolist() == [[0, 1], [1, 1]]
    cache.prepare()
    assert np.argwhere(cache.mask[0, 0] == 0.0).tolist() == [[0, 1], [0, 2], [1, 1], [1, 3]]
