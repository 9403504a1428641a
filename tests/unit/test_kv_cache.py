"""Every hypothesis sees its own past and nothing else, whatever joins, is reordered, squeezed, moved or removed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from service.engine.kv_cache import (
    CROSS_COLUMNS,
    MASKED,
    SELF_COLUMNS,
    CacheShape,
    Encoded,
    KeyValueCache,
)
from service.engine.slots import SlotBuffers

SHAPE = CacheShape(num_layers=2, num_heads=3, d_head=2)
BEAM_SIZES = (1, 4, 5, 16)

Ints = npt.NDArray[np.int64]


def encoded(*lengths: int, seed: int = 0) -> Encoded:
    """Random keys and values, also in the padding."""
    rng = np.random.default_rng(seed)
    shape = (len(lengths), SHAPE.num_heads, max(lengths), SHAPE.d_head)
    arrays = [rng.normal(size=shape).astype(np.float32) for _ in range(2 * SHAPE.num_layers)]
    return Encoded(arrays, np.array(lengths, np.int32))


def memories(cache: KeyValueCache) -> list[npt.NDArray[np.float32]]:
    """All there is, used or not."""
    return [memory for slots in cache.slots if isinstance(slots, SlotBuffers) for memory in slots._memory]


def contents(array: int, numbers: Sequence[int]) -> npt.NDArray[np.float32]:
    """[H, C, d_head]: what steps write to the columns of these numbers in the given array; float32 holds it exactly."""
    place = 10 * np.arange(SHAPE.num_heads)[:, None, None] + np.arange(SHAPE.d_head)
    return np.asarray(100 * np.array(numbers).reshape(1, -1, 1) + 50 * (array % 2) + place + array // 2 / 2, np.float32)


@dataclass
class Past:
    """A sentence as the oracle has it."""

    source: list[npt.NDArray[np.float32]]  # 2 L arrays [H, S, d_head]
    columns: list[list[int]]  # by hypothesis: the numbers of its columns, oldest first
    num_steps: int = 0


@dataclass
class CheckedCache:
    """A cache beside lists of what each hypothesis must see."""

    beam_size: int
    cache: KeyValueCache = field(init=False)
    pasts: list[Past] = field(default_factory=list)
    num_columns: int = 0  # written so far, by any sentence
    _arrays_by_key: dict[object, object] = field(default_factory=dict)
    _before: tuple[object, object] = (None, None)

    def __post_init__(self) -> None:
        self.cache = KeyValueCache(SHAPE, self.beam_size)

    def append(self, source: Encoded, indices: Sequence[int]) -> None:
        self.cache.append(source, indices)
        for index in indices:
            kept = [array[index, :, : source.lengths[index]].copy() for array in source.arrays]
            self.pasts.append(Past(kept, [[] for _ in range(self.beam_size)]))
        self._check_keys()

    def step(self, parents: Ints) -> None:
        self.cache.prepare()
        self._check_keys()
        self._write()
        assert ((self.cache.mask == 0.0).sum(axis=-1) == self.cache.past_lengths[:, :, None] + 1).all()
        self.cache.advance(parents)
        for past, order in zip(self.pasts, parents.tolist(), strict=True):
            past.columns = [list(past.columns[parent]) for parent in order]
            past.num_steps += 1

    def _write(self) -> None:
        """As the step graph: K columns a sentence."""
        arrays = self.cache.self_arrays()
        for index, past in enumerate(self.pasts):
            first = self.cache.columns[index]
            assert first + self.beam_size <= arrays[0].shape[2]
            new = range(self.num_columns, self.num_columns + self.beam_size)
            for number, array in enumerate(arrays):
                array[index, :, first : first + self.beam_size] = contents(number, new)
            for columns, number in zip(past.columns, new, strict=True):
                columns.append(number)
            self.num_columns = new.stop

    def remove(self, index: int, *, is_finite: bool = True) -> None:
        if not is_finite:
            for array in [*self.cache.self_arrays(), *self.cache.cross_arrays()]:
                array[index] = np.nan
        self.cache.remove(index, is_finite=is_finite)
        self.pasts[index] = self.pasts[-1]
        self.pasts.pop()
        self._check_keys()

    def check(self) -> None:
        """The cache against the lists."""
        cache = self.cache
        assert cache.num_sentences == len(self.pasts)
        assert cache.past_lengths[:, 0].tolist() == [past.num_steps for past in self.pasts]
        assert cache.source_lengths.tolist() == [past.source[0].shape[1] for past in self.pasts]
        for index, past in enumerate(self.pasts):
            for stored, source in zip(cache.cross_arrays(), past.source, strict=True):
                assert np.array_equal(stored[index, :, : source.shape[1]], source)
            for hypothesis, numbers in enumerate(past.columns):
                self._check_hypothesis(index, hypothesis, numbers)
        assert all(np.isfinite(memory).all() for memory in memories(cache))

    def _check_hypothesis(self, index: int, hypothesis: int, numbers: list[int]) -> None:
        mask = self.cache.mask[index, 0, hypothesis]
        is_seen = mask == 0.0
        assert (is_seen | (mask == MASKED)).all()
        for number, array in enumerate(self.cache.self_arrays()):
            assert np.array_equal(array[index][:, is_seen], contents(number, numbers))

    def _check_keys(self) -> None:
        """`memory` and `layout` change when an address or a shape does, and only then."""
        if not self.pasts:
            return
        cache = self.cache
        key: object = (cache.memory, cache.layout)
        arrays: object = tuple(
            (array.ctypes.data, array.shape)
            for array in (*cache.self_arrays(), *cache.cross_arrays(), *numbers_of(cache), cache.mask)
        )
        key_before, arrays_before = self._before
        assert (key == key_before) == (arrays == arrays_before)
        assert self._arrays_by_key.setdefault(key, arrays) == arrays
        self._before = key, arrays


def numbers_of(cache: KeyValueCache) -> list[npt.NDArray[np.int64] | npt.NDArray[np.int32]]:
    return [cache.past_lengths, cache.source_lengths, cache.columns]


def random_parents(rng: np.random.Generator, num_sentences: int, beam_size: int) -> Ints:
    return rng.integers(0, beam_size, (num_sentences, beam_size))


def own_parents(num_sentences: int, beam_size: int) -> Ints:
    """Nobody takes another's place, so that nothing can be squeezed out."""
    return np.tile(np.arange(beam_size), (num_sentences, 1))


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


