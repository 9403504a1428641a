"""Keys and values of the live sentences in this process' memory.

Axes: A arrays, L layers, H heads, N slots, C columns of a buffer.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.engine.key_value_cache import CacheShape, KeyValueCache, SlotBuffer

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class CpuEncoded(NamedTuple):
    """What the encoder returns for some sentences."""

    arrays: Sequence[Floats]  # key and value of layer 0, of layer 1, ...: [B, H, S, d_head]
    lengths: npt.NDArray[np.int32]  # [B]
    sources: Sequence[Sequence[int]] = ()  # for shortlists

    @property
    def num_columns(self) -> int:
        """S."""
        return int(self.arrays[0].shape[2])


class CpuSlots(SlotBuffer):
    """Arrays [N, H, C, d_head] (`Slots`), as many for each layer as `num_parts`."""

    def __init__(self, shape: CacheShape, num_columns: int, num_parts: int = 2) -> None:
        super().__init__(num_parts * shape.num_layers, shape.num_heads, shape.d_head, num_columns, np.float32(0.0))

    def views(self, num_slots: int) -> list[Floats]:
        """Return the first slots of every array, contiguous."""
        return list(self.slots[:, :num_slots])

    def fill(self, first: int, encoded: CpuEncoded, indices: Sequence[int]) -> None:
        chosen = list(indices)
        new, width = slice(first, first + len(chosen)), int(encoded.lengths[chosen].max())
        for target, source in zip(self.slots, encoded.arrays, strict=True):
            target[new, :, :width] = source[chosen, :, :width]

    def move(self, source: int, target: int, num_columns: int) -> None:
        # Array by array: NumPy would put all of them at once through a copy, for which there may be no memory.
        for array in self.slots:
            array[target, :, :num_columns] = array[source, :, :num_columns]

    def clear(self, slot: int) -> None:
        self.slots[:, slot] = 0.0

    def keep_columns(self, slot: int, columns: Ints) -> None:
        begin = int(np.count_nonzero(columns == np.arange(columns.size)))  # those before are where they belong
        columns_of_slot = self.slots[:, slot]  # [A, H, C, d_head]
        columns_of_slot[:, :, begin : columns.size] = columns_of_slot.take(columns[begin:], axis=2)


class CpuCache(KeyValueCache[CpuSlots]):
    """A key/value cache in this process' memory."""

    def __init__(self, shape: CacheShape, beam_size: int) -> None:
        self.shape = shape
        own = partial(CpuSlots, shape, num_parts=len(shape.cache_parts))
        super().__init__(partial(CpuSlots, shape), beam_size, new_own_slots=own, has_steps=shape.has_steps)

    def self_arrays(self) -> list[Floats]:
        """Return L or 2 L arrays [B, H, C, d_head]."""
        return self.own.views(self.num_sentences)

    def cross_arrays(self) -> list[Floats]:
        """Return 2 L arrays [B, H, S, d_head]."""
        return self.cross.views(self.num_sentences)
