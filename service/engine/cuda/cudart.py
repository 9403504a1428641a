"""CUDA's runtime library, as far as the engine calls it itself, and of the driver what gives addresses their memory.

Knows functions and their errors; knows neither ONNX Runtime nor what is computed.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy.typing as npt

LIBRARY = "libcudart.so.13"
DRIVER = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76  # cudaDevAttrComputeCapabilityMajor and Minor
_MAPS_MEMORY = 102  # CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
_LARGEST_PROPERTIES = 8_192  # bytes that no cudaDeviceProp exceeds; its name comes first


class CudaError(RuntimeError):
    """A function of CUDA failed; the message is worded as ONNX Runtime's are, for `explained`."""


def call(function: str, *arguments: Any) -> None:
    """Call a function of CUDA's runtime, or raise CudaError."""
    status = _function(function)(*arguments)
    if status != 0:
        _function("cudaGetLastError")()  # forgets it: ONNX Runtime would take it for an error of its next kernel
        raise CudaError(f"CUDA failure {status}: {_description(status)} ; {function}")


def call_driver(function: str, *arguments: Any) -> None:
    """Call a function of CUDA's driver, or raise CudaError; its numbers of errors are the runtime's."""
    status = _function(function, DRIVER)(*arguments)
    if status != 0:
        raise CudaError(f"CUDA failure {status}: {_description(status)} ; {function}")


@cache
def kernel(path: Path, name: str) -> ctypes.c_void_p:
    """Return a kernel of a file of PTX, which the driver compiles for its card."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    try:
        call_driver("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(path.read_bytes()))
    except CudaError as error:
        raise CudaError(f"the driver cannot compile {path}: {error}") from None
    call_driver("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name.encode()))
    return function


def launch(
    function: ctypes.c_void_p,
    grid: tuple[int, int, int],
    num_threads: int,
    stream: ctypes.c_void_p,
    argument: npt.NDArray[Any],
) -> None:
    """Launch a kernel that takes one argument, which the driver copies at once."""
    arguments = (ctypes.c_void_p * 1)(argument.ctypes.data)
    call_driver("cuLaunchKernel", function, *grid, num_threads, 1, 1, 0, stream, arguments, None)


def driver_version() -> int:
    """Return the CUDA version that the driver is made for, 13000 for 13.0; 0 without a driver."""
    version = ctypes.c_int()
    call("cudaDriverGetVersion", ctypes.byref(version))
    return version.value


def compute_capability() -> int:
    """Return the card's compute capability as the names of architectures have it: 90 is sm_90."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    for number, attribute in ((major, _MAJOR), (minor, _MINOR)):
        call("cudaDeviceGetAttribute", ctypes.byref(number), ctypes.c_int(attribute), ctypes.c_int(0))
    return 10 * major.value + minor.value


def maps_memory() -> bool:
    """Return whether addresses can be reserved and get their memory later, as on every card but some virtual ones."""
    is_supported = ctypes.c_int()
    call_driver("cuDeviceGetAttribute", ctypes.byref(is_supported), ctypes.c_int(_MAPS_MEMORY), ctypes.c_int(0))
    return bool(is_supported.value)


def card_name() -> str:
    """Return the card's name."""
    properties = ctypes.create_string_buffer(_LARGEST_PROPERTIES)
    call("cudaGetDeviceProperties", properties, ctypes.c_int(0))
    return properties.value.decode(errors="replace")


def memory() -> tuple[int, int]:
    """Return how many bytes of the device are free, and how many it has."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def _description(status: int) -> str:
    describe = _function("cudaGetErrorString")
    describe.restype = ctypes.c_char_p
    return str(describe(status).decode())


@cache
def _function(name: str, library: str = LIBRARY) -> Any:
    return getattr(ctypes.CDLL(library), name)
