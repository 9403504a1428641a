"""Opens the graphs of a bundle with ONNX Runtime on the CPU."""

from pathlib import Path

import onnxruntime as ort

from model.bundle import BundleError
from service.engine.cpu.instructions import cpu_flags, multiplies_int8_exactly

# ONNX Runtime itself applies it to every x86 CPU, also to those that multiply exactly without it.
EXACT_INT8 = "session.x64quantprecision"
# Joins a sum with the normalisation behind it: on a CPU five times as slow as the two apart (0.76 ms against 0.15).
_SLOW_FUSION = "SkipLayerNormFusion"


def session_options(num_threads: int, flags: frozenset[str]) -> ort.SessionOptions:
    """Return how ONNX Runtime is to run a graph on a CPU with these instructions."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors; everything else comes as an exception
    # A second thread that sleeps between operators of 20 us comes too late: up to 16 sentences, a step took 1.1 to 1.3
    # times as long as with one thread, and 0.6 to 0.8 times with threads that spin and so leave no core to others.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if num_threads > 1 else "0")
    if not multiplies_int8_exactly(flags):  # unsigned weights then, whose kernels are slower and exact
        options.add_session_config_entry(EXACT_INT8, "1")
    return options


def open_session(graph: Path, num_threads: int) -> ort.InferenceSession:
    """Return a session whose operators have this many threads, or raise BundleError."""
    options = session_options(num_threads, cpu_flags())
    providers, disabled = ["CPUExecutionProvider"], [_SLOW_FUSION]
    try:
        return ort.InferenceSession(graph, options, providers=providers, disabled_optimizers=disabled)
    except Exception as error:  # ONNX Runtime's exceptions have no public base class
        raise BundleError(f"{graph} cannot be loaded by ONNX Runtime {ort.__version__}: {error}") from error
