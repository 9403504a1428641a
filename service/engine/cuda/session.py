"""ONNX Runtime on a GPU: whether CUDA can be used, sessions, memory.

ONNX Runtime only warns when a CUDA library is missing, and then computes on the CPU; here that is an error.
"""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from service.engine.cuda.device import CHECK_DRIVER, INSTALL, DeviceError
from service.engine.spec import Device

_LIBRARIES = ("libcudart.so", "libcublas.so", "libcublasLt.so")  # each followed by CUDA's major version
_OTHER_LIBRARIES = ("libcurand.so.10", "libcudnn.so.9")  # attention does not run without cuDNN


def require_cuda() -> None:
    """Load what CUDA needs and take some memory on the device, or raise DeviceError."""
    problem = find_problem()
    if problem:
        raise DeviceError(f"device cuda cannot be used: {problem}")


def find_problem() -> str:
    """Return what keeps CUDA from being used and the command that helps, or nothing; loads CUDA's libraries."""
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        return f"this build of ONNX Runtime has no CUDA; `{INSTALL}`"
    ort.preload_dlls()  # those that came as packages
    if not _loads("libcuda.so.1"):
        return f"there is no NVIDIA driver (libcuda.so.1); {CHECK_DRIVER}"
    missing = [name for name in _libraries() if not _loads(name)]
    if missing:
        return f"{', '.join(missing)} cannot be loaded; `{INSTALL}`"
    try:
        on_device(np.zeros(1, np.float32), "cuda")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        reason = str(error).strip().partition("\n")[0]
        return f"CUDA refuses: {reason}; {CHECK_DRIVER}, and CUDA's version must fit it"
    return ""


def open_on_cuda(graph: Path, *, cuda_graphs: bool = False, profile: Path | None = None) -> Any:
    """Return a session that runs all of a graph on the GPU, or raise DeviceError."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors; everything else comes as an exception
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    cuda = {
        "device_id": "0",  # CUDA_VISIBLE_DEVICES says which that is
        "arena_extend_strategy": "kSameAsRequested",  # the budgets count on what is free
        "use_tf32": "0",
        "enable_cuda_graph": "1" if cuda_graphs else "0",
    }
    try:
        session = ort.InferenceSession(graph, options, providers=[("CUDAExecutionProvider", cuda)], enable_fallback=0)
    except Exception as error:  # ONNX Runtime's exceptions have no public base class
        raise DeviceError(f"{graph} cannot be run on CUDA by ONNX Runtime {ort.__version__}: {error}") from error
    if session.get_providers()[0] != "CUDAExecutionProvider":
        raise DeviceError(f"{graph}: ONNX Runtime chose {session.get_providers()} instead of CUDA; `{INSTALL}`")
    return session


def free_memory() -> int:
    """Return the bytes that are free on the GPU, or raise DeviceError."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    try:
        status = ctypes.CDLL(_libraries()[0]).cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    except OSError as error:
        raise DeviceError(f"the GPU's free memory is unknown: {error}") from error
    if status != 0:
        raise DeviceError(f"the GPU's free memory is unknown: CUDA failure {status}")
    return free.value


def on_device(array: npt.NDArray[Any], device: Device) -> Any:
    """Return a copy of the array in the device's memory."""
    return ort.OrtValue.ortvalue_from_numpy(np.array(array), device, 0)


def _libraries() -> list[str]:
    major = str(getattr(ort, "cuda_version", "13")).partition(".")[0]
    return [*(f"{name}.{major}" for name in _LIBRARIES), *_OTHER_LIBRARIES]


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
