"""Which device an engine computes on, and what is wrong with one that cannot be used.

ONNX Runtime only warns when a CUDA library is missing, and then computes on the CPU; here that is an error, with the
command that mends it.  The front process imports this module: what needs NumPy or ONNX Runtime is in `cuda.py`.
"""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Device = Literal["cpu", "cuda"]

INSTALL = "pip uninstall -y onnxruntime; pip install 'onnxruntime-gpu[cuda,cudnn]'"
CHECK_DRIVER = "nvidia-smi must work here; on a bare machine `apt install nvidia-driver`, in a container `--gpus all`"
_PROBE_TIMEOUT_S = 60.0


class DeviceError(RuntimeError):
    """A device that was asked for and cannot be used; the message says what is missing and how to get it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaFacts:
    """What there is for CUDA."""

    has_provider: bool  # this build of ONNX Runtime knows CUDA
    has_driver: bool
    missing_libraries: Sequence[str] = ()
    refusal: str = ""  # why no memory can be had on the device


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """A device, and why it is not the one that was hoped for."""

    device: Device
    reason: str = ""


def problem_with_cuda(facts: CudaFacts) -> str:
    """What keeps CUDA from being used, and the command that mends it; empty when nothing does."""
    if not facts.has_provider:
        return f"this build of ONNX Runtime has no CUDA; `{INSTALL}`"
    if not facts.has_driver:
        return f"there is no NVIDIA driver (libcuda.so.1); {CHECK_DRIVER}"
    if facts.missing_libraries:
        return f"{', '.join(facts.missing_libraries)} cannot be loaded; `{INSTALL}`"
    if facts.refusal:
        return f"CUDA refuses: {facts.refusal}; {CHECK_DRIVER}, and CUDA's version must fit it"
    return ""


def choose_device(setting: str, *, has_graphs: bool) -> DeviceChoice:
    """The device of a setting; `auto` is CUDA where it works, which a process of its own finds out.

    Args:
        setting: cpu, cuda or auto.
        has_graphs: whether the model has graphs for a GPU.
    """
    if setting == "cuda":
        return DeviceChoice("cuda")
    if setting == "cpu":
        return DeviceChoice("cpu")
    if not has_graphs:
        return DeviceChoice("cpu", "the model has no fp16 graphs; `python -m export MODEL OTHER --precision fp16`")
    problem = _probe()
    return DeviceChoice("cpu", problem) if problem else DeviceChoice("cuda")


def _probe() -> str:
    """What is wrong with CUDA, found in a process that ends again: this one would keep libraries and a context."""
    code = "from service.engine.cuda.libraries import look, problem_with_cuda; print(problem_with_cuda(look()), end='')"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"looking for CUDA failed: {error}"
    if done.returncode != 0:
        return f"looking for CUDA ended with status {done.returncode}; {CHECK_DRIVER}"
    return done.stdout.strip().rpartition("\n")[2]
