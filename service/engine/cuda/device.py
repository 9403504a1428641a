"""Which device an engine computes on, how much its memory lets run at once, and what makes CUDA usable where it is not.

The scheduler process imports this module: what needs NumPy or ONNX Runtime is in `session.py`.
"""

import subprocess
import sys
from dataclasses import dataclass, replace

from model.config import ModelConfig
from service.engine.runner import CacheShape
from service.engine.wire import Device, SchedulerConfig
from service.parent_process import bound

_USABLE = 0.8  # of the free memory; the rest is for workspaces of products and for what memory in pieces loses
_MEMORIES = 2  # slots and columns are a third more than sentences need each, and so is their memory
_LOGIT_BYTES = 2 + 3 * 4  # half precision as a product, float32 as logits, edited, log-probabilities
_ENCODER_FACTOR = 16  # activations of a token in the encoder, in widths of the model


def fitting_budgets(
    wanted: SchedulerConfig, free_bytes: int, config: ModelConfig, max_target_tokens: int, bytes_each: int = 2
) -> SchedulerConfig:
    """Return the wanted budgets, cut down to what half, a quarter and a quarter of the usable memory hold."""
    usable = int(_USABLE * free_bytes)
    shape = CacheShape.of(config)
    column_bytes = 2 * shape.num_layers * shape.column_size * bytes_each  # keys and values of a position in all layers
    # A hypothesis has its own column of every step, the same beside it, and its logits.
    row_bytes = _MEMORIES * max_target_tokens * column_bytes + _LOGIT_BYTES * config.num_logits
    # A position takes this while the encoder runs, and its keys and values after that.
    encoded_bytes = max(shape.column_size * _ENCODER_FACTOR, 4 * config.d_ff) * bytes_each + column_bytes

    def at_most(budget: int, fits: int) -> int:
        return max(1, min(budget, fits))

    encoded = usable // 4 // encoded_bytes
    return replace(
        wanted,
        max_rows=at_most(wanted.max_rows, usable // 2 // row_bytes),
        max_source_tokens=at_most(wanted.max_source_tokens, usable // 4 // (_MEMORIES * column_bytes)),
        max_encode_tokens=at_most(wanted.max_encode_tokens, encoded),
        max_ahead_tokens=at_most(wanted.max_ahead_tokens, encoded),
        encoder_run_tokens=at_most(wanted.encoder_run_tokens, encoded),
    )


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
