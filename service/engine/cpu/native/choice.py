"""Whether the native engine can serve a model on this machine.  Imports no NumPy: the core asks, too."""

from model.bundle import Bundle
from model.config import Architecture
from service.engine.cpu.native.library import PLAIN, LibraryError, instruction_set

PANEL = 16  # outputs whose weights lie together, and the multiple of every width


def unsupported(bundle: Bundle, precision: str | None = None) -> str:
    """Return what the native engine does not know of a bundle's model; empty: nothing, so that it can serve it."""
    config, variant = bundle.manifest.config, bundle.variant(precision)
    if variant.arrange:
        return "graphs for a GPU"
    if variant.scorer and bundle.manifest.alignment is None:
        return "which heads align"
    if config.architecture is not Architecture.TRANSFORMER:
        return f"architecture {config.architecture}"
    if config.relative_distance:
        return "relative positions"
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
