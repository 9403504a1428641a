"""Chooses what computes a model on this machine: the device, and on a CPU the native engine or ONNX Runtime.

Does not import ONNX Runtime, because the scheduler process imports this module.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from model.bundle import Bundle
from service.child_process import bound
from service.engine.cpu.native.library import PANEL, LibraryError, instruction_set
from service.engine.wire import Device, Runtime

# What speeds up int8 products, best first.
INT8_FLAGS = ("amx_int8", "avx512_vnni", "avx_vnni", "i8mm", "asimddp")
INSTALL = "pip uninstall -y onnxruntime; pip install 'onnxruntime-gpu[cuda,cudnn]'"
CHECK_DRIVER = "nvidia-smi must work here; on a bare machine `apt install nvidia-driver`, in a container `--gpus all`"
_PROBE_TIMEOUT_S = 60.0


class DeviceError(RuntimeError):
    """A device that was asked for and cannot be used; the message says what is missing and how to get it."""


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """A device, and the reason where it is not the fastest one."""

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


class RuntimeChoice(NamedTuple):
    """What computes, and why."""

    runtime: Runtime  # never "auto"
    detail: str  # of the native engine its instruction set; of ONNX Runtime why that serves


def choose_runtime(asked: Runtime, bundle: Bundle, precision: str | None, num_threads: int = 1) -> RuntimeChoice:
    """Return the native engine, unless the settings, the bundle or this machine rule it out."""
    if asked == "onnxruntime":
        return RuntimeChoice("onnxruntime", "engine.runtime asks for it")
    if problem := native_problem(bundle, precision, num_threads):
        return RuntimeChoice("onnxruntime", f"the native engine, which is about twice as fast, cannot serve: {problem}")
    return RuntimeChoice("native", instruction_set())


def unsupported(bundle: Bundle, precision: str | None = None) -> str:
    """Return what the native engine does not know of a bundle's model; empty: nothing, so that it can serve it."""
    config, variant = bundle.manifest.config, bundle.variant(precision)
    if variant.arrange:
        return "graphs for a GPU"
    if variant.scorer and bundle.manifest.alignment is None:
        return "which heads align"
    if config.is_recurrent:
        return f"architecture {config.architecture}"
    if config.d_model % PANEL:
        return f"d_model {config.d_model}, which is no multiple of {PANEL}"
    return ""


def native_problem(bundle: Bundle, precision: str | None, num_threads: int = 1) -> str:
    """Return why ONNX Runtime has to serve this model on this machine; empty: the native engine can."""
    if problem := library_problem():
        return problem
    if num_threads > 1:
        return f"it computes with one thread, engines have {num_threads}"
    reason = unsupported(bundle, precision)
    return f"it does not know {reason}" if reason else ""


def library_problem() -> str:
    """Return why this machine has no native engine at all; empty: it has one."""
    try:
        found = instruction_set()
    except LibraryError as error:
        return str(error)
    return "" if found else "this CPU has no AVX2"


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Return the instruction set extensions of the first CPU as Linux names them; empty if they are not known."""
    try:
        lines = cpuinfo.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return frozenset()
    fields = (line.partition(":") for line in lines)
    return next(
        (frozenset(value.split()) for key, _, value in fields if key.strip() in ("flags", "Features")), frozenset()
    )


def multiplies_int8_exactly(flags: frozenset[str]) -> bool:
    """Return whether sums of unsigned x signed products cannot saturate.

    x86 without dot products adds two such products in 16 bits.  ARM has no such instruction; an unknown CPU may be an
    x86 without dot products.
    """
    return not flags.isdisjoint(INT8_FLAGS)
