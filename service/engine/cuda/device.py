"""Which device an engine computes on, and the command that makes CUDA usable where it is not.

The core imports this module: what needs NumPy or ONNX Runtime is in `session.py`.
"""

import subprocess
import sys
from dataclasses import dataclass

from service.engine.spec import Device
from service.parent_process import bound

INSTALL = "pip uninstall -y onnxruntime; pip install 'onnxruntime-gpu[cuda,cudnn]'"
CHECK_DRIVER = "nvidia-smi must work here; on a bare machine `apt install nvidia-driver`, in a container `--gpus all`"
_PROBE_TIMEOUT_S = 60.0


class DeviceError(RuntimeError):
    """A device that was asked for and cannot be used; the message says what is missing and how to get it."""


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """A device, and why it is not the one that was hoped for."""

    device: Device
    reason: str = ""


def choose_device(setting: str, *, has_graphs: bool) -> DeviceChoice:
    """Return the device for cpu, cuda or auto, which is CUDA where a process of its own finds that it works."""
    if setting == "cuda":
        return DeviceChoice("cuda")
    if setting == "cpu":
        return DeviceChoice("cpu")
    if not has_graphs:
        return DeviceChoice("cpu", "the model has no fp16 graphs; `python -m export MODEL OTHER --precision fp16`")
    problem = probe()
    return DeviceChoice("cpu", problem) if problem else DeviceChoice("cuda")


def probe() -> str:
    """Return what is wrong with CUDA, found in a process that ends: this one would keep libraries and a context."""
    code = "from service.engine.cuda.session import find_problem; print(find_problem(), end='')"
    try:
        done = subprocess.run(
            [sys.executable, "-c", bound(code)], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"looking for CUDA failed: {error}"
    if done.returncode != 0:
        return f"looking for CUDA ended with status {done.returncode}; {CHECK_DRIVER}"
    return done.stdout.strip().rpartition("\n")[2]
