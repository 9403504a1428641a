"""Memory of a GPU that the engine asks CUDA for itself, and copies in the order of one stream.

ONNX Runtime computes in that stream too (`session.py`), so nothing has to wait for anything but the host for its
results.
"""

import ctypes
import math
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from service.engine.cuda import cudart
from service.engine.wire import Device as DeviceName

Bytes = npt.NDArray[np.uint8]

_MAX_STRIDE = (1 << 31) - 1  # bytes between two arrays: kernels of ONNX Runtime count an array's numbers in 32 bits
ALIGNMENT = 256  # of what lies in a block, as of what cudaMalloc returns


class Rows(NamedTuple):
    """Where rows of bytes lie: some of each slot, in each of some arrays."""

    address: int  # of the first row
    row: int  # bytes from one to the next
    slot: int
    array: int


@dataclass(frozen=True)
class Piece:
    """Memory on the device, as long as this lives."""

    address: int
    size: int


class Region(Protocol):
    """Arrays that have so many bytes of memory each (`size`) so far, and so many between them (`stride`)."""

    address: int
    size: int
    stride: int

    def grow(self, size: int) -> None:
        """Have memory for so many bytes of each array, or a few more; what is new is zero.

        Raises:
            CudaError: there is too little memory; nothing has changed.
        """
        ...

    def release(self) -> None:
        """Give all memory back."""
        ...


class Block(NamedTuple):
    """Memory on the device and a piece of the host's memory that is sent there, or comes from there, as a whole."""

    device: Piece
    host: Bytes
    host_address: int


class Event(Protocol):
    """A moment in the order of the stream."""

    def record(self) -> None:
        """Make it the moment when everything is done that was asked for so far."""
        ...

    def wait(self) -> None:
        """Return when that moment has come, or at once where none was recorded."""
        ...


class Device(Protocol):
    """What the cache and the bindings need of a device; everything but `wait` returns before it is done."""

    name: DeviceName

    def reserve(self, num_arrays: int, multiple: int) -> Region:
        """Return arrays that have addresses, a multiple of so many bytes apart, and no memory yet.

        The addresses stay while the memory behind them grows and is given back: a recorded step of the decoder reads
        and writes where it did when it was recorded.
        """
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
        """Copy the first bytes to the device; the host's must not change before that is done."""
        ...

    def fetch(self, block: Block, size: int) -> None:
        """Copy the first bytes to the host, which may be looked at when that is done."""
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

    def event(self) -> Event:
        """Return an event of the stream."""
        ...

    def wait(self) -> None:
        """Return when everything that was asked for is done."""
        ...


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
        pointer = ctypes.c_void_p()
        cudart.call("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(size))
        piece = Piece(pointer.value or 0, size)
        # cudaFree waits for all that runs, so nothing uses the memory any more when it is given back.
        weakref.finalize(piece, cudart.call, "cudaFree", pointer).atexit = False
        self.clear(piece.address, size)
        return piece

    def block(self, size: int) -> Block:
        host = _pinned(size)
        return Block(self.allocate(size), host, host.ctypes.data)

    def shared(self, size: int) -> Block:
        host = _pinned(size)  # to the device, memory that cudaMallocHost gives has the same address
        return Block(Piece(host.ctypes.data, size), host, host.ctypes.data)

    def send(self, block: Block, size: int) -> None:
        self._move(block.device.address, block.host_address, size, _HOST_TO_DEVICE)

    def fetch(self, block: Block, size: int) -> None:
        self._move(block.host_address, block.device.address, size, _DEVICE_TO_HOST)

    def copy(self, source: Rows, target: Rows, shape: tuple[int, int], slots: npt.ArrayLike) -> None:
        all_slots, (num_arrays, num_rows) = np.asarray(slots, np.int32), shape
        # Copies of slots in all arrays are one launch: cudaMemcpy3DAsync refuses addresses without memory, which lie
        # between arrays (`CudaRegion`), and a copy of each array by itself takes the host as long as a launch.
        self._given[:8] = (*source, *target)
        for begin in range(0, len(all_slots), _SLOTS_AT_ONCE):
            some = all_slots[begin : begin + _SLOTS_AT_ONCE]
            self._slots[: len(some)] = some
            cudart.launch(self._copy_rows, (num_rows, num_arrays, len(some)), _THREADS, self._stream, self._given)

    def clear(self, address: int, size: int) -> None:
        cudart.call("cudaMemsetAsync", ctypes.c_void_p(address), ctypes.c_int(0), ctypes.c_size_t(size), self._stream)

    def event(self) -> Event:
        return CudaEvent(self._stream)

    def wait(self) -> None:
        cudart.call("cudaStreamSynchronize", self._stream)

    def _move(self, target: int, source: int, size: int, kind: ctypes.c_int) -> None:
        addresses = ctypes.c_void_p(target), ctypes.c_void_p(source)
        cudart.call("cudaMemcpyAsync", *addresses, ctypes.c_size_t(size), kind, self._stream)


class CudaEvent:
    """An event of CUDA's."""

    def __init__(self, stream: ctypes.c_void_p) -> None:
        self._stream, self._event = stream, ctypes.c_void_p()
        cudart.call("cudaEventCreateWithFlags", ctypes.byref(self._event), ctypes.c_uint(_NO_TIMING))
        weakref.finalize(self, cudart.call, "cudaEventDestroy", self._event).atexit = False

    def record(self) -> None:
        cudart.call("cudaEventRecord", self._event, self._stream)

    def wait(self) -> None:
        cudart.call("cudaEventSynchronize", self._event)


_NON_BLOCKING = 1  # cudaStreamNonBlocking
_NO_TIMING = 2  # cudaEventDisableTiming
_HOST_TO_DEVICE, _DEVICE_TO_HOST = ctypes.c_int(1), ctypes.c_int(2)  # cudaMemcpyKind
_COPY_ROWS = Path(__file__).with_name("copy.ptx")
_SLOTS_AT_ONCE = 256  # as in copy.cu
_THREADS = 256  # copy a row, 16 bytes each at a time


def _pinned(size: int) -> Bytes:
    """Return memory of the host that the device copies by itself."""
    pointer = ctypes.c_void_p()
    cudart.call("cudaMallocHost", ctypes.byref(pointer), ctypes.c_size_t(size))
    array = np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_uint8)), (size,))
    weakref.finalize(array, cudart.call, "cudaFreeHost", pointer).atexit = False
    return array


