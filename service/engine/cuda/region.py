"""Arrays whose addresses stay, while the memory behind them grows and is given back.

A recorded step of the decoder reads and writes where it did when it was recorded: keys and values that moved would make
it useless.  CUDA's driver can reserve addresses and give them memory later, as PyTorch's expandable segments do.
`HostRegion` is the same in this process' memory: for tests, on machines without a GPU.
"""

import ctypes
import math
import weakref
from typing import Protocol

import numpy as np

from service.engine.cuda import cudart

_MAX_STRIDE = (1 << 31) - 1  # bytes between two arrays: kernels of ONNX Runtime count an array's numbers in 32 bits
_HOST_STRIDE = 1 << 26


class Region(Protocol):
    """Arrays side by side whose addresses stay, while the memory behind them grows and is given back."""

    address: int  # of the first array
    stride: int  # bytes from one array to the next
    size: int  # bytes of each array that have memory

    def grow(self, size: int) -> None:
        """Have memory for so many bytes of each array, or a few more; what is new is zero.

        Raises:
            CudaError: there is too little memory; nothing has changed.
        """
        ...

    def release(self) -> None:
        """Give all memory back."""
        ...


class HostRegion:
    """Arrays in this process' memory."""

    def __init__(self, num_arrays: int, multiple: int) -> None:
        self.stride = max(1, _HOST_STRIDE // multiple) * multiple
        self._arrays = np.zeros((num_arrays, self.stride), np.uint8)  # the system gives it memory when it is written to
        self.address, self.size = self._arrays.ctypes.data, 0

    def grow(self, size: int) -> None:
        if size > self.stride:
            raise cudart.CudaError(f"out of memory: {size} bytes of an array, {self.stride} are reserved")
        self.size = max(size, self.size)

    def release(self) -> None:
        self._arrays[:, : self.size] = 0
        self.size = 0


class CudaRegion:
    """Addresses that CUDA's driver maps to memory piece by piece (its virtual memory management)."""

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
