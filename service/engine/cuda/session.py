"""ONNX Runtime on a GPU: whether CUDA can be used, sessions, memory.

ONNX Runtime only warns when a CUDA library is missing, and then computes on the CPU; here that is an error.
"""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from service.engine.choice import CHECK_DRIVER, INSTALL, DeviceError
from service.engine.cuda import cudart
from service.engine.wire import Device

# cuDNN is opened by name, and nothing runs without it.
_LIBRARIES = (cudart.LIBRARY, "libcublas.so.13", "libcublasLt.so.13", "libcurand.so.10", "libcudnn.so.9")
# Architectures that onnxruntime-gpu 1.31 has machine code for: a card runs code of its own major version and the same
# or a lower minor one.  There is no PTX in it, which other cards could compile: V100 (70), B200 and B300 (100, 103).
_ARCHITECTURES = (75, 80, 86, 89, 90, 120)
_OLDEST_DRIVER = 13_000  # CUDA 13.0: driver 580
# Kernels of attention, as the provider's option `sdpa_kernel` adds them up: flash, memory efficient, unfused, and those
# of TensorRT.  cuDNN's (8), which from sm_90 on is the first choice otherwise, builds a plan for each new number of
# sentences and columns, 0.35 to 0.47 s each for an H100, and forgets many of them again.
_ATTENTION = 1 + 2 + 4 + 16 + 32 + 64
_ERRORS_ONLY = 3  # everything else comes as an exception


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
    missing = [name for name in _LIBRARIES if not _loads(name)]
    if missing:
        return f"{', '.join(missing)} cannot be loaded; `{INSTALL}`"
    try:
        return _problem_of_card()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        reason = str(error).strip().partition("\n")[0]
        return f"CUDA refuses: {reason}; {CHECK_DRIVER}, and CUDA's version must fit it"


def _problem_of_card() -> str:
    """Return why the driver or the card cannot be used, or nothing; raise what CUDA raises."""
    driver = cudart.driver_version()
    if driver < _OLDEST_DRIVER:
        version = f"{driver // 1_000}.{driver % 1_000 // 10}"
        return f"the NVIDIA driver is made for CUDA {version}, 13.0 or newer is needed: driver 580 or newer"
    architecture = cudart.compute_capability()
    if not any(built // 10 == architecture // 10 and built <= architecture for built in _ARCHITECTURES):
        those = ", ".join(f"sm_{built}" for built in _ARCHITECTURES)
        return (
            f"ONNX Runtime has no kernels for {cudart.card_name()} (sm_{architecture}), only for {those}; docs/gpu.md"
        )
    on_device(np.zeros(1, np.float32), "cuda")
    if not cudart.maps_memory():
        return f"{cudart.card_name()} cannot give reserved addresses memory, as some virtual GPUs cannot; docs/gpu.md"
    return ""


def open_on_cuda(graph: Path, stream: int, *, cuda_graphs: bool = False, profile: Path | None = None) -> Any:
    """Return a session that runs all of a graph on the GPU, in this stream of CUDA, or raise DeviceError."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    ort.set_default_logger_severity(_ERRORS_ONLY)  # otherwise each session says that the device is no plugin
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    cuda = {
        "device_id": "0",  # CUDA_VISIBLE_DEVICES says which that is
        "arena_extend_strategy": "kSameAsRequested",  # the budgets count on what is free
        "user_compute_stream": str(stream),
        "use_tf32": "0",
        "sdpa_kernel": str(_ATTENTION),
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
    try:
        return cudart.memory()[0]
    except (OSError, cudart.CudaError) as error:
        raise DeviceError(f"the GPU's free memory is unknown: {error}") from error


def on_device(array: npt.NDArray[Any], device: Device) -> Any:
    """Return a copy of the array in the device's memory."""
    return ort.OrtValue.ortvalue_from_numpy(np.array(array), device, 0)


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