# Where columns lie decides the order of sums: it may depend on nothing but the sentence.


def trace_of(cache: KeyValueCache, index: int) -> tuple[int, bytes]:
    """Where the columns of a sentence lie that has been prepared for a step."""
    columns = int(cache.columns[index])
    return columns, (cache.mask[index, 0, :, : columns + cache.beam_size] == 0.0).tobytes()


def trace_alone(parents: Ints) -> list[tuple[int, bytes]]:
    num_steps, beam_size = parents.shape
    cache = KeyValueCache(SHAPE, beam_size)
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
    cache = KeyValueCache(SHAPE, beam_size)
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
def test_there_is_always_room_for_the_next_step(beam_size):
    """The worst case: nobody takes another's place, nothing is ever squeezed out."""
    cache = KeyValueCache(SHAPE, beam_size)
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
    cache = KeyValueCache(SHAPE, 2)
    cache.append(encoded(3), [0])

    cache.prepare()

    assert np.argwhere(cache.mask[0, 0] == 0.0).tolist() == [[0, 0], [1, 1]]
    cache.advance(np.array([[1, 1]]))
    assert cache.columns.tolist() == [2]
    assert np.argwhere(cache.mask[0, 0] == 0.0).tolist() == [[0, 1], [1, 1]]
    cache.prepare()
    assert np.argwhere(cache.mask[0, 0] == 0.0).tolist() == [[0, 1], [0, 2], [1, 1], [1, 3]]


# Sentences, one by one.


def test_appended_sentences_hold_what_was_encoded_for_them_in_the_given_order():
    cache, source = KeyValueCache(SHAPE, 2), encoded(3, 5, 4)

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
    cache = KeyValueCache(SHAPE, 4)
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


def test_memory_that_only_a_former_load_needed_is_given_back():
    checked = CheckedCache(2)

    def allocated() -> int:
        return sum(memory.size for memory in memories(checked.cache))

    at_first = allocated()
    checked.append(encoded(*[60] * 400), range(400))
    checked.step(own_parents(400, 2))
    most = allocated()
    assert (most > at_first, checked.cache.has_grown) == (True, True)
    while len(checked.pasts) > 1:
        checked.remove(len(checked.pasts) - 1)
    assert allocated() == most

    checked.append(encoded(5), [0])

    assert (allocated() <= at_first, checked.cache.has_grown) == (True, False)
    checked.check()


