"""The buffers in which sentences have their slots."""

import tracemalloc

import numpy as np
import pytest

from service.engine.cpu.cache import CpuSlots
from service.engine.key_value_cache import CacheShape
from tests.fakes.checked_cache import SHAPE

ONE_NUMBER = CacheShape(num_layers=1, num_heads=1, d_head=1)


def test_a_buffer_keeps_its_content_when_its_columns_change_in_place():
    buffers = CpuSlots(SHAPE, 8)
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
    buffers = CpuSlots(SHAPE, 80)
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


def test_a_slot_moves_without_memory_for_a_copy_of_it():
    buffers = CpuSlots(CacheShape(num_layers=3, num_heads=4, d_head=16), 64)
    rng = np.random.default_rng(0)
    for view in buffers.views(4):
        view[:] = rng.normal(size=view.shape)
    wanted = [view.copy() for view in buffers.views(4)]
    for array in wanted:
        array[1, :, :50] = array[3, :, :50]

    tracemalloc.start()
    buffers.move(3, 1, 50)
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    np.testing.assert_array_equal(buffers.views(4), wanted)
    assert most_bytes < 2_000  # an array of the slot has 16,384


@pytest.mark.parametrize("columns", [[], [0, 1, 2], [5], [2, 3, 4], [0, 1, 3, 5], [0, 1, 2, 3, 4, 5]])
def test_kept_columns_move_to_the_front_in_their_order(columns):
    buffers = CpuSlots(ONE_NUMBER, 6)
    for number, view in enumerate(buffers.views(2)):
        view[:, 0, :, 0] = 10 * number + np.arange(6)

    buffers.keep_columns(1, np.array(columns, np.int64))

    for number, view in enumerate(buffers.views(2)):
        assert view[1, 0, : len(columns), 0].tolist() == [10 * number + column for column in columns]
        assert view[0, 0, :, 0].tolist() == [10 * number + column for column in range(6)]
