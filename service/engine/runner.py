"""Runs the encoder and the decoder step with ONNX Runtime.

Decides nothing: what runs, for whom and what follows from it is the loop's, the scheduler's and the search's.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.bundle import Bundle, BundleError
from model.config import PAD_ID
from service.engine.beam import Candidates, num_candidates
from service.engine.instructions import cpu_flags, multiplies_int8_exactly
from service.engine.kv_cache import CacheShape, Encoded, KeyValueCache
from service.engine.spec import EngineSpec

# ONNX Runtime itself applies it to every x86 CPU, also to those that multiply exactly without it.
EXACT_INT8 = "session.x64quantprecision"

Scalar = TypeVar("Scalar", bound=np.generic)


class Runner(Protocol):
    """The model, as the loop sees it."""

    @property
    def cache_shape(self) -> CacheShape:
        """What the caches must look like."""
        ...

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        """Cross-attention keys and values of some sentences, each source ending with end-of-sentence."""
        ...

    def decode_step(self, tokens: npt.NDArray[np.int64], cache: KeyValueCache) -> Candidates:
        """Write one column to every row of the cache and say what may come next.

        Args:
            tokens: [B, K], the newest token of every hypothesis.
            cache: with room for the column; its lengths do not count it yet.

        Returns:
            The 2K best next tokens of each hypothesis; valid until the next call.
        """
        ...


class OnnxRunner:
    """The graphs of one bundle on the CPU.

    Raises:
        BundleError: the bundle cannot be used, or has no such precision.
    """

    def __init__(self, bundle: Bundle, *, precision: str | None = None, num_threads: int = 1) -> None:
        variant = bundle.variant(precision)
        config = bundle.manifest.config
        _check_limits(bundle)
        self.cache_shape = CacheShape(
            num_layers=config.num_decoder_layers, num_heads=config.num_heads, d_head=config.d_head
        )
        self._encoder = open_session(bundle.path(variant.encoder), num_threads)
        self._decoder = open_session(bundle.path(variant.decoder_step), num_threads)
        self._cross_names = layer_names("cross", config.num_decoder_layers)
        self._bindings: WeakKeyDictionary[KeyValueCache, _Binding] = WeakKeyDictionary()

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        """See `Runner.encode`."""
        source_ids, lengths = pad(sources)
        arrays = self._encoder.run(self._cross_names, {"source_ids": source_ids, "source_lengths": lengths})
        return Encoded(arrays, lengths)

    def decode_step(self, tokens: npt.NDArray[np.int64], cache: KeyValueCache) -> Candidates:
        """See `Runner.decode_step`."""
        binding = self._bindings.get(cache)
        if binding is None or binding.layout != cache.layout:
            binding = self._bindings[cache] = _Binding(self._decoder, cache)
        binding.fill(tokens, cache)
        self._decoder.run_with_iobinding(binding.io)
        return binding.candidates


class _Binding:
    """The memory that the decoder graph reads and writes for one cache, for as long as the cache keeps its layout."""

    def __init__(self, decoder: ort.InferenceSession, cache: KeyValueCache) -> None:
        sentences, beam_size = cache.num_sentences, cache.beam_size
        rows, width = sentences * beam_size, num_candidates(beam_size)
        self.layout = cache.layout
        self.io = decoder.io_binding()
        self._keep: list[npt.NDArray[Any]] = []  # ONNX Runtime holds addresses, not references
        self._tokens = self._input("tokens", np.zeros((sentences, beam_size), np.int64))
        self._past_lengths = self._input("past_lengths", np.zeros(rows, np.int32))
        self._total_length = self._input("total_length", np.zeros(1, np.int32))
        self._source_lengths = self._input("source_lengths", np.zeros(sentences, np.int32))
        self._input("edit_indices", np.zeros((0, 2), np.int64))
        self._input("edit_values", np.zeros(0, np.float32))
        self._input("num_candidates", np.array([width], np.int64))
        cross = cache.cross_arrays()
        for name, array in zip(layer_names("cross", len(cross) // 2), cross, strict=True):
            self._input(name, array)
        own = cache.self_arrays()
        for name, array in zip(layer_names("self", len(own) // 2), own, strict=True):
            self._input(name, array)
            self._output(f"{name}_out", array)  # in place: the graph writes one column a row
        shape = (sentences, beam_size, width)
        self.candidates = Candidates(
            log_probs=self._output("candidate_log_probs", np.zeros(shape, np.float32)),
            tokens=self._output("candidate_tokens", np.zeros(shape, np.int64)),
        )

    def fill(self, tokens: npt.NDArray[np.int64], cache: KeyValueCache) -> None:
        """Write this step's small inputs where the graph reads them."""
        self._tokens[:] = tokens
        self._source_lengths[:] = cache.source_lengths
        self._past_lengths.reshape(tokens.shape)[:] = cache.lengths[:, None]
        self._total_length[0] = cache.lengths.max() + 1

    def _input(self, name: str, array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        self.io.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        self._keep.append(array)
        return array

    def _output(self, name: str, array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        self.io.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        self._keep.append(array)
        return array


def create_runner(spec: EngineSpec) -> Runner:
    """The runner of an engine process, unless its spec names another.

    Raises:
        BundleError: the bundle cannot be used, or has no such precision.
    """
    return OnnxRunner(Bundle.load(spec.bundle_dir), precision=spec.precision, num_threads=spec.num_threads)


def open_session(graph: Path, num_threads: int) -> ort.InferenceSession:
    """The graph, ready to run.

    Args:
        num_threads: computing one operator; ONNX Runtime would take the host's, not the container's.

    Raises:
        BundleError: it is no graph that this ONNX Runtime can run.
    """
    options = session_options(num_threads, cpu_flags())
    try:
        return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no public base class
        raise BundleError(f"{graph} cannot be loaded by ONNX Runtime {ort.__version__}: {error}") from error


def session_options(num_threads: int, flags: frozenset[str]) -> ort.SessionOptions:
    """How ONNX Runtime is to run a graph on a CPU with these instructions."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors; everything else comes as an exception
    # Between two steps this process works in Python: threads that spin meanwhile take the cores from it.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not multiplies_int8_exactly(flags):  # unsigned weights then, whose kernels are slower and exact
        options.add_session_config_entry(EXACT_INT8, "1")
    return options


def _check_limits(bundle: Bundle) -> None:
    """Refuse limits beyond the position table: a step past its end would fail the whole batch."""
    decoding, positions = bundle.manifest.decoding, bundle.manifest.config.max_positions
    for name in ("max_target_tokens", "max_source_tokens"):
        limit = getattr(decoding, name)
        if limit > positions:
            raise BundleError(
                f"{bundle.directory}: {name} is {limit}, the model has {positions} positions; export again"
            )


def layer_names(kind: str, num_layers: int) -> list[str]:
    """The graphs' names of a cache's arrays, in `RowBuffers`' order: cross_key_0, cross_value_0, cross_key_1, ..."""
    return [f"{kind}_{part}_{layer}" for layer in range(num_layers) for part in ("key", "value")]


def pad(sources: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Source ids [B, S], padded on the right to the longest, and lengths [B]."""
    lengths = np.array([len(source) for source in sources], np.int32)
    source_ids = np.full((len(sources), lengths.max()), PAD_ID, np.int64)
    for row, source in zip(source_ids, sources, strict=True):
        row[: len(source)] = source
    return source_ids, lengths