def test_a_load_that_comes_and_goes_allocates_nothing_new():
    checked = CheckedCache(2)
    for _ in range(3):
        checked.append(encoded(*[60] * 100), range(100))
        checked.step(own_parents(100, 2))
        memory = checked.cache.memory
        while checked.pasts:
            checked.remove(0)

    assert checked.cache.has_grown
    assert checked.cache.memory == memory
    checked.append(encoded(*[60] * 100), range(100))
    assert checked.cache.memory == memory


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


def test_steps_change_no_key_until_there_is_no_room_for_the_next():
    cache = KeyValueCache(SHAPE, 4)
    cache.append(encoded(3, 3), [0, 1])
    memory, layout = cache.memory, cache.layout
    columns = cache.self_arrays()[0].shape[2]
    for _ in range(columns // 4):
        cache.prepare()
        cache.advance(own_parents(2, 4))
        assert (cache.memory, cache.layout) == (memory, layout)
    assert cache.columns.tolist() == [columns, columns]

    cache.prepare()

    assert cache.layout != layout
    assert cache.layout[1] >= columns + 4


def test_key_is_new_when_only_the_counts_of_the_sentences_have_moved():
    """There is memory for 33 sentences, but the counts have to move: the arrays of 20 sentences are then other ones."""
    checked = CheckedCache(1)
    checked.append(encoded(*[200] * 20), range(20))
    while not checked.cache._self.has_grown:
        checked.cache.prepare()
        checked.cache.advance(own_parents(20, 1))
    memory, layout = checked.cache.memory, checked.cache.layout
    columns = checked.cache.columns.ctypes.data

    checked.cache.append(encoded(*[2] * 13), range(13))
    while checked.cache.num_sentences > 20:
        checked.cache.remove(20)

    assert checked.cache.columns.ctypes.data != columns
    assert (checked.cache.memory[:-1], checked.cache.layout) == (memory[:-1], layout)
    assert checked.cache.memory != memory


@pytest.mark.parametrize("beam_size", [2, 3, 5, 6])
def test_sentence_that_joins_just_after_a_squeeze_is_squeezed_when_it_would_be_alone(beam_size):
    """The first sentence has more room then than a new one is given."""
    parents = random_parents(np.random.default_rng(1), 60, beam_size)
    of_first = np.maximum(np.arange(beam_size) - 1, 0)
    cache = KeyValueCache(SHAPE, beam_size)
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


# Buffers.

ONE_NUMBER = CacheShape(num_layers=1, num_heads=1, d_head=1)


def test_a_buffer_keeps_its_content_when_its_columns_change_in_place():
    buffers = SlotBuffers(SHAPE, 8)
    for view in buffers.views(3):
        view[:] = np.arange(view.size).reshape(view.shape)
    kept = buffers.views(3)[0].copy()

    buffers.resize(3, 3, 24)
    for wider in buffers.views(3):
        assert wider.shape == (3, 3, 24, 2)
        np.testing.assert_array_equal(wider[:, :, :8], kept)
    buffers.resize(3, 3, 4)
    for narrower in buffers.views(3):
        np.testing.assert_array_equal(narrower, kept[:, :, :4])
    assert (buffers.generation, buffers.has_grown) == (0, False)


def test_a_buffer_with_too_little_memory_gets_twice_what_is_wanted():
    buffers = SlotBuffers(SHAPE, 80)
    room = buffers._memory[0].size // (80 * 6)
    buffers.resize(0, room, 80)
    assert (buffers.has_grown, buffers.generation) == (False, 0)
    buffers.resize(room, room + 1, 80)
    assert buffers.generation == 1
    buffers.resize(room + 1, 2 * room + 2, 80)
    assert (buffers.has_grown, buffers.generation) == (False, 1)
    buffers.resize(2 * room + 2, 8 * room, 80)
    assert (buffers.has_grown, buffers.generation) == (True, 2)
    assert buffers.views(8 * room)[0].shape == (8 * room, 3, 80, 2)


@pytest.mark.parametrize("columns", [[], [0, 1, 2], [5], [2, 3, 4], [0, 1, 3, 5], [0, 1, 2, 3, 4, 5]])
def test_kept_columns_move_to_the_front_in_their_order(columns):
    buffers = SlotBuffers(ONE_NUMBER, 6)
    for number, view in enumerate(buffers.views(2)):
        view[:, 0, :, 0] = 10 * number + np.arange(6)

    buffers.keep_columns(1, np.array(columns, np.int64))

    for number, view in enumerate(buffers.views(2)):
        assert view[1, 0, : len(columns), 0].tolist() == [10 * number + column for column in columns]
        assert view[0, 0, :, 0].tolist() == [10 * number + column for column in range(6)]
