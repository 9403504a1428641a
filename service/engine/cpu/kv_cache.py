"""Attention keys and values of the live sentences, in buffers that the decoder graph reads and writes in place.

A slot holds one sentence; slots are numbered 0 .. num_sentences - 1 without holes, as in `BeamSearch`.  The hypotheses
of a sentence share its columns: a step adds one for each, and a mask says which of them are a hypothesis' own past.  A
beam that changes its order so moves a few rows of the mask and no keys.  Columns that no hypothesis attends to any more
are squeezed out now and then, at moments that depend on the sentence alone: where its columns lie decides the order
of sums, and so the last bits of a result that must not depend on the batch.

Knows which columns are whose, neither where they lie (`slots.py`) nor what is computed.
Axes: L layers, H heads, N slots, K hypotheses of a sentence, C columns of a buffer.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from service.engine.slots import (
    MASKED,
    CacheShape,
    Encoded,
    EncodedSentences,
    Floats,
    HostStorage,
    Ints,
    MaskBuffer,
    SlotBuffers,
    Slots,
    Storage,
)

__all__ = ["CROSS_COLUMNS", "MASKED", "SELF_COLUMNS", "CacheShape", "Encoded", "EncodedSentences", "KeyValueCache"]

# Columns come in multiples of these: a ragged end would change the order of a sum in ONNX Runtime's attention.
SELF_COLUMNS = 16
CROSS_COLUMNS = 8
_SMALLEST_SLACK = 16  # columns that are free after a squeeze, at least
_INITIAL_SLOTS = 8


class KeyValueCache:
    """The caches of live sentences that decode together: one beam size, sources of similar length."""

    def __init__(self, shape: CacheShape, beam_size: int, storage: Storage | None = None) -> None:
        storage = storage or HostStorage()
        self.beam_size = beam_size
        self.num_sentences = 0
        self._slack = _round_up(max(_SMALLEST_SLACK, storage.steps_between_squeezes * beam_size), SELF_COLUMNS)
        self._self = storage.slots(shape, self._slack)
        self._cross = storage.slots(shape, CROSS_COLUMNS)
        self._mask = MaskBuffer(beam_size, self._slack, storage.masked)
        self._columns = np.zeros(_INITIAL_SLOTS, np.int64)
        self._limits = np.zeros(_INITIAL_SLOTS, np.int64)  # a sentence with so many columns is squeezed
        self._past_lengths = np.zeros((_INITIAL_SLOTS, 1), np.int64)
        self._source_lengths = np.zeros(_INITIAL_SLOTS, np.int32)
        self._columns_left = 0  # lower bound on the columns any sentence may still write; below 0, limits are looked at
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
    def mask(self) -> npt.NDArray[Any]:
        """[B, 1, K, C]: 0 where a hypothesis attends to a column, a masking value elsewhere."""
        return self._mask.rows(self.num_sentences).reshape(self.num_sentences, 1, self.beam_size, -1)

    @property
    def has_grown(self) -> bool:
        """Whether an empty cache of this size is worth replacing by a new one."""
        return self._self.has_grown or self._cross.has_grown

    @property
    def slots(self) -> tuple[Slots, Slots]:
        """Those of self-attention and of cross-attention."""
        return self._self, self._cross

    def self_arrays(self) -> list[Floats]:
        """2 L arrays [B, H, C, d_head]; of caches in this process' memory."""
        return _host(self._self).views(self.num_sentences)

    def cross_arrays(self) -> list[Floats]:
        """2 L arrays [B, H, S, d_head]; of caches in this process' memory."""
        return _host(self._cross).views(self.num_sentences)

    def append(self, encoded: EncodedSentences, indices: Sequence[int]) -> None:
        """Give some of the encoder's sentences the next slots, in this order."""
        first, last = self.num_sentences, self.num_sentences + len(indices)
        self._reserve(last)
        new = slice(first, last)
        self._columns[new] = 0
        self._limits[new] = self._slack
        self._columns_left = min(self._columns_left, self._slack)
        self._past_lengths[new] = 0
        self._source_lengths[new] = encoded.lengths[list(indices)]
        self.num_sentences = last
        self._fit(num_used=first)
        self.mask[new] = self._mask.masked
        self._cross.fill(first, encoded, indices)

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
        self._mask.show(self.columns)

    def advance(self, parents: Ints) -> None:
        """Count the columns that a decoder step has written, and give every hypothesis its parent's past.

        Args:
            parents: [B, K].
        """
        self.columns[:] += self.beam_size
        self.past_lengths[:] += 1
        if self.beam_size > 1:
            self._mask.follow(parents)

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
        mask[:, used.size :] = self._mask.masked
        self._columns[index] = used.size
        self._limits[index] = _round_up(used.size + self._slack, SELF_COLUMNS)

    def _fit(self, num_used: int) -> None:
        """As wide as the widest live sentence needs; narrower only to spare half, so that it is seldom."""
        live = slice(self.num_sentences)
        own = _fitting(self._self.num_columns, int(self._limits[live].max()))
        cross = _fitting(self._cross.num_columns, _round_up(int(self._source_lengths[live].max()), CROSS_COLUMNS))
        for buffers, num_columns in ((self._self, own), (self._mask, own), (self._cross, cross)):
            buffers.resize(num_used, self.num_sentences, num_columns)


def _host(slots: Slots) -> SlotBuffers:
    assert isinstance(slots, SlotBuffers), "these keys and values are on a device"
    return slots


def _fitting(num_columns: int, needed: int) -> int:
    return needed if needed > num_columns or 2 * needed <= num_columns else num_columns


def _round_up(number: Any, multiple: int) -> Any:
    return -(-number // multiple) * multiple
