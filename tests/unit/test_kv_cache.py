"""Slots without holes, growth, and reordering of nothing but what differs."""

import numpy as np
import pytest

from service.engine.beam import Moves
from service.engine.kv_cache import SELF_COLUMNS, CacheShape, Encoded, KeyValueCache, RowBuffers

SHAPE = CacheShape(num_layers=2, num_heads=3, d_head=4)
K = 2


def encoded(*lengths: int, seed: int = 0) -> Encoded:
    """Random keys and values, also in the padding."""
    rng = np.random.default_rng(seed)
    shape = (len(lengths), SHAPE.num_heads, max(lengths), SHAPE.d_head)
    arrays = [rng.normal(size=shape).astype(np.float32) for _ in range(2 * SHAPE.num_layers)]
    return Encoded(arrays, np.array(lengths, np.int32))


def fill(cache: KeyValueCache, seed: int = 0) -> None:
    """One column in every row, as a decoder step does."""
    rng = np.random.default_rng(seed)
    cache.make_room()
    for array in cache.self_arrays():
        for row in range(array.shape[0]):
            array[row, :, cache.lengths[row // cache.beam_size]] = rng.normal(size=array.shape[1::2])
    cache.extend()


def contents(cache: KeyValueCache, index: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What a sentence has stored."""
    rows = slice(index * cache.beam_size, (index + 1) * cache.beam_size)
    own = [array[rows, :, : cache.lengths[index]].copy() for array in cache.self_arrays()]
    cross = [array[index, :, : cache.source_lengths[index]].copy() for array in cache.cross_arrays()]
    return own, cross


def assert_same(first: tuple[list[np.ndarray], list[np.ndarray]], second: tuple[list[np.ndarray], list[np.ndarray]]):
    for one, other in zip(first[0] + first[1], second[0] + second[1], strict=True):
        np.testing.assert_array_equal(one, other)


def moves(*quadruples: tuple[int, int, int, int]) -> Moves:
    return Moves(*np.array(quadruples, np.int64).reshape(-1, 4).T)


def test_appended_sentences_hold_what_was_encoded_for_them_in_the_given_order():
    cache, source = KeyValueCache(SHAPE, K), encoded(3, 5, 4)

    cache.append(source, [2, 0])

    assert cache.num_sentences == 2
    assert cache.source_lengths.tolist() == [4, 3]
    assert cache.lengths.tolist() == [0, 0]
    for stored, given in zip(cache.cross_arrays(), source.arrays, strict=True):
        np.testing.assert_array_equal(stored[0, :, :4], given[2, :, :4])
        np.testing.assert_array_equal(stored[1, :, :3], given[0, :, :3])


def test_arrays_are_contiguous_and_as_the_graph_wants_them():
    cache = KeyValueCache(SHAPE, K)
    cache.append(encoded(3, 20), [0, 1])

    assert [array.shape for array in cache.self_arrays()] == [(2 * K, 3, SELF_COLUMNS, 4)] * 4
    assert [array.shape for array in cache.cross_arrays()] == [(2, 3, 24, 4)] * 4
    assert all(array.flags.c_contiguous for array in cache.self_arrays() + cache.cross_arrays())


@pytest.mark.parametrize("index", [0, 1, 2])
def test_last_sentence_moves_into_the_hole(index):
    cache = KeyValueCache(SHAPE, K)
    cache.append(encoded(3, 5, 4), [0, 1, 2])
    fill(cache)
    fill(cache, seed=1)
    before = [contents(cache, n) for n in range(3)]

    cache.remove(index)

    assert cache.num_sentences == 2
    survivors = {0: [2, 1], 1: [0, 2], 2: [0, 1]}[index]
    for place, survivor in enumerate(survivors):
        assert_same(contents(cache, place), before[survivor])


def test_sentence_that_joins_later_starts_at_column_zero_beside_its_neighbours():
    cache = KeyValueCache(SHAPE, K)
    cache.append(encoded(3), [0])
    fill(cache)
    before = contents(cache, 0)

    cache.append(encoded(7, seed=1), [0])

    assert cache.lengths.tolist() == [1, 0]
    assert_same(contents(cache, 0), before)
    fill(cache)
    assert cache.lengths.tolist() == [2, 1]


def test_more_sentences_columns_and_longer_sources_than_there_was_room_for_lose_nothing():
    cache = KeyValueCache(SHAPE, K)
    cache.append(encoded(3), [0])
    for step in range(SELF_COLUMNS + 5):
        fill(cache, seed=step)
    before = contents(cache, 0)

    for n in range(70):
        cache.append(encoded(4 + n, seed=n), [0])

    assert cache.num_sentences == 71
    assert cache.self_arrays()[0].shape[2] == 2 * SELF_COLUMNS
    assert cache.cross_arrays()[0].shape[2] == 80
    assert_same(contents(cache, 0), before)
    for stored, given in zip(cache.cross_arrays(), encoded(4 + 69, seed=69).arrays, strict=True):
        np.testing.assert_array_equal(stored[70, :, :73], given[0])


def test_columns_are_added_just_before_they_are_needed():
    cache = KeyValueCache(SHAPE, K)
    cache.append(encoded(3), [0])
    for _ in range(SELF_COLUMNS):
        fill(cache)
    assert cache.self_arrays()[0].shape[2] == SELF_COLUMNS

    cache.make_room()

    assert cache.self_arrays()[0].shape[2] == 2 * SELF_COLUMNS


def test_cross_columns_follow_the_longest_live_source():
    def columns() -> int:
        return int(cache.cross_arrays()[0].shape[2])

    cache = KeyValueCache(SHAPE, K)
    cache.append(encoded(8), [0])
    assert columns() == 8
    cache.append(encoded(9), [0])
    assert columns() == 16
    cache.append(encoded(33), [0])
    assert columns() == 40
    before = contents(cache, 1)
    cache.remove(2)
    assert columns() == 16
    assert_same(contents(cache, 1), before)
    cache.remove(1)
    assert columns() == 8


def test_cross_padding_is_zero_also_where_a_longer_sentence_was():
    cache = KeyValueCache(SHAPE, K)
    cache.append(encoded(8), [0])
    cache.remove(0)

    cache.append(encoded(3), [0])

    assert all(not array[0, :, 3:].any() for array in cache.cross_arrays())


def test_sentence_with_nan_leaves_none_behind():
    cache = KeyValueCache(SHAPE, K)
    cache.append(encoded(9, 3), [0, 1])
    fill(cache)
    kept = contents(cache, 1)
    for array in cache.self_arrays() + cache.cross_arrays():
        array[: array.shape[0] // 2] = np.nan

    cache.remove(0, is_finite=False)

    assert_same(contents(cache, 0), kept)
    cache.append(encoded(5), [0])
    assert all(np.isfinite(array).all() for array in cache.self_arrays() + cache.cross_arrays())


def test_reorder_copies_the_named_columns_of_rows_as_they_were_before():
    cache = KeyValueCache(SHAPE, K)
    cache.append(encoded(3, 3), [0, 1])
    for step in range(5):
        fill(cache, seed=step)
    before = [array.copy() for array in cache.self_arrays()]

    cache.reorder(moves((0, 1, 1, 4), (1, 0, 2, 5), (3, 2, 4, 5)))

    for array, old in zip(cache.self_arrays(), before, strict=True):
        expected = old.copy()
        expected[0, :, 1:4] = old[1, :, 1:4]
        expected[1, :, 2:5] = old[0, :, 2:5]
        expected[3, :, 4:5] = old[2, :, 4:5]
        np.testing.assert_array_equal(array, expected)


def test_reorder_of_nothing_changes_nothing():
    cache = KeyValueCache(SHAPE, K)
    cache.append(encoded(3), [0])
    fill(cache)
    before = contents(cache, 0)

    cache.reorder(moves())
    cache.reorder(moves((0, 1, 1, 1)))

    assert_same(contents(cache, 0), before)


def test_layout_changes_with_every_new_address_or_shape_and_only_then():
    cache = KeyValueCache(SHAPE, K)
    cache.append(encoded(3, 3), [0, 1])
    first = cache.layout
    fill(cache)
    cache.reorder(moves((0, 1, 0, 1)))
    assert cache.layout == first

    cache.remove(0)
    fewer = cache.layout
    cache.append(encoded(30), [0])
    wider = cache.layout

    assert len({first, fewer, wider}) == 3
    cache.append(encoded(30), [0])
    cache.remove(0)
    assert cache.layout == wider


def test_rows_double_when_there_are_too_few():
    buffers = RowBuffers(SHAPE, num_columns=8)

    buffers.reserve(33)
    buffers.reserve(34)

    assert buffers.views(64)[0].shape == (64, 3, 8, 4)
    assert buffers.generation == 1


def test_columns_that_only_an_ended_sentence_needed_are_given_back():
    cache = KeyValueCache(SHAPE, K)
    cache.append(encoded(3), [0])
    for step in range(4 * SELF_COLUMNS + 1):
        fill(cache, seed=step)
    cache.append(encoded(3, 4), [0, 1])
    fill(cache, seed=9999)
    kept = contents(cache, 2)
    assert cache.self_arrays()[0].shape[2] == 8 * SELF_COLUMNS
    had_grown = cache.has_grown

    cache.remove(0)

    assert cache.self_arrays()[0].shape[2] == SELF_COLUMNS
    assert (had_grown, cache.has_grown) == (True, False)
    assert_same(contents(cache, 0), kept)


def test_rows_are_given_back_when_less_than_a_quarter_is_in_use():
    cache = KeyValueCache(SHAPE, 8)
    cache.append(encoded(*range(1, 129)), range(128))
    fill(cache)
    kept = contents(cache, 3)
    assert allocated_rows(cache) == 1024

    for number in range(127, 31, -1):
        cache.remove(number)
    assert allocated_rows(cache) == 1024
    cache.remove(31)

    assert allocated_rows(cache) == 2 * 31 * 8
    assert_same(contents(cache, 3), kept)
    for number in range(30, 0, -1):
        cache.remove(number)
    assert allocated_rows(cache) == 128


def allocated_rows(cache: KeyValueCache) -> int:
    return len(cache._self.views(2**30)[0])
