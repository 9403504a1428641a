"""Attention keys and values of the live sentences, in buffers that the decoder graph reads and writes in place.

A slot holds one sentence; slots are numbered 0 .. num_sentences - 1 without holes, as in `BeamSearch`.  The hypotheses
of a sentence share its columns: a step adds one for each, and a mask says which of them are a hypothesis' own past.  A
beam that changes its order so moves a few rows of the mask and no keys.  Columns that no hypothesis attends to any more
are squeezed out now and then, at moments that depend on the sentence alone: where its columns lie decides the order
of sums, and so the last bits of a result that must not depend on the batch.

Knows layouts, not what is computed.
Axes: L layers, H heads, N slots, K hypotheses of a sentence, C columns of a buffer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

# Columns come in multiples of these: a ragged end would change the order of a sum in ONNX Runtime's attention.
SELF_COLUMNS = 16
CROSS_COLUMNS = 8
MASKED = np.float32(-1e9)  # added to the product of a query and a key that do not belong together
_STEPS_BETWEEN_SQUEEZES = 4
_SMALLEST_SLACK = 16  # columns that are free after a squeeze, at least
_INITIAL_SLOTS = 8  # with so many columns each:
_INITIAL_COLUMNS = 64
_KEPT_SLOTS = 32  # room that is never given back


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """What the model decides."""

    num_layers: int
    num_heads: int
    d_head: int

    @property
    def column_size(self) -> int:
        """Floats of one column of one array."""
        return self.num_heads * self.d_head


class Encoded(NamedTuple):
    """What the encoder makes of some sentences, padded to the longest."""

    arrays: Sequence[Floats]  # key and value of layer 0, of layer 1, ...: [B, H, S, d_head]
    lengths: npt.NDArray[np.int32]  # [B]


class SlotBuffers:
    """2 L arrays [N, H, C, d_head], one slot behind the other, whose C can be changed for little.

    Each lies at the beginning of a larger piece of one memory, so that neither more slots nor other columns need a new
    one as long as they fit.
    """

    def __init__(self, shape: CacheShape, num_columns: int) -> None:
        self.num_columns = num_columns  # C
        self.generation = 0  # changes whenever the memory does
        self._shape = shape
        self._kept = _KEPT_SLOTS * _INITIAL_COLUMNS * shape.column_size
        self._memory = self._allocate(
            _INITIAL_SLOTS * _INITIAL_COLUMNS * shape.column_size
        )  # [2 L, floats of an array]
        self._slots = self._lay_out()  # [2 L, N, H, C, d_head], as many as fit

    def views(self, num_slots: int) -> list[Floats]:
        """The first slots of every array, contiguous."""
        return list(self._slots[:, :num_slots])

    @property
    def has_grown(self) -> bool:
        """Whether there is more memory than is kept in any case."""
        return bool(self._memory.shape[1] > self._kept)

    def resize(self, num_used: int, num_slots: int, num_columns: int) -> None:
        """Make room for so many slots of so many columns; give memory back of which less than an eighth is in use.

        Args:
            num_used: slots whose content is kept; columns that are cut off are lost, new ones hold any finite value.
        """
        wanted, size = num_slots * num_columns * self._shape.column_size, self._memory.shape[1]
        has_room = _has_room(wanted, size, self._kept)
        if has_room and num_columns == self.num_columns:
            return
        kept = min(num_columns, self.num_columns)
        old = self._slots[:, :num_used, :, :kept]
        if has_room:
            old = old.copy()
        else:
            self._memory = self._allocate(2 * wanted)
            self.generation += 1
        self.num_columns = num_columns
        self._slots = self._lay_out()
        self._slots[:, :num_used, :, :kept] = old

    def move(self, source: int, target: int, num_columns: int) -> None:
        """Copy the first columns of a slot over those of another."""
        self._slots[:, target, :, :num_columns] = self._slots[:, source, :, :num_columns]

    def clear(self, slot: int) -> None:
        """Make a slot zero."""
        self._slots[:, slot] = 0.0

    def keep_columns(self, slot: int, columns: Ints) -> None:
        """Move these columns of a slot, which ascend, to its front."""
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


class MaskBuffer:
    """Which columns each hypothesis attends to: float32 [N * K, C], 0 or `MASKED`, laid out as `SlotBuffers` are."""

    def __init__(self, beam_size: int, num_columns: int) -> None:
        self.num_columns = num_columns  # C
        self.generation = 0  # changes whenever the memory does
        self._beam_size = beam_size
        self._kept = _KEPT_SLOTS * beam_size * _INITIAL_COLUMNS
        self._memory = np.full(_INITIAL_SLOTS * beam_size * _INITIAL_COLUMNS, MASKED)

    def rows(self, num_slots: int) -> Floats:
        """[N * K, C] of the first slots."""
        num_rows = num_slots * self._beam_size
        return self._memory[: num_rows * self.num_columns].reshape(num_rows, self.num_columns)

    def of_slot(self, slot: int) -> Floats:
        """[K, C]."""
        return self.rows(slot + 1)[slot * self._beam_size :]

    def resize(self, num_used: int, num_slots: int, num_columns: int) -> None:
        """As `SlotBuffers.resize`; new columns are masked."""
        wanted = num_slots * self._beam_size * num_columns
        has_room = _has_room(wanted, self._memory.size, self._kept)
        if has_room and num_columns == self.num_columns:
            return
        old = self.rows(num_used).copy()
        if not has_room:
            self._memory = np.full(2 * wanted, MASKED)
            self.generation += 1
        kept, self.num_columns = min(num_columns, self.num_columns), num_columns
        rows = self.rows(num_used)
        rows[:, :kept] = old[:, :kept]
        rows[:, kept:] = MASKED


class KeyValueCache:
    """The caches of live sentences that decode together: one beam size, sources of similar length."""

    def __init__(self, shape: CacheShape, beam_size: int) -> None:
        self.beam_size = beam_size
        self.num_sentences = 0
        self._slack = _round_up(max(_SMALLEST_SLACK, _STEPS_BETWEEN_SQUEEZES * beam_size), SELF_COLUMNS)
        self._self = SlotBuffers(shape, self._slack)
        self._cross = SlotBuffers(shape, CROSS_COLUMNS)
        self._mask = MaskBuffer(beam_size, self._slack)
        self._columns = np.zeros(_INITIAL_SLOTS, np.int64)
        self._limits = np.zeros(_INITIAL_SLOTS, np.int64)  # a sentence with so many columns is squeezed
        self._past_lengths = np.zeros((_INITIAL_SLOTS, 1), np.int64)
        self._source_lengths = np.zeros(_INITIAL_SLOTS, np.int32)
        self._columns_left = 0  # no sentence reaches its limit before so many more are written; saves looking
        self._slots = 0  # counts how often the four above were replaced

    @property
    def memory(self) -> tuple[int, ...]:
        """Changes whenever one of the arrays below gets another address."""
        return self._self.generation, self._cross.generation, self._mask.generation, self._slots

    @property
    def layout(self) -> tuple[int, int, int]:
        """B, C of self-attention and of cross-attention: with the same memory, the same arrays."""
        return self.num_sentences, self._self.num_columns, self._cross.num_columns

    @property
    def past_lengths(self) -> Ints:
        """[B, 1]: decoder steps behind each sentence."""
        return self._past_lengths[: self.num_sentences]

    @property
    def source_lengths(self) -> npt.NDArray[np.int32]:
        """[B]: columns filled in each sentence's cross-attention slot."""
        return self._source_lengths[: self.num_sentences]

    @property
    def columns(self) -> Ints:
        """[B]: columns filled in each sentence's self-attention slot; the next step writes the K behind them."""
        return self._columns[: self.num_sentences]

    @property
    def mask(self) -> Floats:
        """[B, 1, K, C]: 0 where a hypothesis attends to a column, `MASKED` elsewhere."""
        return self._mask.rows(self.num_sentences).reshape(self.num_sentences, 1, self.beam_size, -1)

    @property
    def has_grown(self) -> bool:
        """Whether an empty cache of this size is worth replacing by a new one."""
        return self._self.has_grown or self._cross.has_grown

    def self_arrays(self) -> list[Floats]:
        """2 L arrays [B, H, C, d_head]."""
        return self._self.views(self.num_sentences)

    def cross_arrays(self) -> list[Floats]:
        """2 L arrays [B, H, S, d_head]."""
        return self._cross.views(self.num_sentences)

    def append(self, encoded: Encoded, indices: Sequence[int]) -> None:
        """Give some of the encoder's sentences the next slots, in this order."""
        first, last = self.num_sentences, self.num_sentences + len(indices)
        self._reserve(last)
        new = slice(first, last)
        self._columns[new] = 0
        self._limits[new] = self._slack
        self._columns_left = min(self._columns_left, self._slack)
        self._past_lengths[new] = 0
        self._source_lengths[new] = lengths = encoded.lengths[list(indices)]
        self.num_sentences = last
        self._fit(num_used=first)
        self.mask[new] = MASKED
        width = int(lengths.max())
        for target, source in zip(self.cross_arrays(), encoded.arrays, strict=True):
            target[new, :, :width] = source[list(indices), :, :width]

    def remove(self, index: int, *, is_finite: bool = True) -> None:
        """Free a slot; the last sentence moves into the hole.

        Args:
            is_finite: False when the sentence may have left NaN in its slot: what no mask lets through must be finite.
        """
        if not is_finite:
            self._self.clear(index)
            self._cross.clear(index)
        last = self.num_sentences - 1
        if index != last:
            self._self.move(last, index, int(self._columns[last]))
            self._cross.move(last, index, int(self._source_lengths[last]))
            self._mask.of_slot(index)[: self.beam_size] = self._mask.of_slot(last)
            for array in self._arrays():
                array[index] = array[last]
        self.num_sentences = last

    def prepare(self) -> None:
        """See to it that the next step can write K columns, and let each hypothesis attend to its own of them."""
        self._columns_left -= self.beam_size
        if self._columns_left < 0:
            self._make_room()
        rows = self._mask.rows(self.num_sentences)  # [B * K, C]
        hypothesis = np.arange(len(rows))
        rows[hypothesis, np.repeat(self.columns, self.beam_size) + hypothesis % self.beam_size] = 0.0

    def advance(self, parents: Ints) -> None:
        """Count the columns that a decoder step has written, and give every hypothesis its parent's past.

        Args:
            parents: [B, K].
        """
        self.columns[:] += self.beam_size
        self.past_lengths[:] += 1
        if self.beam_size > 1:
            rows = self._mask.rows(self.num_sentences)  # [B * K, C]
            first = np.arange(0, len(rows), self.beam_size)
            rows[:] = rows.take((first[:, None] + parents).ravel(), axis=0)

    def _arrays(self) -> list[npt.NDArray[np.generic]]:
        """What is kept per slot beside the buffers."""
        return [self._columns, self._limits, self._past_lengths, self._source_lengths]

    def _reserve(self, num_sentences: int) -> None:
        if num_sentences > self._columns.size:
            num_slots = max(num_sentences, 2 * self._columns.size)
            self._columns, self._limits, self._past_lengths, self._source_lengths = (
                np.resize(array, (num_slots, *array.shape[1:])) for array in self._arrays()
            )
            self._slots += 1

    def _make_room(self) -> None:
        """Squeeze the sentences that have reached their limit."""
        full = (self.columns + self.beam_size > self._limits[: self.num_sentences]).nonzero()[0].tolist()
        for index in full:
            self._squeeze(index)
        if full:
            self._fit(num_used=self.num_sentences)
        self._columns_left = int((self._limits[: self.num_sentences] - self.columns).min()) - self.beam_size

    def _squeeze(self, index: int) -> None:
        """Close the gaps that columns without a hypothesis leave; the others keep their order."""
        mask = self._mask.of_slot(index)  # [K, C], a view
        used = (mask.max(axis=0) == 0.0).nonzero()[0]
        self._self.keep_columns(index, used)
        mask[:, : used.size] = mask[:, used]
        mask[:, used.size :] = MASKED
        self._columns[index] = used.size
        self._limits[index] = _round_up(used.size + self._slack, SELF_COLUMNS)

    def _fit(self, num_used: int) -> None:
        """As wide as the widest live sentence needs; narrower only to spare half, so that it is seldom."""
        live = slice(self.num_sentences)
        own = _fitting(self._self.num_columns, int(self._limits[live].max()))
        cross = _fitting(self._cross.num_columns, _round_up(int(self._source_lengths[live].max()), CROSS_COLUMNS))
        for buffers, num_columns in ((self._self, own), (self._mask, own), (self._cross, cross)):
            buffers.resize(num_used, self.num_sentences, num_columns)


def _has_room(wanted: int, size: int, kept: int) -> bool:
    """Whether memory of this size is to be kept: it is large enough and, beyond `kept`, an eighth of it is in use."""
    return wanted <= size and (size <= kept or 8 * wanted >= size)


def _fitting(num_columns: int, needed: int) -> int:
    return needed if needed > num_columns or 2 * needed <= num_columns else num_columns


def _round_up(number: Any, multiple: int) -> Any:
    return -(-number // multiple) * multiple
