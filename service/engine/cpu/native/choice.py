"""What computes a model on this machine's CPU.  Imports no NumPy: the scheduler process asks, too."""

from typing import NamedTuple

from model.bundle import Bundle
from service.engine.cpu.native.library import PLAIN, LibraryError, instruction_set
from service.engine.wire import Runtime

PANEL = 16  # outputs whose weights lie together, and the multiple of every width


class RuntimeChoice(NamedTuple):
    """What computes, and why."""

    runtime: Runtime  # never "auto"
    detail: str  # of the native engine its instruction set; of ONNX Runtime why that serves


def choose_runtime(asked: Runtime, bundle: Bundle, precision: str | None, num_threads: int = 1) -> RuntimeChoice:
    """Return the native engine unless the settings or something here stand against it."""
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
    return "this CPU has no AVX2" if found == PLAIN else ""
