"""Opens graphs with ONNX Runtime on the CPU, as they are in the bundle or as they were prepared for several engines.

ONNX Runtime packs weights for the CPU when it loads a graph, into memory of the process.  It can save a graph with its
packed weights, and maps that file when it loads the graph again: engines of one model then share one copy of the
weights.  `service/engines/prepared_graphs.py` runs `main` once before the engines of a model start.
"""

import pickle
import shutil
import sys
import tempfile
import warnings
from pathlib import Path, PurePosixPath

import onnxruntime as ort

from model.bundle import Bundle, BundleError
from model.shortlist import Shortlist
from service.engine.cpu.instructions import cpu_flags, multiplies_int8_exactly
from service.engine.spec import EngineSpec
from service.files import require_own

# ONNX Runtime itself applies it to every x86 CPU, also to those that multiply exactly without it.
EXACT_INT8 = "session.x64quantprecision"
# Joins a sum with the normalisation behind it: on a CPU five times as slow as the two apart (0.76 ms against 0.15).
_SLOW_FUSION = "SkipLayerNormFusion"
_ROOM = 3  # times the weights' bytes must be free for each graph: a prepared one keeps its weights unpacked too


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
    try:
        return _new_session(graph, session_options(num_threads, cpu_flags()))
    except Exception as error:  # ONNX Runtime's exceptions have no public base class
        raise BundleError(f"{graph} cannot be loaded by ONNX Runtime {ort.__version__}: {error}") from error


def open_graph(bundle: Bundle, name: str, num_threads: int, prepared_dir: Path | None) -> ort.InferenceSession:
    """Return a session of the prepared graph, or of the bundle's own where there is none that can be loaded."""
    if prepared_dir is not None and (prepared_dir / name).is_file():
        try:
            require_own(prepared_dir)
            return open_session(prepared_dir / name, num_threads)
        except (BundleError, OSError) as error:
            warnings.warn(f"weights are not shared with other engines: {error}", RuntimeWarning, stacklevel=2)
    return open_session(bundle.path(name), num_threads)


def load_shortlist(bundle: Bundle, precision: str | None) -> Shortlist | None:
    """Return the bundle's shortlist, or None where it has none or this CPU would compute its graph wrongly."""
    variant = bundle.variant(precision)
    # Columns are inputs of the graph, and only constants are made unsigned for CPUs that need it.
    is_exact = variant is not bundle.manifest.variants.get("int8") or multiplies_int8_exactly(cpu_flags())
    if not (bundle.manifest.shortlist and variant.shortlist_step and variant.projection and is_exact):
        return None
    try:
        config = bundle.manifest.config
        return Shortlist.load(bundle.path(bundle.manifest.shortlist), config.largest_vocabulary, config.eos_id)
    except ValueError as error:
        raise BundleError(f"{error}; export the model again") from error


def prepare_graphs(bundle: Bundle, precision: str | None, directory: Path) -> None:
    """Write the graphs that a runner of this bundle opens, with packed weights; OSError where there is no room."""
    variant = bundle.variant(precision)
    folder = PurePosixPath(variant.encoder).parent
    files = bundle.manifest.files.items()
    wanted = _ROOM * sum(entry.bytes for name, entry in files if PurePosixPath(name).is_relative_to(folder))
    names = [variant.encoder, variant.decoder_step]
    if variant.shortlist_step and load_shortlist(bundle, precision):
        names.append(variant.shortlist_step)
    if variant.scorer:
        names.append(variant.scorer)
    for name in names:
        free = shutil.disk_usage(directory).free
        if free < wanted:
            raise OSError(f"{directory} has room for {free:,} bytes, {wanted:,} are wanted")
        target = directory / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as draft:
            # Twice: what constant folding makes is packed only where it is stored.
            _save(bundle.path(name), Path(draft) / target.name, with_packed=False)
            _save(Path(draft) / target.name, target, with_packed=True)


def main() -> None:
    """Prepare the graphs of the spec on standard input, in a process of its own: a crafted graph could crash it."""
    spec: EngineSpec = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own process
    assert spec.prepared_dir is not None
    try:
        bundle = Bundle.load(spec.bundle_dir, manifest_sha256=spec.manifest_sha256)
        prepare_graphs(bundle, spec.precision, spec.prepared_dir)
    except Exception as error:  # noqa: BLE001 - whatever it is, the core logs it
        sys.exit(f"{type(error).__name__}: {error}")


def _save(graph: Path, target: Path, *, with_packed: bool) -> None:
    options = session_options(1, cpu_flags())
    options.optimized_model_filepath = str(target)
    weights = target.with_suffix(".data").name
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", weights)
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    if with_packed:
        options.add_session_config_entry("session.save_external_prepacked_constant_initializers", "1")
    _new_session(graph, options)


def _new_session(graph: Path, options: ort.SessionOptions) -> ort.InferenceSession:
    return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=[_SLOW_FUSION])
