"""Attention keys and values of the live sentences, in buffers that the decoder graph reads and writes in place.

A slot holds one sentence; slots are numbered 0 .. num_sentences - 1 without holes, as in `BeamSearch`.  Self-attention
has K rows per slot, cross-attention one row that the K hypotheses share.  Every row starts at column 0, padding is on
the right and finite.  Knows layouts, not what is computed.

Axes: L layers, H heads, N rows in use, C columns of the buffer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.engine.beam import Moves

Floats = npt.NDArray[np.float32]

SELF_COLUMNS = 64  # columns at first; doubled when a hypothesis gets longer
# Columns come in multiples of this: at beam 1 an odd number changes the order of a sum in ONNX Runtime's attention, and
# with it the last bits of a result that must not depend on the batch.
CROSS_COLUMNS = 8
_INITIAL_ROWS = 32
# Never given back: as many as the engine's warm-up touches, 33 MB of keys and values with the default model.
_KEPT_ROWS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """What the model decides."""

    num_layers: int
    num_heads: int
    d_head: int


class Encoded(NamedTuple):
    """What the encoder makes of some sentences, padded to the longest."""

    arrays: Sequence[Floats]  # key and value of layer 0, of layer 1, ...: [B, H, S, d_head]
    lengths: npt.NDArray[np.int32]  # [B]


class RowBuffers:
    """2 L arrays [N, H, C, d_head] with room for more rows; key and value of layer 0, of layer 1, ..."""

    def __init__(self, shape: CacheShape, num_columns: int) -> None:
        self._shape = shape
        self._buffers = self._allocate(_INITIAL_ROWS, num_columns)
        self.generation = 0  # changes whenever memory or layout does

    @property
    def num_columns(self) -> int:
        """C."""
        return int(self._buffers[0].shape[2])

    def views(self, num_rows: int) -> list[Floats]:
        """The first rows of every array, contiguous."""
        return [buffer[:num_rows] for buffer in self._buffers]

    def reserve(self, num_rows: int) -> None:
        """Make room for so many rows; doubles."""
        capacity = self._buffers[0].shape[0]
        if num_rows > capacity:
            self._lay_out(max(num_rows, 2 * capacity), self.num_columns)

    @property
    def has_grown(self) -> bool:
        """Whether there are more rows than are kept in any case."""
        return len(self._buffers[0]) > _KEPT_ROWS

    def trim(self, num_rows: int) -> None:
        """Give rows back when less than a quarter is in use; doubles what is."""
        if self.has_grown and 4 * num_rows < len(self._buffers[0]):
            self._lay_out(max(_KEPT_ROWS, 2 * num_rows), self.num_columns)

    def set_columns(self, num_columns: int) -> None:
        """Change C; columns that are cut off are lost, new ones are zero."""
        if num_columns != self.num_columns:
            self._lay_out(self._buffers[0].shape[0], num_columns)

    def move(self, source: slice, target: slice, num_columns: int) -> None:
        """Copy the first columns of rows over those of others."""
        for buffer in self._buffers:
            buffer[target, :, :num_columns] = buffer[source, :, :num_columns]

    def clear(self, rows: slice) -> None:
        """Make rows zero."""
        for buffer in self._buffers:
            buffer[rows] = 0.0

    def copy_columns(self, moves: Moves) -> None:
        """Copy the columns in which rows differ from their sources, all at once."""
        if not moves.rows.size:
            return
        counts = moves.stops - moves.starts
        # starts [3 5], counts [2 1] -> columns [3 4 5]
        columns = np.arange(counts.sum()) + np.repeat(moves.starts - counts.cumsum() + counts, counts)
        targets = self._chunks(np.repeat(moves.rows, counts), columns)
        sources = self._chunks(np.repeat(moves.sources, counts), columns)
        for buffer in self._buffers:
            chunks = buffer.reshape(-1, self._shape.d_head)  # [N * H * C, d_head], a view
            chunks[targets] = chunks.take(sources, axis=0)

    def _chunks(self, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Numbers of the d_head-wide pieces at these places, for every head."""
        heads = np.arange(self._shape.num_heads)
        numbers: npt.NDArray[np.int64] = (rows[:, None] * len(heads) + heads) * self.num_columns + columns[:, None]
        return numbers.ravel()

    def _lay_out(self, num_rows: int, num_columns: int) -> None:
        old = self._buffers
        rows, columns = min(num_rows, old[0].shape[0]), min(num_columns, self.num_columns)
        self._buffers = self._allocate(num_rows, num_columns)
        for buffer, previous in zip(self._buffers, old, strict=True):
            buffer[:rows, :, :columns] = previous[:rows, :, :columns]
        self.generation += 1

    def _allocate(self, num_rows: int, num_columns: int) -> list[Floats]:
        shape = (num_rows, self._shape.num_heads, num_columns, self._shape.d_head)
        # np.full touches every page now; pages first touched inside a step make it several times slower.
        return [np.full(shape, 0.0, np.float32) for _ in range(2 * self._shape.num_layers)]


