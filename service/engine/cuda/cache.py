"""The keys and values of live sentences in a GPU's memory.

What moves, is compacted or resized is only written down, as the row where each column of each slot lies.  Before the
next step one graph brings all of it into order at once, from one memory into another: two kernels for all layers,
however many sentences ended.  The same code runs in this process' memory, for tests.

Axes: A arrays (a key and a value a layer), N slots, H heads, C columns, d width of a head, R = (N + 1) * H * C rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from service.engine.cuda.session import on_device
from service.engine.faults import explained
from service.engine.key_value_cache import CacheShape, Ints
from service.engine.spec import Device

HALF_MASKED = np.float16(-3e4)  # as `MASKED`, which half precision cannot hold
_KEPT_SLOTS = 128  # room that a group may keep while it is idle, in each of two memories
_KEPT_COLUMNS = 64  # of each of these slots

Rows = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class CudaEncoded:
    """What the encoder returns for some sentences."""

    memory: ort.OrtValue  # [A, B, H, S, d]
    lengths: npt.NDArray[np.int32]  # [B]
    num_columns: int  # S


class SlotAddress(NamedTuple):
    """Where slots lie: equal values mean equal addresses and shapes."""

    generation: int  # of the memory
    side: int  # which of two
    capacity: int  # slots
    num_columns: int


class DeviceArray(NamedTuple):
    """Memory on the device as a graph sees it."""

    address: int
    shape: list[int]


@dataclass(frozen=True, slots=True)
class CudaStorage:
    """The device's memory for keys and values, and the graphs that move them."""

    device: Device
    arrange: ort.InferenceSession
    extend: ort.InferenceSession
    dtype: type[np.floating[Any]] = np.float16
    masked: np.floating[Any] = HALF_MASKED

    def zeros(self, size: int) -> ort.OrtValue:
        """Return so many zeros: fresh memory could hold NaN, which no mask makes harmless."""
        with explained():
            return on_device(np.zeros(size, self.dtype), self.device)

    def move(
        self, source: DeviceArray, added: ort.OrtValue | None, rows: Rows, strides: Rows, target: DeviceArray
    ) -> None:
        """Run one of the graphs of `export/cuda.py`.

        Args:
            source: [A, R, d].
            added: [A, B, H, S, d], whose rows are numbered behind those of the source.
            rows, strides: [M, 1, C] and [M, 1, 1].
            target: [A, M, H, C, d].
        """
        session = self.arrange if added is None else self.extend
        binding = session.io_binding()
        with explained():
            kept = [on_device(array, self.device) for array in (rows, strides)]
            for name, value in zip(("rows", "strides"), kept, strict=True):
                binding.bind_ortvalue_input(name, value)
            binding.bind_input("source", self.device, 0, self.dtype, source.shape, source.address)
            if added is not None:
                arrays, *_, width = added.shape()
                shape = [arrays, int(np.prod(added.shape())) // (arrays * width), width]
                binding.bind_input("added", self.device, 0, self.dtype, shape, added.data_ptr())
            binding.bind_output("target", self.device, 0, self.dtype, target.shape, target.address)
            session.run_with_iobinding(binding)


class CudaSlots:
    """See `Slots`.  A slot of zeros lies behind the others: whatever holds nothing yet points there."""

    def __init__(self, shape: CacheShape, storage: CudaStorage, num_columns: int) -> None:
        self.num_columns = num_columns  # C, as wanted
        self.generation = 0
        self.shape = shape
        self._storage = storage
        self._num_arrays = 2 * shape.num_layers
        self._kept = self._size(_KEPT_SLOTS, _KEPT_COLUMNS)
        self.address = SlotAddress(0, 0, 0, num_columns)  # as they lie
        self._front = storage.zeros(self._size(0, num_columns))
        self._spare: ort.OrtValue | None = None  # the other memory
        self._rows = self._identity()  # [N, C]: where each wanted column's first head lies
        self._is_settled = True

    @property
    def has_grown(self) -> bool:
        """Whether one of the memories is larger than is kept in any case, however little of it is in use.

        They only grow: of any load that comes and goes, sentences leave one after the other, and what was given back
        then would be made again for the next.
        """
        return max(self._numbers(self._front), self._numbers(self._spare)) > self._kept

    def addresses(self) -> list[int]:
        """Return where each array begins; N slots [H, C, d] follow."""
        stride = self._size(self.address.capacity, self.address.num_columns) // self._num_arrays
        size = stride * np.dtype(self._storage.dtype).itemsize
        return [self._front.data_ptr() + array * size for array in range(self._num_arrays)]

    def resize(self, num_used: int, num_slots: int, num_columns: int) -> None:
        """Do as `Slots.resize`; memory is made when the slots are next brought into order, and never given back."""
        if num_columns == self.num_columns and num_slots <= len(self._rows):
            return
        kept = min(num_columns, self.num_columns)
        rows = np.full((max(num_slots, len(self._rows)), num_columns), self._zero_row, np.int32)
        rows[:num_used, :kept] = self._rows[:num_used, :kept]
        self._rows, self.num_columns, self._is_settled = rows, num_columns, False

    def fill(self, first: int, encoded: CudaEncoded, indices: Sequence[int]) -> None:
        num_slots, width = first + len(indices), encoded.num_columns
        columns = np.minimum(np.arange(self.num_columns), width - 1)
        begin = self._num_rows(self.address.capacity + 1) + np.array(indices)[:, None] * self.shape.num_heads * width
        rows = np.concatenate([self._rows[:first], begin + columns])
        strides = np.full(num_slots, self.address.num_columns)
        strides[first:] = width
        self._rearrange(rows, strides, encoded.memory)

    def move(self, source: int, target: int, num_columns: int) -> None:
        self._rows[target] = self._rows[source]
        self._is_settled = False

    def clear(self, slot: int) -> None:
        self._rows[slot] = self._zero_row
        self._is_settled = False

    def keep_columns(self, slot: int, columns: Ints) -> None:
        self._rows[slot, : columns.size] = self._rows[slot, columns]
        self._is_settled = False

    def settle(self, num_slots: int) -> int:
        """Bring the first slots into order; return how many a step is to run over, the others being of no account."""
        if not (self._is_settled and bucket(num_slots) <= self.address.capacity):
            self._rearrange(self._rows[:num_slots], np.full(num_slots, self.address.num_columns), None)
        return bucket(num_slots)

    @property
    def _zero_row(self) -> int:
        return self._num_rows(self.address.capacity)

    def _num_rows(self, num_slots: int) -> int:
        return num_slots * self.shape.num_heads * self.address.num_columns

    def _rearrange(self, wanted: npt.NDArray[Any], head_strides: npt.NDArray[Any], added: ort.OrtValue | None) -> None:
        capacity, shape = bucket(len(wanted) + len(wanted) // 4), self.shape
        rows = np.full((capacity + 1, 1, self.num_columns), self._zero_row, np.int32)
        strides = np.full((capacity + 1, 1, 1), self.address.num_columns, np.int32)
        rows[: len(wanted), 0], strides[: len(wanted), 0, 0] = wanted, head_strides
        num_rows = self._num_rows(self.address.capacity + 1)
        source = DeviceArray(self._front.data_ptr(), [self._num_arrays, num_rows, shape.d_head])
        target = self._other_memory(self._size(capacity, self.num_columns))
        layout = [self._num_arrays, capacity + 1, shape.num_heads, self.num_columns, shape.d_head]
        self._storage.move(source, added, rows, strides, DeviceArray(target.data_ptr(), layout))
        self._front, self._spare = target, self._front
        self.address = SlotAddress(self.generation, 1 - self.address.side, capacity, self.num_columns)
        self._rows, self._is_settled = self._identity(), True

    def _other_memory(self, size: int) -> ort.OrtValue:
        if self._spare is None or self._numbers(self._spare) < size:
            self._spare = None  # before its successor is made
            self._spare = self._storage.zeros(size)
            self.generation += 1
        return self._spare

    def _numbers(self, memory: ort.OrtValue | None) -> int:
        return 0 if memory is None else memory.tensor_size_in_bytes() // np.dtype(self._storage.dtype).itemsize

    def _size(self, capacity: int, num_columns: int) -> int:
        return self._num_arrays * (capacity + 1) * num_columns * self.shape.column_size

    def _identity(self) -> Rows:
        first = np.arange(self.address.capacity, dtype=np.int32)[:, None] * (self.shape.num_heads * self.num_columns)
        return np.asarray(first + np.arange(self.num_columns), np.int32)


def bucket(num_slots: int) -> int:
    """Return this number or a few more: batches of few sizes, whose bindings and recorded graphs are used again."""
    step = max(4, 1 << max(0, (num_slots - 1).bit_length() - 4))
    return max(step, -(-num_slots // step) * step)
