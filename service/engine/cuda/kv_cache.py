"""The keys and values of a group's live sentences in a GPU's memory, where nothing moves but what must.

A slot holds one sentence.  Its address does not change while the sentence lives, and a group that comes later has the
addresses of one that has gone (`CachePool`): a step that was recorded there can be replayed for ever.
A sentence that leaves frees its slot, one that joins is copied into a free one, and a step runs over the first slots, a
few more than there are sentences.  In a slot, a step writes its K columns wherever no hypothesis attends to a column
any more, so columns are never compacted; a mask says which ones are a hypothesis' own past (`slots.py`).

Knows neither graphs nor sessions.
Axes: A arrays (a key and a value a layer), N slots, H heads, K hypotheses, C columns, S source columns, d head width.
"""

import heapq
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.config import ModelConfig
from service.engine.beams import Ints
from service.engine.cuda.memory import Device, Rows
from service.engine.cuda.slots import WORD, Slots
from service.engine.device_errors import explained
from service.engine.wire import SMALLEST_WIDTH

HALF_MASKED = np.float16(-3e4)  # as `MASKED`, which half precision cannot hold
_COLUMNS = 3 << 14  # that all numbers of columns (`column_bucket`) divide
_KEPT_BYTES = 128 << 20  # that an idle group may keep, of self-attention and of cross-attention each
_SCRATCH_BYTES = 8 << 20  # for slots that get another number of columns


@dataclass(frozen=True, slots=True)
class CudaEncoded:
    """What the encoder returns for some sentences."""

    memory: ort.OrtValue  # [A, B, H, S, d]
    lengths: npt.NDArray[np.int32]  # [B]
    num_columns: int  # S


