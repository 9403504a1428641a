"""Memory of a GPU that the engine asks CUDA for itself, and copies in the order of one stream.

ONNX Runtime computes in that stream too (`session.py`), so nothing has to wait for anything but the host for its
results.  `HostDevice` does the same in this process' memory: for tests, on machines without a GPU.
"""

import ctypes
import weakref
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from service.engine.cuda import cudart
from service.engine.cuda.region import CudaRegion, HostRegion, Region
from service.engine.wire import Device as DeviceName

Bytes = npt.NDArray[np.uint8]

_ALIGNMENT = 256  # of what lies in a block, as of what cudaMalloc returns


class Pitched(NamedTuple):
    """Where rows lie in memory, D groups of H rows, as in `cudaPitchedPtr`."""

    address: int
    pitch: int  # bytes between two rows
    rows: int  # between two groups


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

    def copy(self, source: Pitched, target: Pitched, extent: tuple[int, int, int]) -> None:
        """Copy bytes, rows and groups, (W, H, D), from the device to the device."""
        ...

    def clear(self, address: int, pitch: int, width: int, rows: int) -> None:
        """Write zeros over the first bytes of each row."""
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
        return Block(piece, piece.array)

    def shared(self, size: int) -> Block:
        return self.block(size)

    def send(self, block: Block, size: int) -> None:
        """Do nothing: both ends are the same memory."""

    def fetch(self, block: Block, size: int) -> None:
        """Do nothing: both ends are the same memory."""

    def copy(self, source: Pitched, target: Pitched, extent: tuple[int, int, int]) -> None:
        _rows_at(target, extent)[:] = _rows_at(source, extent)

    def clear(self, address: int, pitch: int, width: int, rows: int) -> None:
        _rows_at(Pitched(address, pitch, rows), (width, rows, 1))[:] = 0

    def wait(self) -> None:
        """Do nothing: everything is done at once."""


class _HostPiece:
    def __init__(self, size: int) -> None:
        self._memory = np.zeros(size + _ALIGNMENT, np.uint8)
        begin = -self._memory.ctypes.data % _ALIGNMENT
        self.array = self._memory[begin : begin + size]
        self.address, self.size = self.array.ctypes.data, size


def _rows_at(memory: Pitched, extent: tuple[int, int, int]) -> Bytes:
    """Return rows as an array [D, H, W] that writes where they lie."""
    width, rows, groups = extent
    size = ((groups - 1) * memory.rows + rows - 1) * memory.pitch + width
    flat = np.ctypeslib.as_array(ctypes.cast(memory.address, ctypes.POINTER(ctypes.c_uint8)), (size,))
    strides = (memory.rows * memory.pitch, memory.pitch, 1)
    return np.lib.stride_tricks.as_strided(flat, (groups, rows, width), strides)


class CudaDevice:
    """The GPU that this process sees first (CUDA_VISIBLE_DEVICES), with a stream of its own."""

    name: DeviceName = "cuda"

    def __init__(self) -> None:
        self._stream = ctypes.c_void_p()
        cudart.call("cudaStreamCreateWithFlags", ctypes.byref(self._stream), ctypes.c_uint(_NON_BLOCKING))
        self._copy = _Copy3D(kind=_DEVICE_TO_DEVICE)
        # Whether groups are copied at once.  Between arrays lie addresses without memory (`region.py`): a driver might
        # refuse a copy across them, which CUDA's documentation leaves open.
        self._copies_groups = True

    @property
    def stream(self) -> int:
        """The stream's handle."""
        return self._stream.value or 0

    def reserve(self, num_arrays: int, multiple: int) -> Region:
        return CudaRegion(self._stream, num_arrays, multiple)

    def allocate(self, size: int) -> Piece:
        piece = _CudaPiece(size)
        self.clear(piece.address, size, size, 1)
        return piece

    def block(self, size: int) -> Block:
        return Block(self.allocate(size), _pinned(size))

    def shared(self, size: int) -> Block:
        host = _pinned(size)  # to the device, memory that cudaMallocHost gives has the same address
        return Block(_PinnedPiece(host.ctypes.data, size), host)

    def send(self, block: Block, size: int) -> None:
        self._move(block.device.address, block.host.ctypes.data, size, _HOST_TO_DEVICE)

    def fetch(self, block: Block, size: int) -> None:
        self._move(block.host.ctypes.data, block.device.address, size, _DEVICE_TO_HOST)

    def copy(self, source: Pitched, target: Pitched, extent: tuple[int, int, int]) -> None:
        width, rows, groups = extent
        if self._copies_groups or groups == 1:
            try:
                self._copy_at_once(source, target, extent)
            except cudart.CudaError:
                if groups == 1:
                    raise
                self._copies_groups = False
            else:
                return
        for group in range(groups):
            source_group, target_group = (
                place._replace(address=place.address + group * place.rows * place.pitch) for place in (source, target)
            )
            self._copy_at_once(source_group, target_group, (width, rows, 1))

    def clear(self, address: int, pitch: int, width: int, rows: int) -> None:
        for row in range(rows):
            place = ctypes.c_void_p(address + row * pitch)
            cudart.call("cudaMemsetAsync", place, ctypes.c_int(0), ctypes.c_size_t(width), self._stream)

    def wait(self) -> None:
        cudart.call("cudaStreamSynchronize", self._stream)

    def _copy_at_once(self, source: Pitched, target: Pitched, extent: tuple[int, int, int]) -> None:
        width, rows, groups = extent
        copy = self._copy
        copy.source = _PitchedPointer(source.address, source.pitch, source.pitch, source.rows)
        copy.target = _PitchedPointer(target.address, target.pitch, target.pitch, target.rows)
        copy.extent = _Triple(width, rows, groups)
        cudart.call("cudaMemcpy3DAsync", ctypes.byref(copy), self._stream)

    def _move(self, target: int, source: int, size: int, kind: int) -> None:
        addresses = ctypes.c_void_p(target), ctypes.c_void_p(source)
        cudart.call("cudaMemcpyAsync", *addresses, ctypes.c_size_t(size), ctypes.c_int(kind), self._stream)


_NON_BLOCKING = 1  # cudaStreamNonBlocking
_HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEVICE_TO_DEVICE = 1, 2, 3  # cudaMemcpyKind


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


class _Triple(ctypes.Structure):  # cudaPos, cudaExtent
    _fields_ = (("x", ctypes.c_size_t), ("y", ctypes.c_size_t), ("z", ctypes.c_size_t))


class _PitchedPointer(ctypes.Structure):  # cudaPitchedPtr
    _fields_ = (
        ("pointer", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class _Copy3D(ctypes.Structure):  # cudaMemcpy3DParms
    _fields_ = (
        ("source_array", ctypes.c_void_p),
        ("source_position", _Triple),
        ("source", _PitchedPointer),
        ("target_array", ctypes.c_void_p),
        ("target_position", _Triple),
        ("target", _PitchedPointer),
        ("extent", _Triple),
        ("kind", ctypes.c_int),
    )


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