class KeyValueCache:
    """The caches of all live sentences of one beam size."""

    def __init__(self, shape: CacheShape, beam_size: int) -> None:
        self.beam_size = beam_size
        self._self = RowBuffers(shape, SELF_COLUMNS)
        self._cross = RowBuffers(shape, CROSS_COLUMNS)
        self._lengths = np.zeros(_INITIAL_ROWS, np.int32)
        self._source_lengths = np.zeros(_INITIAL_ROWS, np.int32)
        self.num_sentences = 0

    @property
    def layout(self) -> tuple[int, int, int]:
        """Changes whenever an array below has another address or shape."""
        return self.num_sentences, self._self.generation, self._cross.generation

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """[B]: columns filled in each sentence's self-attention rows."""
        return self._lengths[: self.num_sentences]

    @property
    def source_lengths(self) -> npt.NDArray[np.int32]:
        """[B]: columns filled in each sentence's cross-attention row."""
        return self._source_lengths[: self.num_sentences]

    @property
    def has_grown(self) -> bool:
        """Whether an empty cache of this size is worth replacing by a new one."""
        return self._self.num_columns > SELF_COLUMNS or self._self.has_grown or self._cross.has_grown

    def self_arrays(self) -> list[Floats]:
        """2 L arrays [B * K, H, T, d_head]."""
        return self._self.views(self.num_sentences * self.beam_size)

    def cross_arrays(self) -> list[Floats]:
        """2 L arrays [B, H, S, d_head]."""
        return self._cross.views(self.num_sentences)

    def append(self, encoded: Encoded, indices: Sequence[int]) -> None:
        """Give some of the encoder's sentences the next slots, in this order."""
        first, last = self.num_sentences, self.num_sentences + len(indices)
        self._reserve(last)
        self._lengths[first:last] = 0
        self._source_lengths[first:last] = encoded.lengths[list(indices)]
        self.num_sentences = last
        self._fit_cross_columns()
        self._cross.clear(slice(first, last))  # what a former sentence left there might not be finite
        width = min(self._cross.num_columns, encoded.arrays[0].shape[2])
        for target, source in zip(self._cross.views(last), encoded.arrays, strict=True):
            target[first:last, :, :width] = source[list(indices), :, :width]

    def remove(self, index: int, *, is_finite: bool = True) -> None:
        """Free a slot; the last sentence moves into the hole.

        Args:
            is_finite: False when the sentence may have left NaN in its rows.
        """
        if not is_finite:
            self._self.clear(self._rows(index))
            self._cross.clear(slice(index, index + 1))
        last = self.num_sentences - 1
        if index != last:
            self._move(last, index)
        self.num_sentences = last
        self._fit_cross_columns()
        if self.num_sentences:
            self._give_back()

    def make_room(self) -> None:
        """See to it that one more column can be written to every row."""
        needed = int(self.lengths.max(initial=0)) + 1
        if needed > self._self.num_columns:
            self._self.set_columns(max(needed, 2 * self._self.num_columns))

    def extend(self) -> None:
        """Count the column that a decoder step has written to every row."""
        self.lengths[:] += 1

    def reorder(self, moves: Moves) -> None:
        """Give rows the columns of other rows."""
        self._self.copy_columns(moves)

    def _move(self, source: int, target: int) -> None:
        self._self.move(self._rows(source), self._rows(target), int(self._lengths[source]))
        self._cross.move(slice(source, source + 1), slice(target, target + 1), int(self._source_lengths[source]))
        self._lengths[target] = self._lengths[source]
        self._source_lengths[target] = self._source_lengths[source]

    def _rows(self, index: int) -> slice:
        return slice(index * self.beam_size, (index + 1) * self.beam_size)

    def _reserve(self, num_sentences: int) -> None:
        self._self.reserve(num_sentences * self.beam_size)
        self._cross.reserve(num_sentences)
        if num_sentences > self._lengths.size:
            self._lengths = np.resize(self._lengths, 2 * num_sentences)
            self._source_lengths = np.resize(self._source_lengths, 2 * num_sentences)

    def _give_back(self) -> None:
        """Shrink to twice what is in use once that is less than a quarter, to lay out seldom."""
        self._self.trim(self.num_sentences * self.beam_size)
        self._cross.trim(self.num_sentences)
        longest = int(self.lengths.max())
        if 4 * longest < self._self.num_columns:
            self._self.set_columns(-(-max(1, 2 * longest) // SELF_COLUMNS) * SELF_COLUMNS)

    def _fit_cross_columns(self) -> None:
        """As wide as the longest live source needs; narrower again only when it halves, to lay out seldom."""
        longest = int(self.source_lengths.max(initial=1))
        needed = -(-longest // CROSS_COLUMNS) * CROSS_COLUMNS
        if needed > self._cross.num_columns or 2 * needed <= self._cross.num_columns:
            self._cross.set_columns(needed)
