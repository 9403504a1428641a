"""Every hypothesis sees its own past and nothing else, whatever joins, is reordered, squeezed, moved or removed."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from service.engine.cpu.cache import CpuCache
from service.engine.key_value_cache import MASKED, SELF_COLUMNS
from tests.fakes.checked_cache import SHAPE, CheckedCache, encoded, numbers_of, own_parents, random_parents


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


def test_appended_sentences_hold_what_was_encoded_for_them_in_the_given_order():
    cache, source = CpuCache(SHAPE, 2), encoded(3, 5, 4)

    cache.append(source, [2, 0])

    assert cache.num_sentences == 2
    assert cache.source_lengths.tolist() == [4, 3]
    assert cache.past_lengths.tolist() == [[0], [0]]
    assert cache.columns.tolist() == [0, 0]
    assert (cache.mask == MASKED).all()
    for stored, array in zip(cache.cross_arrays(), source.arrays, strict=True):
        np.testing.assert_array_equal(stored[0, :, :4], array[2, :, :4])
        np.testing.assert_array_equal(stored[1, :, :3], array[0, :, :3])


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


@pytest.mark.parametrize("index", [0, 1, 2])
def test_last_sentence_moves_into_the_hole(index):
    checked = CheckedCache(2)
    checked.append(encoded(3, 5, 4), [0, 1, 2])
    checked.step(np.array([[0, 0], [1, 0], [1, 1]]))
    checked.step(np.array([[1, 0], [0, 0], [0, 1]]))

    checked.remove(index)

    assert checked.cache.source_lengths.tolist() == {0: [4, 5], 1: [3, 4], 2: [3, 5]}[index]
    checked.check()


@pytest.mark.parametrize("count", [33, 65, 100, 300])
@pytest.mark.parametrize("already", [0, 1, 32])
def test_any_number_of_sentences_can_join_at_once(count, already):
    checked = CheckedCache(1)
    if already:
        checked.append(encoded(*[3] * already), range(already))

    checked.append(encoded(*[2] * count, seed=1), range(count))
    checked.step(own_parents(already + count, 1))

    checked.check()
    assert checked.cache.columns.tolist() == [1] * (already + count)


@pytest.mark.parametrize("index", [0, 1])
def test_sentence_with_nan_leaves_none_behind(index):
    checked = CheckedCache(2)
    checked.append(encoded(9, 3), [0, 1])
    checked.step(own_parents(2, 2))

    checked.remove(index, is_finite=False)

    checked.check()
    checked.append(encoded(5, 12), [0, 1])
    checked.step(own_parents(3, 2))
    live = [*checked.cache.self_arrays(), *checked.cache.cross_arrays(), checked.cache.mask]
    assert all(np.isfinite(array).all() for array in live)
