"""Every hypothesis sees its own past and nothing else, whatever joins, is reordered, compacted, moved or removed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from service.engine.cpu.runner import CROSS_COLUMNS, SELF_COLUMNS, CpuCache
from tests.fakes.checked_cache import (
    SHAPE,
    CheckedCache,
    Ints,
    encoded,
    numbers_of,
    own_parents,
    random_parents,
)


class AnySequence(RuleBasedStateMachine):
    """What the loop may do to a cache, in any order."""

    @initialize(beam_size=st.sampled_from([1, 2, 3, 5, 8]))
    def start(self, beam_size: int) -> None:
        self.checked = CheckedCache(beam_size)

    @property
    def num_sentences(self) -> int:
        return self.checked.cache.num_sentences

    @precondition(lambda self: self.num_sentences < 40)
    @rule(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=5), seed=st.integers(0, 99))
    def some_join(self, lengths: list[int], seed: int) -> None:
        chosen = np.random.default_rng(seed).permutation(len(lengths))[: 1 + seed % len(lengths)]
        self.checked.append(encoded(*lengths, seed=seed), chosen.tolist())

    @precondition(lambda self: self.num_sentences < 30)
    @rule(count=st.integers(30, 50))
    def many_join_at_once(self, count: int) -> None:
        self.checked.append(encoded(*[2] * count, seed=count), range(count))

    @precondition(lambda self: self.num_sentences)
    @rule(seed=st.integers(0, 10**6), num_steps=st.integers(1, 12), is_reordered=st.booleans())
    def decode(self, seed: int, num_steps: int, *, is_reordered: bool) -> None:
        rng, shape = np.random.default_rng(seed), (self.num_sentences, self.checked.beam_size)
        for _ in range(num_steps):
            self.checked.step(random_parents(rng, *shape) if is_reordered else own_parents(*shape))

    @precondition(lambda self: self.num_sentences)
    @rule(number=st.integers(0, 10**6), is_finite=st.booleans())
    def one_leaves(self, number: int, *, is_finite: bool) -> None:
        self.checked.remove(number % self.num_sentences, is_finite=is_finite)

    @precondition(lambda self: self.num_sentences)
    @rule(number=st.integers(0, 10**6))
    def all_but_one_leave(self, number: int) -> None:
        rng = np.random.default_rng(number)
        while self.num_sentences > 1:
            self.checked.remove(int(rng.integers(self.num_sentences)))

    @invariant()
    def every_hypothesis_sees_its_own_past(self) -> None:
        self.checked.check()


TestAnySequence = AnySequence.TestCase


TestAnySequence.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)


def test_arrays_are_contiguous_and_as_the_graph_wants_them():
    cache = CpuCache(SHAPE, 4)
    cache.append(encoded(3, 20), [0, 1])

    columns = cache.self_arrays()[0].shape[2]
    assert columns % SELF_COLUMNS == 0
    assert [array.shape for array in cache.self_arrays()] == [(2, 3, columns, 2)] * 4
    assert [array.shape for array in cache.cross_arrays()] == [(2, 3, 24, 2)] * 4
    assert cache.mask.shape == (2, 1, 4, columns)
    assert [array.shape for array in numbers_of(cache)] == [(2, 1), (2,), (2,)]
    floats = [*cache.self_arrays(), *cache.cross_arrays(), cache.mask]
    assert {array.dtype.name for array in floats} == {"float32"}
    assert [array.dtype.name for array in numbers_of(cache)] == ["int64", "int32", "int64"]
    assert all(array.flags.c_contiguous for array in [*floats, *numbers_of(cache)])


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


@settings(max_examples=8, deadline=None)
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


def test_cross_columns_follow_the_longest_live_source_and_narrow_when_much_is_spared():
    def columns() -> int:
        return int(checked.cache.cross_arrays()[0].shape[2])

    checked = CheckedCache(2)
    widths = []
    for length in (8, 9, 65):
        checked.append(encoded(length), [0])
        widths.append(columns())
    assert widths == [8, 16, 72]
    checked.remove(2)
    checked.append(encoded(64), [0])
    assert columns() == 72  # 64 would spare a ninth
    checked.remove(2)
    checked.append(encoded(3), [0])
    assert columns() == 16
    assert columns() % CROSS_COLUMNS == 0
    checked.check()


def test_self_columns_that_only_an_ended_sentence_needed_are_given_back():
    def columns() -> int:
        return int(checked.cache.self_arrays()[0].shape[2])

    checked = CheckedCache(4)
    checked.append(encoded(3), [0])
    narrowest = columns()
    for _ in range(50):
        checked.step(own_parents(1, 4))
    widest = columns()
    checked.append(encoded(3, 4), [0, 1])
    assert columns() == widest >= 4 * 50

    checked.remove(0)
    checked.append(encoded(3), [0])

    assert columns() == narrowest
    checked.check()


@pytest.mark.parametrize(("lengths", "has_grown"), [((9,) * 16, False), ((9,) * 17, True), ((70,), True)])
def test_an_empty_cache_says_whether_many_or_long_sentences_have_grown_it(lengths, has_grown):
    cache = CpuCache(SHAPE, 2)
    cache.append(encoded(*lengths), range(len(lengths)))

    while cache.num_sentences:
        cache.remove(0)

    assert cache.has_grown is has_grown
