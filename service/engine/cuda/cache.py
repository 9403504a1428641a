"""The keys and values of a group's live sentences in a GPU's memory, where nothing moves but what must.

A slot holds one sentence, at an address that does not change while the sentence lives, as a recorded step demands.  A
sentence that leaves frees its slot, one that joins is copied into a free one, and a step runs over the first slots, a
few more than there are sentences.  In a slot, a step writes its K columns wherever no hypothesis attends to a column
any more, so columns are never compacted; a mask says which ones are a hypothesis' own past.

Knows neither graphs nor sessions.  The same code runs in this process' memory, for tests (`HostDevice`).
Axes: A arrays (a key and a value a layer), N slots, H heads, K hypotheses, C columns, S source columns, d head width.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from service.engine.cuda.memory import Device, Piece, Pitched
from service.engine.key_value_cache import CacheShape, Ints

HALF_MASKED = np.float16(-3e4)  # as `MASKED`, which half precision cannot hold
_INITIAL_SLOTS = 16
_SELF_COLUMNS = 64  # of a new cache
_CROSS_COLUMNS = 32  # likewise; sentences of a group have sources of one power of two
_SMALLEST_CAPACITY = 3 << 10  # columns of all slots; a number that all numbers of columns (`column_bucket`) divide
_INITIAL_BYTES = 32 << 20  # of the first memory, but for models whose smallest one is larger
_KEPT_BYTES = 128 << 20  # of each memory that a group may keep while it is idle: other memory means other recordings
_SCRATCH_BYTES = 8 << 20  # for slots that get another number of columns

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class CudaEncoded:
    """What the encoder returns for some sentences."""

    memory: ort.OrtValue  # [A, B, H, S, d]
    lengths: npt.NDArray[np.int32]  # [B]
    num_columns: int  # S


class SlotMemory:
    """A arrays [N, H, C, d] on the device, each at an address of its own whatever N and C are."""

    def __init__(self, shape: CacheShape, device: Device, item_bytes: int, num_columns: int) -> None:
        self.num_columns = num_columns  # C
        self.num_arrays = 2 * shape.num_layers
        self._heads, self._head_bytes = shape.num_heads, shape.d_head * item_bytes
        self._device = device
        self.capacity = 0  # N * C at most
        self._piece: Piece | None = None

    @property
    def address(self) -> int:
        """Where the first array begins."""
        return self._piece.address if self._piece else 0

    @property
    def has_grown(self) -> bool:
        """Whether there is more memory than is kept in any case."""
        is_smallest = self.capacity <= _SMALLEST_CAPACITY
        return not is_smallest and self.num_arrays * self._array_bytes > _KEPT_BYTES

    def addresses(self) -> list[int]:
        """Return where each array begins."""
        return [self.address + array * self._array_bytes for array in range(self.num_arrays)]

    def fit(self, num_slots: int, num_columns: int, num_used: int) -> None:
        """Make room for slots of so many columns; those in use keep what they hold, as far as the columns reach."""
        if num_slots * num_columns > self.capacity:
            self._grow(num_slots, num_columns, num_used)
        elif num_columns != self.num_columns:
            self._reshape(num_columns, num_used)

    def fill(self, slot: int, encoded: CudaEncoded, index: int) -> None:
        """Copy one of the encoder's sentences into a slot, whose other columns stay as they are."""
        length = int(encoded.lengths[index])
        pitch, rows = encoded.num_columns * self._head_bytes, len(encoded.lengths) * self._heads
        source = Pitched(encoded.memory.data_ptr() + index * self._heads * pitch, pitch, rows)
        self._device.copy(source, self._at(slot), (length * self._head_bytes, self._heads, self.num_arrays))

    def move(self, source: int, target: int) -> None:
        """Copy a slot over another."""
        begin, stride = self.address, self._array_bytes
        source_rows, target_rows = (Pitched(begin + slot * self._slot_bytes, stride, 1) for slot in (source, target))
        self._device.copy(source_rows, target_rows, (self._slot_bytes, self.num_arrays, 1))

    def clear(self, slot: int) -> None:
        """Make a slot zero."""
        place = self.address + slot * self._slot_bytes
        self._device.clear(place, self._array_bytes, self._slot_bytes, self.num_arrays)

    @property
    def _slot_bytes(self) -> int:
        return self._heads * self.num_columns * self._head_bytes

    @property
    def _array_bytes(self) -> int:
        return self.capacity * self._heads * self._head_bytes

    def _at(self, slot: int) -> Pitched:
        """Return where a slot's heads lie, a group an array."""
        pitch = self.num_columns * self._head_bytes
        return Pitched(self.address + slot * self._slot_bytes, pitch, self._array_bytes // pitch)

    def _grow(self, num_slots: int, num_columns: int, num_used: int) -> None:
        """Move to a larger memory."""
        old, old_piece, kept = self._at(0), self._piece, min(num_columns, self.num_columns)
        column_bytes = self.num_arrays * self._heads * self._head_bytes
        thirds = max(-(-num_slots * num_columns // 3), num_columns, _INITIAL_BYTES // (6 * column_bytes))
        capacity = max(_SMALLEST_CAPACITY, 3 << (thirds - 1).bit_length())
        self._piece = self._device.allocate(capacity * column_bytes)
        self.capacity, self.num_columns = capacity, num_columns
        if old_piece is not None and num_used:
            self._device.copy(old, self._at(0), (kept * self._head_bytes, num_used * self._heads, self.num_arrays))

    def _reshape(self, num_columns: int, num_used: int) -> None:
        """Give slots another number of columns where they are, some at a time by way of another memory.

        Wider slots move away from the beginning and the last ones first, narrower ones towards it: none is written over
        before it has moved.
        """
        kept = min(num_columns, self.num_columns)
        row, slot_bytes = kept * self._head_bytes, self.num_arrays * self._heads * kept * self._head_bytes
        at_once = min(max(1, _SCRATCH_BYTES // slot_bytes), max(1, num_used))
        scratch = self._device.allocate(at_once * slot_bytes)
        firsts = range(0, num_used, at_once)
        for first in reversed(firsts) if num_columns > self.num_columns else firsts:
            rows = min(at_once, num_used - first) * self._heads
            between, extent, old = Pitched(scratch.address, row, rows), (row, rows, self.num_arrays), self.num_columns
            self._device.copy(self._at(first), between, extent)
            self.num_columns = num_columns
            self._device.copy(between, self._at(first), extent)
            self.num_columns = old
        self.num_columns = num_columns


class CudaState:
    """What the decoder remembers of a group's sentences (`DecoderState`): slots on the device, and their masks."""

    def __init__(self, shape: CacheShape, beam_size: int, device: Device, masked: np.floating[Any]) -> None:
        """Create the state of a group without sentences; `masked` is of the type of keys and values."""
        self.beam_size = beam_size
        self.own = SlotMemory(shape, device, masked.dtype.itemsize, _SELF_COLUMNS)
        self.cross = SlotMemory(shape, device, masked.dtype.itemsize, _CROSS_COLUMNS)
        self._slots: list[int] = []  # of each sentence
        self._free = list(range(_INITIAL_SLOTS))  # a heap
        self._heads = np.arange(shape.num_heads)
        self._hypotheses = np.arange(beam_size)
        # Of each slot; those of a slot without a sentence are as of one that begins.  The mask's numbers are bits of
        # its floating type, which NumPy compares many times faster as integers.
        self._masked = masked.view(f"i{masked.dtype.itemsize}")
        self._mask = np.full((_INITIAL_SLOTS, beam_size, self.own.num_columns), self._masked)  # [N, K, C]
        self._past_lengths = np.zeros(_INITIAL_SLOTS, np.int64)
        self._source_lengths = np.ones(_INITIAL_SLOTS, np.int32)

    @property
    def num_sentences(self) -> int:
        return len(self._slots)

    @property
    def has_grown(self) -> bool:
        """Whether an empty state of this size is worth replacing by a new one."""
        return self.own.has_grown or self.cross.has_grown

    @property
    def slots(self) -> Ints:
        """[B]: the slot of each sentence."""
        return np.array(self._slots, np.int64)

    @property
    def num_slots(self) -> int:
        """The first slots that a step runs over."""
        return slot_bucket(max(self._slots) + 1)

    def append(self, encoded: CudaEncoded, indices: Sequence[int]) -> None:
        """Add the sentences with these indices of a batch, in this order."""
        num_used = max(self._slots, default=-1) + 1
        while len(self._free) < len(indices):
            self._add_slots()
        new = [heapq.heappop(self._free) for _ in indices]
        num_slots = slot_bucket(max(num_used, max(new) + 1))
        longest = int(encoded.lengths[list(indices)].max())
        num_columns = max(self.cross.num_columns, 1 << (longest - 1).bit_length())
        self.cross.fit(num_slots, num_columns, num_used)
        self.own.fit(num_slots, self.own.num_columns, num_used)
        self._slots += new
        for slot, index in zip(new, indices, strict=True):
            self.cross.fill(slot, encoded, index)
            self._source_lengths[slot] = encoded.lengths[index]

    def remove(self, index: int, *, is_finite: bool = True) -> None:
        """Free a slot; the last sentence takes its number.  What no mask lets through must be finite."""
        slot = self._slots[index]
        if not is_finite:
            self.own.clear(slot)
            self.cross.clear(slot)
        self._slots[index] = self._slots[-1]
        self._slots.pop()
        self._empty(slot)
        heapq.heappush(self._free, slot)

    def prepare(self) -> None:
        """Make the slots and columns as few as the live sentences allow, and as many as the next step needs."""
        if 2 * self.num_sentences <= self.num_slots:
            self._move_together()
        used = self._used()
        needed = int(used.sum(axis=1).max()) + self.beam_size
        num_columns = column_bucket(needed)
        if num_columns > self.own.num_columns or (
            2 * num_columns <= self.own.num_columns and not used[:, num_columns:].any()
        ):
            self._set_columns(num_columns)
            used = self._used()
        # The first K columns of each slot that nothing attends to, [B, K].
        free = ~used
        is_chosen = free & (free.cumsum(axis=1, dtype=np.int32) <= self.beam_size)
        self._new_columns = is_chosen.nonzero()[1].reshape(-1, self.beam_size)
        self._mask[self.slots[:, None], self._hypotheses, self._new_columns] = 0

    def write(self, arrays: Arrays) -> None:
        """Write what a step over `num_slots` slots must know: the arrays are those of `step_inputs`."""
        num_slots = self.num_slots
        arrays["past_lengths"][:, 0] = self._past_lengths[:num_slots]
        arrays["source_lengths"][:] = self._source_lengths[:num_slots]
        mask = arrays["self_mask"]
        mask.view(self._mask.dtype)[:, 0] = self._mask[:num_slots]
        # Sentence, head and column; slots without a sentence write their first columns again and again.
        places = arrays["new_columns"]  # [B, H, K, 3]
        places[..., 0] = np.arange(num_slots)[:, None, None]
        places[..., 1] = self._heads[:, None]
        places[..., 2] = self._hypotheses
        places[self.slots, :, :, 2] = self._new_columns[:, None, :]

    def step_inputs(self) -> dict[str, tuple[tuple[int, ...], npt.DTypeLike]]:
        """Return shapes and types of the arrays that `write` fills."""
        B, K = self.num_slots, self.beam_size
        return {
            "past_lengths": ((B, 1), np.int64),
            "source_lengths": ((B,), np.int32),
            "self_mask": ((B, 1, K, self.own.num_columns), f"f{self._mask.dtype.itemsize}"),
            "new_columns": ((B, len(self._heads), K, 3), np.int64),
        }

    def advance(self, parents: Ints) -> None:
        """Finish a decoder step: hypothesis k of sentence b goes on from the past of hypothesis `parents[b, k]`."""
        slots = self.slots
        self._past_lengths[slots] += 1
        if self.beam_size > 1:
            self._mask[slots] = self._mask[slots[:, None], parents]

    def _used(self) -> npt.NDArray[np.bool_]:
        """[B, C]: whether some hypothesis of the sentence attends to the column."""
        return (self._mask[self.slots] == 0).any(axis=1)  # type: ignore[no-any-return]

    def _set_columns(self, num_columns: int) -> None:
        num_used, kept = max(self._slots) + 1, min(num_columns, self.own.num_columns)
        self.own.fit(self.num_slots, num_columns, num_used)
        mask = np.full((*self._mask.shape[:2], num_columns), self._masked)
        mask[:, :, :kept] = self._mask[:, :, :kept]
        self._mask = mask

    def _add_slots(self) -> None:
        """Double the slots, which costs nothing but on the host."""
        old = len(self._mask)
        self._mask, self._past_lengths, self._source_lengths = (
            np.concatenate([array, array]) for array in (self._mask, self._past_lengths, self._source_lengths)
        )
        for slot in range(old, 2 * old):
            self._empty(slot)
            heapq.heappush(self._free, slot)

    def _empty(self, slot: int) -> None:
        self._mask[slot], self._past_lengths[slot], self._source_lengths[slot] = self._masked, 0, 1

    def _move_together(self) -> None:
        """Move sentences from the last slots to the first ones, until all lie side by side."""
        for index, slot in enumerate(self._slots):
            if slot < self.num_sentences:
                continue
            target = heapq.heappop(self._free)
            self.own.move(slot, target)
            self.cross.move(slot, target)
            for array in (self._mask, self._past_lengths, self._source_lengths):
                array[target] = array[slot]
            self._empty(slot)
            self._slots[index] = target
        self._free = list(range(self.num_sentences, len(self._mask)))


def slot_bucket(num_slots: int) -> int:
    """Return this number or more: 1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, ..., sizes that are recorded."""
    power = 1 << (num_slots - 1).bit_length()
    return power * 3 // 4 if num_slots > 64 and num_slots <= power * 3 // 4 else power


def column_bucket(num_columns: int) -> int:
    """Return this number or more: 64, 128, 192, 256, 384, 512, 768, ..., so that few shapes come up."""
    power = max(_SELF_COLUMNS, 1 << (num_columns - 1).bit_length())
    return power * 3 // 4 if num_columns > 128 and num_columns <= power * 3 // 4 else power
