"""Memory of a GPU that the engine asks CUDA for itself, and copies in the order of one stream.

ONNX Runtime computes in that stream too (`session.py`), so nothing has to wait for anything but the host for its
results.  `HostDevice` does the same in this process' memory: for tests, on machines without a GPU.
"""

import ctypes
import weakref
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from service.engine.cuda import cudart
from service.engine.cuda.region import CudaRegion, HostRegion, Region
from service.engine.wire import Device as DeviceName

Bytes = npt.NDArray[np.uint8]

_ALIGNMENT = 256  # of what lies in a block, as of what cudaMalloc returns


class Rows(NamedTuple):
    """Where rows of bytes lie: some of each slot, in each of some arrays."""

    address: int  # of the first row
    row: int  # bytes from one to the next
    slot: int
    array: int


class Piece(Protocol):
    """Memory on the device, which is given back when this object goes."""

    @property
    def address(self) -> int: ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...


class Block(NamedTuple):
    """Memory on the device and a piece of the host's memory that is sent there, or comes from there, as a whole."""

    device: Piece
    host: Bytes
    host_address: int


class Device(Protocol):
    """What the cache and the bindings need of a device; everything but `wait` returns before it is done."""

    name: DeviceName

    def reserve(self, num_arrays: int, multiple: int) -> Region:
        """Return arrays that have addresses, a multiple of so many bytes apart, and no memory yet."""
        ...

    def allocate(self, size: int) -> Piece:
        """Return memory full of zeros: fresh memory could hold NaN, which no mask makes harmless."""
        ...

    def block(self, size: int) -> Block:
        """Return memory on the device with its counterpart on the host."""
        ...

    def shared(self, size: int) -> Block:
        """Return memory of the host that the device reads where it is: nothing of it has to be sent."""
        ...

    def send(self, block: Block, size: int) -> None:
        """Copy the first bytes to the device; the host's must not change before the next `wait`."""
        ...

    def fetch(self, block: Block, size: int) -> None:
        """Copy the first bytes to the host, which may be looked at after the next `wait`."""
        ...

    def copy(self, source: Rows, target: Rows, shape: tuple[int, int], slots: npt.ArrayLike) -> None:
        """Copy slots over others, of which none is among the sources.

        Args:
            shape: numbers of arrays, and of rows that a slot has in each.
            slots: [N, 3]: numbers of a source and a target, and how many bytes of each row are copied.
        """
        ...

    def clear(self, address: int, size: int) -> None:
        """Write zeros."""
        ...

    def wait(self) -> None:
        """Return when everything that was asked for is done."""
        ...


class HostDevice:
    """This process' memory in the role of a device's."""

    name: DeviceName = "cpu"

    def reserve(self, num_arrays: int, multiple: int) -> Region:
        return HostRegion(num_arrays, multiple)

    def allocate(self, size: int) -> Piece:
        return _HostPiece(size)

    def block(self, size: int) -> Block:
        piece = _HostPiece(size)
        return Block(piece, piece.array, piece.address)

    def shared(self, size: int) -> Block:
        return self.block(size)

    def send(self, block: Block, size: int) -> None:
        """Do nothing: both ends are the same memory."""

    def fetch(self, block: Block, size: int) -> None:
        """Do nothing: both ends are the same memory."""

    def copy(self, source: Rows, target: Rows, shape: tuple[int, int], slots: npt.ArrayLike) -> None:
        for one, other, width in np.asarray(slots).tolist():
            _slot_at(target, other, (*shape, width))[:] = _slot_at(source, one, (*shape, width))

    def clear(self, address: int, size: int) -> None:
        ctypes.memset(address, 0, size)

    def wait(self) -> None:
        """Do nothing: everything is done at once."""


class _HostPiece:
    def __init__(self, size: int) -> None:
        self._memory = np.zeros(size + _ALIGNMENT, np.uint8)
        begin = -self._memory.ctypes.data % _ALIGNMENT
        self.array = self._memory[begin : begin + size]
        self.address, self.size = self.array.ctypes.data, size


def _slot_at(rows: Rows, slot: int, shape: tuple[int, int, int]) -> Bytes:
    """Return a slot's rows as an array [A, H, W] that writes where they lie."""
    size = (shape[0] - 1) * rows.array + (shape[1] - 1) * rows.row + shape[2]
    begin = ctypes.cast(rows.address + slot * rows.slot, ctypes.POINTER(ctypes.c_uint8))
    return np.lib.stride_tricks.as_strided(np.ctypeslib.as_array(begin, (size,)), shape, (rows.array, rows.row, 1))


