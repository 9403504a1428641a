"""Keys and values of the live sentences in this process' memory: slots of columns that are moved and resized.

Axes: L layers, H heads, N slots, C columns of a buffer.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.engine.key_value_cache import (
    INITIAL_COLUMNS,
    INITIAL_SLOTS,
    KEPT_SLOTS,
    CacheShape,
    KeyValueCache,
    is_worth_keeping,
)

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


class CpuSlots:
    """2 L arrays [N, H, C, d_head], one slot behind the other, whose C can be changed for little (`Slots`).

    Each array lies at the beginning of a larger piece of one memory, so that neither more slots nor other columns need
    a new one as long as they fit.
    """

    def __init__(self, shape: CacheShape, num_columns: int) -> None:
        self.num_columns = num_columns
        self.generation = 0
        self._shape = shape
        self._kept = KEPT_SLOTS * INITIAL_COLUMNS * shape.column_size
        self._memory = self._allocate(INITIAL_SLOTS * INITIAL_COLUMNS * shape.column_size)  # [2 L, floats of an array]
        self._slots = self._lay_out()  # [2 L, N, H, C, d_head], as many as fit

    def views(self, num_slots: int) -> list[Floats]:
        """Return the first slots of every array, contiguous."""
        return list(self._slots[:, :num_slots])

    @property
    def has_grown(self) -> bool:
        return bool(self._memory.shape[1] > self._kept)

    def resize(self, num_used: int, num_slots: int, num_columns: int) -> None:
        wanted = num_slots * num_columns * self._shape.column_size
        keeps_memory = is_worth_keeping(self._memory.shape[1], wanted, self._kept)
        if keeps_memory and num_columns == self.num_columns:
            return
        kept = min(num_columns, self.num_columns)
        old = self._slots[:, :num_used, :, :kept]
        if keeps_memory:
            old = old.copy()
        else:
            self._memory = self._allocate(2 * wanted)
            self.generation += 1
        self.num_columns = num_columns
        self._slots = self._lay_out()
        self._slots[:, :num_used, :, :kept] = old

    def fill(self, first: int, encoded: CpuEncoded, indices: Sequence[int]) -> None:
        chosen = list(indices)
        new, width = slice(first, first + len(chosen)), int(encoded.lengths[chosen].max())
        for target, source in zip(self._slots, encoded.arrays, strict=True):
            target[new, :, :width] = source[chosen, :, :width]

    def move(self, source: int, target: int, num_columns: int) -> None:
        # Array by array: NumPy would put all of them at once through a copy, for which there may be no memory.
        for array in self._slots:
            array[target, :, :num_columns] = array[source, :, :num_columns]

    def clear(self, slot: int) -> None:
        self._slots[:, slot] = 0.0

    def keep_columns(self, slot: int, columns: Ints) -> None:
        begin = int(np.count_nonzero(columns == np.arange(columns.size)))  # those before are where they belong
        columns_of_slot = self._slots[:, slot]  # [2 L, H, C, d_head]
        columns_of_slot[:, :, begin : columns.size] = columns_of_slot.take(columns[begin:], axis=2)

    def _lay_out(self) -> Floats:
        heads, width, size = self._shape.num_heads, self._shape.d_head, self._memory.shape[1]
        num_slots = size // (self.num_columns * self._shape.column_size)
        laid_out = self._memory[:, : num_slots * self.num_columns * self._shape.column_size].view()
        laid_out.shape = (len(self._memory), num_slots, heads, self.num_columns, width)  # raises rather than copy
        return laid_out

    def _allocate(self, size: int) -> Floats:
        # np.full touches every page now; pages first touched inside a step make it several times slower.
        return np.full((2 * self._shape.num_layers, size), 0.0, np.float32)


class CpuCache(KeyValueCache[CpuSlots, CpuEncoded]):
    """A key/value cache in this process' memory."""

    def __init__(self, shape: CacheShape, beam_size: int) -> None:
        super().__init__(partial(CpuSlots, shape), beam_size)

    def self_arrays(self) -> list[Floats]:
        """Return 2 L arrays [B, H, C, d_head]."""
        return self.own.views(self.num_sentences)

    def cross_arrays(self) -> list[Floats]:
        """Return 2 L arrays [B, H, S, d_head]."""
        return self.cross.views(self.num_sentences)
