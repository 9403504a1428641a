"""This process' memory in the role of a device's, so that the engine for GPUs runs where there is none."""

import ctypes
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.engine.cuda.cudart import CudaError
from service.engine.cuda.memory import ALIGNMENT, Block, Bytes, Event, Piece, Rows
from service.engine.wire import Device as DeviceName

_STRIDE = 1 << 26


class HostRegion:
    """Arrays that get their memory from the system when they are written to."""

    def __init__(self, num_arrays: int, multiple: int) -> None:
        self.stride = max(1, _STRIDE // multiple) * multiple
        self._arrays = np.zeros((num_arrays, self.stride), np.uint8)
        self.address, self.size = self._arrays.ctypes.data, 0

    def grow(self, size: int) -> None:
        if size > self.stride:
            raise CudaError(f"out of memory: {size} bytes of an array, {self.stride} are reserved")
        self.size = max(size, self.size)

    def release(self) -> None:
        self._arrays[:, : self.size] = 0
        self.size = 0


@dataclass(frozen=True)
class _HostPiece(Piece):
    array: Bytes  # whose memory it is


class HostDevice:
    """Everything is done at once, and both ends of a block are the same memory."""

    name: DeviceName = "cpu"

    def reserve(self, num_arrays: int, multiple: int) -> HostRegion:
        return HostRegion(num_arrays, multiple)

    def allocate(self, size: int) -> Piece:
        return self.block(size).device

    def block(self, size: int) -> Block:
        memory = np.zeros(size + ALIGNMENT, np.uint8)
        begin = -memory.ctypes.data % ALIGNMENT
        array = memory[begin : begin + size]
        return Block(_HostPiece(array.ctypes.data, size, array), array, array.ctypes.data)

    def shared(self, size: int) -> Block:
        return self.block(size)

    def send(self, block: Block, size: int) -> None:
        pass

    def fetch(self, block: Block, size: int) -> None:
        pass

    def copy(self, source: Rows, target: Rows, shape: tuple[int, int], slots: npt.ArrayLike) -> None:
        for one, other, width in np.asarray(slots).tolist():
            _slot_at(target, other, (*shape, width))[:] = _slot_at(source, one, (*shape, width))

    def clear(self, address: int, size: int) -> None:
        ctypes.memset(address, 0, size)

    def event(self) -> Event:
        return _Done()

    def wait(self) -> None:
        pass


class _Done:
    """The event of something that is done."""

    def record(self) -> None:
        pass

    def wait(self) -> None:
        pass


def _slot_at(rows: Rows, slot: int, shape: tuple[int, int, int]) -> Bytes:
    """A slot's rows as an array [A, H, W] that writes where they lie."""
    size = (shape[0] - 1) * rows.array + (shape[1] - 1) * rows.row + shape[2]
    begin = ctypes.cast(rows.address + slot * rows.slot, ctypes.POINTER(ctypes.c_uint8))
    return np.lib.stride_tricks.as_strided(np.ctypeslib.as_array(begin, (size,)), shape, (rows.array, rows.row, 1))