class CudaDevice:
    """The GPU that this process sees first (CUDA_VISIBLE_DEVICES), with a stream of its own."""

    name: DeviceName = "cuda"

    def __init__(self) -> None:
        self._stream = ctypes.c_void_p()
        cudart.call("cudaStreamCreateWithFlags", ctypes.byref(self._stream), ctypes.c_uint(_NON_BLOCKING))
        self._copy_rows = cudart.kernel(_COPY_ROWS, "copy_rows")
        # What the kernel is given: two `Rows`, and for each slot three numbers of 32 bits.
        self._given = np.zeros(8 + 3 * _SLOTS_AT_ONCE // 2, np.int64)
        self._slots = self._given[8:].view(np.int32).reshape(_SLOTS_AT_ONCE, 3)

    @property
    def stream(self) -> int:
        """The stream's handle."""
        return self._stream.value or 0

    def reserve(self, num_arrays: int, multiple: int) -> Region:
        return CudaRegion(self._stream, num_arrays, multiple)

    def allocate(self, size: int) -> Piece:
        piece = _CudaPiece(size)
        self.clear(piece.address, size)
        return piece

    def block(self, size: int) -> Block:
        host = _pinned(size)
        return Block(self.allocate(size), host, host.ctypes.data)

    def shared(self, size: int) -> Block:
        host = _pinned(size)  # to the device, memory that cudaMallocHost gives has the same address
        return Block(_PinnedPiece(host.ctypes.data, size), host, host.ctypes.data)

    def send(self, block: Block, size: int) -> None:
        self._move(block.device.address, block.host_address, size, _HOST_TO_DEVICE)

    def fetch(self, block: Block, size: int) -> None:
        self._move(block.host_address, block.device.address, size, _DEVICE_TO_HOST)

    def copy(self, source: Rows, target: Rows, shape: tuple[int, int], slots: npt.ArrayLike) -> None:
        all_slots, (num_arrays, num_rows) = np.asarray(slots, np.int32), shape
        # Copies of slots in all arrays are one launch: cudaMemcpy3DAsync refuses addresses without memory, which lie
        # between arrays (`region.py`), and a copy of each array by itself takes the host as long as a launch.
        self._given[:8] = (*source, *target)
        for begin in range(0, len(all_slots), _SLOTS_AT_ONCE):
            some = all_slots[begin : begin + _SLOTS_AT_ONCE]
            self._slots[: len(some)] = some
            cudart.launch(self._copy_rows, (num_rows, num_arrays, len(some)), _THREADS, self._stream, self._given)

    def clear(self, address: int, size: int) -> None:
        cudart.call("cudaMemsetAsync", ctypes.c_void_p(address), ctypes.c_int(0), ctypes.c_size_t(size), self._stream)

    def wait(self) -> None:
        cudart.call("cudaStreamSynchronize", self._stream)

    def _move(self, target: int, source: int, size: int, kind: ctypes.c_int) -> None:
        addresses = ctypes.c_void_p(target), ctypes.c_void_p(source)
        cudart.call("cudaMemcpyAsync", *addresses, ctypes.c_size_t(size), kind, self._stream)


_NON_BLOCKING = 1  # cudaStreamNonBlocking
_HOST_TO_DEVICE, _DEVICE_TO_HOST = ctypes.c_int(1), ctypes.c_int(2)  # cudaMemcpyKind
_COPY_ROWS = Path(__file__).with_name("copy.ptx")
_SLOTS_AT_ONCE = 256  # as in copy.cu
_THREADS = 256  # copy a row, 16 bytes each at a time


class _CudaPiece:
    def __init__(self, size: int) -> None:
        pointer = ctypes.c_void_p()
        cudart.call("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(size))
        self.address, self.size = pointer.value or 0, size
        # cudaFree waits for all that runs, so nothing uses the memory any more when it is given back.
        weakref.finalize(self, cudart.call, "cudaFree", pointer).atexit = False


class _PinnedPiece(NamedTuple):
    address: int
    size: int


def _pinned(size: int) -> Bytes:
    """Return memory of the host that the device copies by itself."""
    pointer = ctypes.c_void_p()
    cudart.call("cudaMallocHost", ctypes.byref(pointer), ctypes.c_size_t(size))
    array = np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_uint8)), (size,))
    weakref.finalize(array, cudart.call, "cudaFreeHost", pointer).atexit = False
    return array


class Layout:
    """Arrays one behind the other in a block, each with its name."""

    def __init__(self, arrays: dict[str, tuple[tuple[int, ...], npt.DTypeLike]]) -> None:
        """Take shapes and types by name."""
        self.size = 0
        self.places: dict[str, tuple[int, tuple[int, ...], np.dtype[Any]]] = {}
        for name, (shape, dtype) in arrays.items():
            self.places[name] = (self.size, shape, np.dtype(dtype))
            length = int(np.prod(shape)) * np.dtype(dtype).itemsize
            self.size += -(-length // _ALIGNMENT) * _ALIGNMENT

    def views(self, memory: Bytes) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays as they lie in a block's memory on the host."""
        found = {}
        for name, (begin, shape, dtype) in self.places.items():
            length = int(np.prod(shape)) * dtype.itemsize
            found[name] = memory[begin : begin + length].view(dtype).reshape(shape)
        return found

    def bind(self, bind: Any, block: Block, device: DeviceName) -> None:
        """Give a graph the arrays as its inputs or outputs: `bind` is the method of an IOBinding."""
        for name, (begin, shape, dtype) in self.places.items():
            bind(name, device, 0, dtype, shape, block.device.address + begin)
