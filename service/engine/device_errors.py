"""What an error of ONNX Runtime means: too little memory, a device that is gone, or neither.

ONNX Runtime raises a RuntimeError for all of them; only the text tells them apart.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

DEVICE_LOST_STATUS = 75  # of an engine process whose device is gone; sysexits.h: a temporary failure, try elsewhere


class DeviceOutOfMemory(MemoryError):
    """The device, CPU or GPU, has too little memory for what was asked; with fewer rows, the next batch may fit."""


class DeviceLost(SystemExit):
    """This process cannot use the device any more and has to end: CUDA recovers from no such error."""

    def __init__(self, reason: str) -> None:
        super().__init__(DEVICE_LOST_STATUS)
        self.reason = reason

    def __str__(self) -> str:
        return f"the device is lost: {self.reason}"


_OUT_OF_MEMORY = re.compile(
    r"Failed to allocate memory for requested buffer|Available memory of \d+ is smaller than requested|"
    r"CUDA failure 2:|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|CUBLAS failure 3:|out of memory|"
    r"std::bad_alloc"
)
# Errors after which cuda.h calls the process' context unusable, and devices that are not there any more.
_LOST_CODES = frozenset({
    3,  # not initialised: the driver was unloaded
    4,  # the driver shuts down
    46,  # device busy or unavailable
    100, 101,  # no device; no such device
    214, 220,  # uncorrectable memory error; uncorrectable NVLink error
    700, 702, 709, 710,  # illegal address, launch timeout, context destroyed, device-side assert
    714, 715, 716, 717, 718, 719,  # exceptions inside a kernel
    802, 803, 804,  # system not ready, driver mismatch, driver too old for this hardware
    999,  # unknown: what a device that fell off the bus gives
})  # fmt: skip
_CUDA_CODE = re.compile(r"CUDA (?:failure|error) (\d+)")
_LOST = re.compile(r"fallen off the bus|GPU is lost|NVML: Unknown error|Xid \(?|cudaErrorDevicesUnavailable")


@contextmanager
def explained() -> Iterator[None]:
    """Raise DeviceOutOfMemory or DeviceLost where an error of ONNX Runtime's, raised inside, is one of them."""
    try:
        yield
    except Exception as error:  # ONNX Runtime's exceptions have no public base class
        message = str(error)
        codes = {int(code) for code in _CUDA_CODE.findall(message)}
        if codes & _LOST_CODES or _LOST.search(message):
            raise DeviceLost(message) from error
        if _OUT_OF_MEMORY.search(message):
            raise DeviceOutOfMemory(message) from error
        raise