class SlotMemory:
    """A arrays [N, H, C, d] on the device, each at an address that is the same whatever N and C are."""

    def __init__(self, config: ModelConfig, device: Device, item_bytes: int, num_columns: int) -> None:
        self.num_columns = num_columns  # C
        self.num_arrays = 2 * config.num_decoder_layers
        self._heads, self._head_bytes = config.num_heads, config.d_head * item_bytes
        self._device = device
        self._region = device.reserve(self.num_arrays, _COLUMNS * self._head_bytes)

    @property
    def address(self) -> int:
        """Where the first array begins."""
        return self._region.address

    @property
    def num_bytes(self) -> int:
        """Memory of all arrays."""
        return self.num_arrays * self._region.size

    def addresses(self) -> list[int]:
        """Return where each array begins."""
        return [self.address + array * self._region.stride for array in range(self.num_arrays)]

    def fit(self, num_slots: int, num_columns: int, num_used: int) -> None:
        """Make room for slots of so many columns; those in use keep what they hold, as far as the columns reach."""
        column_bytes = self._heads * self._head_bytes
        if num_slots * num_columns * column_bytes > self._region.size:
            self._region.grow(slot_bucket(num_slots * num_columns) * column_bytes)
        if num_columns != self.num_columns:
            self._reshape(num_columns, num_used)

    def release(self) -> None:
        """Give the memory back; the addresses stay."""
        self._region.release()

    def fill(self, slots: Sequence[int], encoded: CudaEncoded, indices: Sequence[int]) -> None:
        """Copy some of the encoder's sentences into slots, whose other columns stay as they are."""
        row = encoded.num_columns * self._head_bytes
        source = self._rows(encoded.memory.data_ptr(), row, len(encoded.lengths) * self._heads * row)
        widths = encoded.lengths[list(indices)] * self._head_bytes
        self._copy(source, self._own_rows(self.num_columns), np.stack([indices, slots, widths], axis=1))

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy slots over others, of which none is a source, too."""
        rows, width = self._own_rows(self.num_columns), self.num_columns * self._head_bytes
        self._copy(rows, rows, [(*pair, width) for pair in zip(sources, targets, strict=True)])

    def clear(self, slot: int) -> None:
        """Make a slot zero."""
        size = self._heads * self.num_columns * self._head_bytes
        for address in self.addresses():
            self._device.clear(address + slot * size, size)

    def _rows(self, address: int, row: int, array: int) -> Rows:
        """Return where heads lie, each a row, in slots side by side."""
        return Rows(address, row, self._heads * row, array)

    def _own_rows(self, num_columns: int) -> Rows:
        return self._rows(self.address, num_columns * self._head_bytes, self._region.stride)

    def _copy(self, source: Rows, target: Rows, slots: npt.ArrayLike) -> None:
        self._device.copy(source, target, (self.num_arrays, self._heads), slots)

    def _reshape(self, num_columns: int, num_used: int) -> None:
        """Give slots another number of columns where they are, some at a time by way of another memory.

        Wider slots move away from the beginning and the last ones first, narrower ones towards it: none is written over
        before it has moved.
        """
        old, new = self._own_rows(self.num_columns), self._own_rows(num_columns)
        if num_used:
            row, slot_bytes = min(old.row, new.row), self.num_arrays * min(old.slot, new.slot)
            at_once = min(max(1, _SCRATCH_BYTES // slot_bytes), num_used)
            scratch = self._device.allocate(at_once * slot_bytes)
            between = self._rows(scratch.address, row, at_once * self._heads * row)
            firsts = range(0, num_used, at_once)
            for first in reversed(firsts) if num_columns > self.num_columns else firsts:
                slots = range(first, min(first + at_once, num_used))
                self._copy(old, between, [(slot, slot - first, row) for slot in slots])
                self._copy(between, new, [(slot - first, slot, row) for slot in slots])
        self.num_columns = num_columns


class CacheMemory(NamedTuple):
    """The keys and values of one group."""

    own: SlotMemory  # of self-attention
    cross: SlotMemory

    def release(self) -> None:
        """Give the memory back; the addresses stay."""
        self.own.release()
        self.cross.release()


class CachePool:
    """Addresses for groups: one that comes has those of a group like it that has gone, and the steps recorded there."""

    def __init__(
        self, config: ModelConfig, device: Device, masked: np.floating[Any], slots: type[Slots] = Slots
    ) -> None:
        """Begin without any; `masked` is of the type of keys and values, and masks a key; groups have such `slots`."""
        self.config, self.masked, self.slots = config, masked, slots
        self._device = device
        self._free: dict[tuple[int, int, int], list[CacheMemory]] = {}  # by lane, beam size and source columns

    def take(self, owner: "CudaState", source_columns: int) -> CacheMemory:
        """Return addresses for a group, which owns them for as long as it lives."""
        free = self._free.setdefault((owner.lane, owner.beam_size, source_columns), [])
        columns, item_bytes = (WORD, source_columns), self.masked.dtype.itemsize
        memory = (
            free.pop()
            if free
            else CacheMemory(*(SlotMemory(self.config, self._device, item_bytes, each) for each in columns))
        )
        weakref.finalize(owner, self._give_back, free, memory).atexit = False
        return memory

    @staticmethod
    def _give_back(free: list[CacheMemory], memory: CacheMemory) -> None:
        memory.release()
        free.append(memory)


class CudaState:
    """What the decoder remembers of a group's sentences (`DecoderState`): slots on the device, and their masks."""

    own: SlotMemory  # from the first sentence on
    cross: SlotMemory

    def __init__(self, pool: CachePool, beam_size: int, lane: int = 0) -> None:
        """Create the state of a group without sentences; its steps run in this lane (`graphs.py`)."""
        self.beam_size, self.lane = beam_size, lane
        self.num_sentences = 0  # B
        self._pool = pool
        self._has_memory = False
        self.slots = pool.slots(beam_size, pool.masked)
        self._free = list(range(len(self.slots)))  # a heap
        self.num_slots = 0  # the first ones, over which the next step runs
        self._are_placed = False  # since a sentence has joined or left

    @property
    def has_grown(self) -> bool:
        """Whether an empty state of this size is worth replacing by a new one."""
        return self._has_memory and max(self.own.num_bytes, self.cross.num_bytes) > _KEPT_BYTES

    @property
    def slot_numbers(self) -> Ints:
        """[B]: the slot of each sentence."""
        return self.slots.numbers[: self.num_sentences]

    @explained()
    def append(self, encoded: CudaEncoded, indices: Sequence[int]) -> None:
        """Add the sentences with these indices of a batch, in this order."""
        while len(self._free) < len(indices):
            self._add_slots()
        new = [heapq.heappop(self._free) for _ in indices]
        longest = int(encoded.lengths[list(indices)].max())
        self._fit(slot_bucket(max(self._num_used, max(new) + 1)), self.slots.num_columns, source_bucket(longest))
        self.slots.numbers[self.num_sentences : self.num_sentences + len(new)] = new
        self.num_sentences += len(new)
        self._are_placed = False
        self.cross.fill(new, encoded, indices)
        self.slots.source_lengths[new] = encoded.lengths[list(indices)]

    def reserve(self, num_slots: int, num_columns: int, source_columns: int) -> None:
        """Make room for slots without sentences, for a step that is only recorded."""
        while len(self.slots) < num_slots:
            self._add_slots()
        self._fit(num_slots, num_columns, source_columns)
        self.num_slots = num_slots

    def remove(self, index: int, *, is_finite: bool = True) -> None:
        """Free a slot; the last sentence takes its number.  What no mask lets through must be finite."""
        slot = int(self.slots.numbers[index])
        if not is_finite:
            with explained():
                self.own.clear(slot)
                self.cross.clear(slot)
        self.num_sentences -= 1
        self.slots.numbers[index] = self.slots.numbers[self.num_sentences]
        self._are_placed = False
        self.slots.empty(slot)
        heapq.heappush(self._free, slot)

    def prepare(self) -> None:
        """Make the slots and columns as few as the live sentences allow, and as many as the next step needs."""
        if not self._are_placed:
            self._place()
        most, num_words = self.slots.count(self.num_slots)
        num_columns, has = column_bucket(most + self.beam_size), self.own.num_columns
        if num_columns > has or (2 * num_columns <= has and num_words * WORD <= num_columns):
            self._fit(self.num_slots, num_columns, self.cross.num_columns)

    def step_inputs(self, num_slots: int) -> dict[str, tuple[tuple[int, ...], npt.DTypeLike]]:
        """Return shapes and types of the arrays that `Slots` fills."""
        B, K = num_slots, self.beam_size
        return {
            "new_places": ((B, K, 1, 1, 4), np.int64),  # sentence, 0, column, 0: the graph adds heads and pieces
            "past_lengths": ((B, 1), np.int64),
            "source_lengths": ((B,), np.int32),
            "self_mask": ((B, 1, K, self.own.num_columns), self._pool.masked.dtype),
        }

    def advance(self, parents: Ints) -> None:
        """Finish a decoder step: hypothesis k of sentence b goes on from the past of hypothesis `parents[b, k]`."""
        self.slots.advance(parents)

    @property
    def _num_used(self) -> int:
        """Slots up to the last one that has a sentence."""
        return int(self.slot_numbers.max(initial=-1)) + 1

    @explained()
    def _fit(self, num_slots: int, num_columns: int, source_columns: int) -> None:
        """Make room for so many slots and columns; sources keep the columns that they have, if those are more."""
        num_used = self._num_used
        if not self._has_memory:
            self.own, self.cross = self._pool.take(self, source_columns)
            self._has_memory = True
        self.cross.fit(num_slots, max(source_columns, self.cross.num_columns), num_used)
        self.own.fit(num_slots, num_columns, num_used)
        self.slots.resize(num_columns)

    def _add_slots(self) -> None:
        old = len(self.slots)
        self.slots.add()
        for slot in range(old, len(self.slots)):
            heapq.heappush(self._free, slot)

    @explained()
    def _place(self) -> None:
        """Choose the slots of the next step; where half of them would do, move the sentences together before."""
        self.num_slots = slot_bucket(self._num_used)
        if 2 * self.num_sentences <= self.num_slots:
            self._move_together()
            self.num_slots = slot_bucket(self.num_sentences)
        self._are_placed = True

    def _move_together(self) -> None:
        """Move sentences from the last slots to the first ones, until all lie side by side."""
        indices = (self.slot_numbers >= self.num_sentences).nonzero()[0].tolist()
        if not indices:
            return
        sources, targets = self.slots.numbers[indices].tolist(), heapq.nsmallest(len(indices), self._free)
        self.own.move(sources, targets)
        self.cross.move(sources, targets)
        self.slots.move(sources, targets)
        self.slots.numbers[indices] = targets
        self._free = list(range(self.num_sentences, len(self.slots)))


def slot_bucket(num_slots: int) -> int:
    """Return this number or more: 4, 16, 32, 64, 96, 128, 192, 256, 384, ..., so that few shapes come up."""
    if num_slots <= 16:  # a GPU takes as long for one as for many of them
        return 4 if num_slots <= 4 else 16
    power = 1 << (num_slots - 1).bit_length()
    return power * 3 // 4 if num_slots > 64 and num_slots <= power * 3 // 4 else power


def column_bucket(num_columns: int) -> int:
    """Return this number or more: 64, 128, 192, 256, 384, 512, 768, ..., likewise."""
    power = max(WORD, 1 << (num_columns - 1).bit_length())
    return power * 3 // 4 if num_columns > 128 and num_columns <= power * 3 // 4 else power


def source_bucket(num_tokens: int) -> int:
    """Return this number or more: 64, 128, 256, ...; sentences of a group have sources of one of them."""
    return max(SMALLEST_WIDTH, 1 << (num_tokens - 1).bit_length())
