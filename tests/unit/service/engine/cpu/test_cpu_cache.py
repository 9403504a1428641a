"""The buffers in which sentences have their slots."""

import tracemalloc

import numpy as np

from service.engine.cpu.cache import CpuSlots
from service.engine.key_value_cache import CacheShape


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
