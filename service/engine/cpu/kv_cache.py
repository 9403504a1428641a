"""Keys and values of the live sentences, in arrays that ONNX Runtime reads and writes in place.

A slot holds one sentence; slots are numbered 0 .. num_sentences - 1 without holes, as in `BeamSearch`.  The hypotheses
of a sentence share its columns: a step adds one column for each hypothesis, and a mask says which columns are a
hypothesis' own past.  A beam that changes its order thus moves a few rows of the mask and no keys.  Columns that no
hypothesis attends to any more are removed now and then (compacting), at moments that depend on the sentence alone: the
place of its columns decides the order of sums, and so the last bits of a result that must not depend on the batch.

Axes: A arrays, L layers, B sentences, N slots, H heads, K hypotheses of a sentence, C columns.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from service.engine.runner import CacheShape

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

MASKED = np.float32(-1e9)  # added to the product of a query and a key that do not belong together
# Columns come in multiples of these: a ragged end would change the order of a sum in ONNX Runtime's attention.
SELF_COLUMNS = 16
CROSS_COLUMNS = 8
_STEPS_BETWEEN_COMPACTIONS = 4  # of a sentence, about
_SMALLEST_SLACK = 16  # columns that are free after compacting, at least
_KEPT_SLOTS, _KEPT_COLUMNS = 32, 64  # of an empty cache that is kept


class CpuEncoded(NamedTuple):
    """What the encoder returns for some sentences."""

    arrays: Sequence[Floats]  # key and value of layer 0, of layer 1, ...: [B, H, S, d_head]
    lengths: npt.NDArray[np.int32]  # [B]

    @property
    def num_columns(self) -> int:
        """S."""
        return int(self.arrays[0].shape[2])


class CpuCache:
    """The caches of live sentences that decode together: one beam size, sources of similar length."""

    def __init__(self, shape: CacheShape, beam_size: int) -> None:
        self.beam_size = beam_size
        self.num_sentences = 0
        self._slack = _round_up(max(_SMALLEST_SLACK, _STEPS_BETWEEN_COMPACTIONS * beam_size), SELF_COLUMNS)
        num_own, num_cross = len(shape.cache_parts) * shape.num_layers, 2 * shape.num_layers
        self._own = np.zeros((num_own, 0, shape.num_heads, self._slack, shape.d_head), np.float32)  # [A, N, H, C, d]
        self._cross = np.zeros((num_cross, 0, shape.num_heads, CROSS_COLUMNS, shape.d_head), np.float32)
        self._mask = np.zeros((1, 0, beam_size, self._slack, 1), np.float32)  # [1, N, K, C, 1]
        self._steps = np.zeros((1, 0, 1, self._slack, 1), np.int64) if shape.has_steps else None
        self.columns: Ints = np.zeros(0, np.int64)  # [B]: filled ones; the next step writes the K behind them
        self._limits: Ints = np.zeros(0, np.int64)  # [B]: with so many columns, a sentence is compacted
        self.past_lengths: Ints = np.zeros((0, 1), np.int64)  # [B, 1]: decoder steps behind each sentence
        self.source_lengths: npt.NDArray[np.int32] = np.zeros(0, np.int32)  # [B]: columns of cross-attention

    @property
    def has_grown(self) -> bool:
        """Whether an empty cache of this size is worth replacing by a new one."""
        return self._own.shape[1] > _KEPT_SLOTS or max(self._own.shape[3], self._cross.shape[3]) > _KEPT_COLUMNS

    def self_arrays(self) -> list[Floats]:
        """Return L or 2 L arrays [B, H, C, d_head], contiguous."""
        return list(self._own[:, : self.num_sentences])

    def cross_arrays(self) -> list[Floats]:
        """Return 2 L arrays [B, H, C, d_head], contiguous."""
        return list(self._cross[:, : self.num_sentences])

    @property
    def mask(self) -> Floats:
        """[B, 1, K, C]: 0 where a hypothesis attends to a column, `MASKED` elsewhere."""
        return self._mask[0, : self.num_sentences, None, :, :, 0]

    @property
    def column_steps(self) -> Ints | None:
        """[B, C]: the decoder step that wrote each column; None where no graph needs it."""
        return None if self._steps is None else self._steps[0, : self.num_sentences, 0, :, 0]

    def append(self, encoded: CpuEncoded, indices: Sequence[int]) -> None:
        """Give some of the encoder's sentences the next slots, in this order."""
        chosen, first = list(indices), self.num_sentences
        lengths = encoded.lengths[chosen]
        self.num_sentences += len(chosen)
        self.columns = np.append(self.columns, np.zeros(len(chosen), np.int64))
        self._limits = np.append(self._limits, np.full(len(chosen), self._slack))
        self.past_lengths = np.append(self.past_lengths, np.zeros((len(chosen), 1), np.int64), axis=0)
        self.source_lengths = np.append(self.source_lengths, lengths)
        self._fit(num_used=first)
        new, width = slice(first, self.num_sentences), int(lengths.max())
        self.mask[new] = MASKED
        for target, source in zip(self._cross, encoded.arrays, strict=True):
            target[new, :, :width] = source[chosen, :, :width]

    def remove(self, index: int, *, is_finite: bool = True) -> None:
        """Free a slot, into which the last sentence moves; what no mask lets through must be finite."""
        slots = [slots for slots in (self._own, self._cross, self._mask, self._steps) if slots is not None]
        if not is_finite:
            self._own[:, index] = self._cross[:, index] = 0.0
        last = self.num_sentences - 1
        for array in (array for of_all in slots for array in of_all):  # one by one: there may be no memory for more
            array[index] = array[last]
        for numbers in (self.columns, self._limits, self.past_lengths, self.source_lengths):
            numbers[index] = numbers[last]
        self.num_sentences = last
        self.columns, self._limits = self.columns[:last], self._limits[:last]
        self.past_lengths, self.source_lengths = self.past_lengths[:last], self.source_lengths[:last]

    def prepare(self) -> None:
        """Make room for the K columns of the next step, and let each hypothesis attend to its own of them."""
        full = (self.columns + self.beam_size > self._limits).nonzero()[0].tolist()
        for index in full:
            self._compact(index)
        if full:
            self._fit(num_used=self.num_sentences)
        slots, hypotheses = np.arange(self.num_sentences)[:, None], np.arange(self.beam_size)
        new = self.columns[:, None] + hypotheses  # [B, K]
        self._mask[0, slots, hypotheses, new, 0] = 0.0
        if self._steps is not None:
            self._steps[0, slots, 0, new, 0] = self.past_lengths

    def advance(self, parents: Ints) -> None:
        """Count the columns that a decoder step has written, and give every hypothesis its parent's past, [B, K]."""
        self.columns += self.beam_size
        self.past_lengths += 1
        if self.beam_size > 1:
            rows = self._mask[0, : self.num_sentences].reshape(-1, self._mask.shape[3])  # [B * K, C], a view
            first = np.arange(self.num_sentences)[:, None] * self.beam_size
            rows[:] = rows.take((first + parents).ravel(), axis=0)

    def _compact(self, index: int) -> None:
        """Close the gaps that columns without a hypothesis leave; the others keep their order."""
        mask = self._mask[0, index, :, :, 0]  # [K, C], a view
        used = (mask.max(axis=0) == 0.0).nonzero()[0]
        columns = self._own[:, index]  # [A, H, C, d], a view
        columns[:, :, : used.size] = columns[:, :, used]
        mask[:, : used.size] = mask[:, used]
        mask[:, used.size :] = MASKED
        if self._steps is not None:
            steps = self._steps[0, index, 0, :, 0]  # [C], a view
            steps[: used.size] = steps[used]
        self.columns[index] = used.size
        self._limits[index] = _round_up(used.size + self._slack, SELF_COLUMNS)

    def _fit(self, num_used: int) -> None:
        """Make all arrays as wide as the widest live sentence needs, and narrower only where that spares half."""
        own = _fitting(self._own.shape[3], int(self._limits.max()))
        cross = _fitting(self._cross.shape[3], _round_up(int(self.source_lengths.max()), CROSS_COLUMNS))
        self._own = _resized(self._own, num_used, self.num_sentences, own)
        self._cross = _resized(self._cross, num_used, self.num_sentences, cross)
        self._mask = _resized(self._mask, num_used, self.num_sentences, own, MASKED)
        if self._steps is not None:
            self._steps = _resized(self._steps, num_used, self.num_sentences, own)


def _resized(slots: Array, num_used: int, num_sentences: int, num_columns: int, empty: Any = 0) -> Array:
    """Return arrays with room for the sentences and so many columns, and with what the used slots hold."""
    arrays, num_slots, rows, old_columns, width = slots.shape
    if num_sentences <= num_slots and num_columns == old_columns:
        return slots
    if num_sentences > num_slots:
        num_slots = 2 * num_sentences
    resized = np.full((arrays, num_slots, rows, num_columns, width), empty, slots.dtype)
    kept = min(num_columns, old_columns)
    resized[:, :num_used, :, :kept] = slots[:, :num_used, :, :kept]
    return resized


def _fitting(num_columns: int, needed: int) -> int:
    return needed if needed > num_columns or 2 * needed <= num_columns else num_columns


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