class CudaRegion:
    """Addresses that CUDA's driver maps to memory piece by piece, as PyTorch's expandable segments are."""

    def __init__(self, stream: ctypes.c_void_p, num_arrays: int, multiple: int) -> None:
        """Reserve the addresses; new memory is made zero in the stream."""
        granule = ctypes.c_size_t()
        cudart.call_driver("cuMemGetAllocationGranularity", ctypes.byref(granule), ctypes.byref(_OF_DEVICE), _MINIMUM)
        self._stream, self._num_arrays, self._granule = stream, num_arrays, granule.value
        unit = math.lcm(granule.value, multiple)
        self.stride = max(1, min(cudart.memory()[1] // num_arrays, _MAX_STRIDE) // unit) * unit
        address, total = ctypes.c_uint64(), ctypes.c_size_t(num_arrays * self.stride)
        none = ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0)
        cudart.call_driver("cuMemAddressReserve", ctypes.byref(address), total, *none)
        self.address, self.size = address.value, 0
        self._pieces: list[tuple[int, int]] = []  # addresses and sizes, as they were mapped
        weakref.finalize(self, _free, address, total, self._pieces).atexit = False

    def grow(self, size: int) -> None:
        begin, end = self.size, -(-size // self._granule) * self._granule
        if end <= begin:
            return
        if end > self.stride:
            raise cudart.CudaError(f"out of memory: {size} bytes of an array, {self.stride} are reserved")
        new: list[tuple[int, int]] = []
        try:
            for array in range(self._num_arrays):
                new.append((self.address + array * self.stride + begin, end - begin))
                _map(*new[-1])
        except cudart.CudaError:
            _unmap(new[:-1])
            raise
        for address, length in new:
            place, zero = ctypes.c_void_p(address), ctypes.c_int(0)
            cudart.call("cudaMemsetAsync", place, zero, ctypes.c_size_t(length), self._stream)
        self._pieces += new
        self.size = end

    def release(self) -> None:
        cudart.call("cudaStreamSynchronize", self._stream)
        _unmap(self._pieces)
        self._pieces.clear()
        self.size = 0


def _map(address: int, size: int) -> None:
    """Give addresses memory that the device may read and write."""
    handle, place, length = ctypes.c_uint64(), ctypes.c_uint64(address), ctypes.c_size_t(size)
    cudart.call_driver("cuMemCreate", ctypes.byref(handle), length, ctypes.byref(_OF_DEVICE), ctypes.c_uint64(0))
    try:
        cudart.call_driver("cuMemMap", place, length, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
    finally:
        cudart.call_driver("cuMemRelease", handle)  # what is mapped stays until it is unmapped
    try:
        cudart.call_driver("cuMemSetAccess", place, length, ctypes.byref(_READ_AND_WRITE), ctypes.c_size_t(1))
    except cudart.CudaError:
        cudart.call_driver("cuMemUnmap", place, length)
        raise


def _unmap(pieces: list[tuple[int, int]]) -> None:
    for address, size in pieces:
        cudart.call_driver("cuMemUnmap", ctypes.c_uint64(address), ctypes.c_size_t(size))


def _free(address: ctypes.c_uint64, size: ctypes.c_size_t, pieces: list[tuple[int, int]]) -> None:
    cudart.call("cudaDeviceSynchronize")
    _unmap(pieces)
    cudart.call_driver("cuMemAddressFree", address, size)


class _Location(ctypes.Structure):  # CUmemLocation
    _fields_ = (("kind", ctypes.c_int), ("number", ctypes.c_int))


class _AllocationProperties(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = (
        ("kind", ctypes.c_int),
        ("requested_handles", ctypes.c_int),
        ("location", _Location),
        ("unused", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    )


class _Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


_FIRST_DEVICE = _Location(1, 0)  # CU_MEM_LOCATION_TYPE_DEVICE
_OF_DEVICE = _AllocationProperties(kind=1, location=_FIRST_DEVICE)  # CU_MEM_ALLOCATION_TYPE_PINNED
_READ_AND_WRITE = _Access(_FIRST_DEVICE, 3)  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_MINIMUM = ctypes.c_int(0)  # CU_MEM_ALLOC_GRANULARITY_MINIMUM


class Layout:
    """Arrays one behind the other in a block, each with its name."""

    def __init__(self, arrays: dict[str, tuple[tuple[int, ...], npt.DTypeLike]]) -> None:
        """Take shapes and types by name."""
        self.size = 0
        self.places: dict[str, tuple[int, tuple[int, ...], np.dtype[Any]]] = {}
        for name, (shape, dtype) in arrays.items():
            self.places[name] = (self.size, shape, np.dtype(dtype))
            length = int(np.prod(shape)) * np.dtype(dtype).itemsize
            self.size += -(-length // ALIGNMENT) * ALIGNMENT

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
