"""Runs the encoder and the decoder step with ONNX Runtime.

Decides nothing: what runs, for whom and what follows from it is the loop's, the scheduler's and the search's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.bundle import Bundle, BundleError
from model.config import PAD_ID
from model.shortlist import Shortlist
from service.engine.beam import Candidates, num_candidates
from service.engine.cpu.kv_cache import CacheShape, Encoded, EncodedSentences, KeyValueCache
from service.engine.cpu.prepared_graphs import PreparedGraphs, default_directory, warn_unshared
from service.engine.faults import Fault, classify, explained
from service.engine.instructions import cpu_flags, multiplies_int8_exactly
from service.engine.spec import EngineSpec
from service.engine.vocabulary import LiveVocabulary, Projection

# ONNX Runtime itself applies it to every x86 CPU, also to those that multiply exactly without it.
EXACT_INT8 = "session.x64quantprecision"
# Joins a sum with the normalisation behind it: on a CPU five times as slow as the two apart (0.76 ms against 0.15).
_SLOW_FUSION = "SkipLayerNormFusion"

_MAX_LAYOUTS = 128  # bindings that are kept of a cache; of the included model 16 kB each

Scalar = TypeVar("Scalar", bound=np.generic)
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
OpenGraph = Callable[[str], ort.InferenceSession]  # by its name in the bundle


class Runner(Protocol):
    """The model, as the loop sees it."""

    def new_cache(self, beam_size: int) -> KeyValueCache:
        """Room for the keys and values of a group of sentences."""
        ...

    def live_vocabulary(self) -> LiveVocabulary | None:
        """For a group of sentences that keep to their shortlists; None where the model has no shortlist."""
        ...

    def encode(self, sources: Sequence[Sequence[int]]) -> EncodedSentences:
        """Cross-attention keys and values of some sentences, each source ending with end-of-sentence."""
        ...

    def decode_step(
        self, tokens: Ints, scores: Floats, cache: KeyValueCache, vocabulary: LiveVocabulary | None = None
    ) -> Candidates:
        """Write a column for every hypothesis to the cache and say how each sentence may go on.

        Args:
            tokens: [B, K], the newest token of every hypothesis.
            scores: [B, K], what is added to the log-probabilities of its next tokens.
            cache: prepared for the step.
            vocabulary: of the same sentences, and of this cache as long as it lives; None for all tokens.

        Returns:
            The 2K best extensions of each sentence; valid until the next call.
        """
        ...


class OnnxRunner:
    """The graphs of one bundle on the CPU.

    Args:
        prepared_in: where graphs are kept that several engines share; None: this engine has weights of its own.

    Raises:
        BundleError: the bundle cannot be used, or has no such precision.
    """

    def __init__(
        self, bundle: Bundle, *, precision: str | None = None, num_threads: int = 1, prepared_in: Path | None = None
    ) -> None:
        variant = bundle.variant(precision)
        if variant.arrange:
            raise BundleError(f"{bundle.directory}: these are graphs for a GPU; choose device cuda or other graphs")
        config = bundle.manifest.config
        check_limits(bundle)
        self.cache_shape = CacheShape(
            num_layers=config.num_decoder_layers, num_heads=config.num_heads, d_head=config.d_head
        )
        open_graph = _opener(bundle, num_threads, prepared_in)
        self._encoder = open_graph(variant.encoder)
        self._decoder = open_graph(variant.decoder_step)
        self._shortlist = load_shortlist(bundle, precision, open_graph)
        self._open_graph = open_graph  # with it would go the locks on files that are mapped: see PreparedGraphs
        self._vocab_size = config.vocab_size
        self._cross_names = layer_names("cross", config.num_decoder_layers)
        self._bindings: WeakKeyDictionary[KeyValueCache, _Bindings] = WeakKeyDictionary()

    def new_cache(self, beam_size: int) -> KeyValueCache:
        """See `Runner.new_cache`."""
        return KeyValueCache(self.cache_shape, beam_size)

    def live_vocabulary(self) -> LiveVocabulary | None:
        """See `Runner.live_vocabulary`."""
        shortlist = self._shortlist
        return None if shortlist is None else LiveVocabulary(shortlist.lists, shortlist.projection)

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        """See `Runner.encode`."""
        source_ids, lengths = pad(sources)
        with explained():
            arrays = self._encoder.run(self._cross_names, {"source_ids": source_ids, "source_lengths": lengths})
        return Encoded(arrays, lengths)

    def decode_step(
        self, tokens: Ints, scores: Floats, cache: KeyValueCache, vocabulary: LiveVocabulary | None = None
    ) -> Candidates:
        """See `Runner.decode_step`."""
        decoder = self._decoder if vocabulary is None or self._shortlist is None else self._shortlist.decoder
        binding = self._binding(decoder, cache, vocabulary)
        binding.tokens[:] = tokens
        binding.scores[:, :, 0] = scores
        with explained():
            decoder.run_with_iobinding(binding.io)
        parents, found = np.divmod(binding.ids, self._vocab_size if vocabulary is None else vocabulary.num_columns)
        tokens = found if vocabulary is None else vocabulary.tokens.take(found)
        return Candidates(binding.best, tokens, parents, binding.check)

    def _binding(
        self, decoder: ort.InferenceSession, cache: KeyValueCache, vocabulary: LiveVocabulary | None
    ) -> "_Binding":
        """The one for the arrays as they lie now."""
        generation, num_columns = (0, 0) if vocabulary is None else (vocabulary.generation, vocabulary.num_columns)
        memory, layout = (*cache.memory, generation), (*cache.layout, num_columns)
        bindings = self._bindings.get(cache)
        if bindings is None or bindings.memory != memory:  # what is kept for old memory would keep it from being freed
            bindings = self._bindings[cache] = _Bindings(memory)
        binding = bindings.of_layout.pop(layout, None) or _Binding(decoder, cache, vocabulary)
        bindings.of_layout[layout] = binding
        if len(bindings.of_layout) > _MAX_LAYOUTS:
            del bindings.of_layout[next(iter(bindings.of_layout))]
        return binding


@dataclass(frozen=True, slots=True)
class _Shortlist:
    """What a step with a part of the vocabulary needs."""

    lists: Shortlist
    projection: Projection
    decoder: ort.InferenceSession


def load_shortlist(bundle: Bundle, precision: str | None, open_graph: OpenGraph) -> _Shortlist | None:
    """The bundle's shortlist with its graph, or None where it has none or this CPU would compute it wrongly.

    Raises:
        BundleError: it cannot be used.
    """
    variant = bundle.variant(precision)
    # Columns are inputs of the graph, and only constants are made unsigned for CPUs that need it.
    is_int8 = variant is bundle.manifest.variants.get("int8")
    is_exact = not is_int8 or multiplies_int8_exactly(cpu_flags())
    if not (bundle.manifest.shortlist and variant.shortlist_step and variant.projection and is_exact):
        return None
    try:
        lists = Shortlist.load(bundle.path(bundle.manifest.shortlist), bundle.manifest.config.vocab_size)
    except ValueError as error:
        raise BundleError(f"{error}; export the model again") from error
    source = open_session(bundle.path(variant.projection), 1)
    outputs = dict(zip((value.name for value in source.get_outputs()), source.run(None, {}), strict=True))
    decoder = open_graph(variant.shortlist_step)
    return _Shortlist(lists, Projection(outputs["rows"], outputs.get("scales")), decoder)


class _Bindings:
    """Those of one cache, by the shapes of its arrays, least recently used first; good until its memory moves."""

    def __init__(self, memory: tuple[int, ...]) -> None:
        self.memory = memory
        self.of_layout: dict[tuple[int, ...], _Binding] = {}


class _Binding:
    """The memory that the decoder graph reads and writes, for arrays of certain shapes.

    Nearly all of it is the cache's own, so that a step copies nothing but tokens and scores.  To tell ONNX Runtime an
    address takes about 10 us, so a binding is kept and, when the shapes come again, used again.
    """

    def __init__(self, decoder: ort.InferenceSession, cache: KeyValueCache, vocabulary: LiveVocabulary | None) -> None:
        num_sentences, beam_size = cache.num_sentences, cache.beam_size
        width = num_candidates(beam_size)
        self.io = decoder.io_binding()
        self._keep: list[npt.NDArray[Any]] = []  # ONNX Runtime holds addresses, not references
        self.tokens = self._input("tokens", np.zeros((num_sentences, beam_size), np.int64))
        self.scores = self._input("scores", np.zeros((num_sentences, beam_size, 1), np.float32))
        self._input("past_lengths", cache.past_lengths)
        self._input("columns", cache.columns)
        self._input("self_mask", cache.mask)
        self._input("source_lengths", cache.source_lengths)
        self._input("edit_places", np.zeros(0, np.int64))
        self._input("edit_values", np.zeros(0, np.float32))
        self._input("num_candidates", np.array([width], np.int64))
        self._bind_caches(cache)
        if vocabulary is not None:
            self._bind_vocabulary(vocabulary)
        self.best = self._output("candidate_scores", np.zeros((num_sentences, width), np.float32))
        self.ids = self._output("candidate_ids", np.zeros((num_sentences, width), np.int64))
        self.check = self._output("check", np.zeros(num_sentences, np.float32))

    def _bind_caches(self, cache: KeyValueCache) -> None:
        cross, own = cache.cross_arrays(), cache.self_arrays()
        for name, array in zip(layer_names("cross", len(cross) // 2), cross, strict=True):
            self._input(name, array)
        for name, array in zip(layer_names("self", len(own) // 2), own, strict=True):
            self._input(name, array)
            self._output(f"{name}_out", array)  # in place: the graph writes one column a hypothesis

    def _bind_vocabulary(self, vocabulary: LiveVocabulary) -> None:
        self._input("vocabulary_weights", vocabulary.weights)
        if vocabulary.has_scales:
            self._input("vocabulary_scales", vocabulary.scales)
        self._input("vocabulary_mask", vocabulary.mask)

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
        DeviceError: the device cannot be used.
    """
    if spec.device == "cuda":
        from service.engine.cuda.device_runner import create  # noqa: PLC0415 - builds on this module

        return create(spec)
    return OnnxRunner(
        Bundle.load(spec.bundle_dir, manifest_sha256=spec.manifest_sha256),
        precision=spec.precision,
        num_threads=spec.num_threads,
        prepared_in=default_directory() if spec.shared_weights else None,
    )


def _opener(bundle: Bundle, num_threads: int, prepared_in: Path | None) -> OpenGraph:
    """Opens graphs as they were prepared in that directory, or as they are in the bundle."""
    if prepared_in is None:
        return lambda name: open_session(bundle.path(name), num_threads)
    flags = cpu_flags()
    options = partial(session_options, num_threads, flags)
    prepared = PreparedGraphs(bundle, prepared_in, options, flags=flags, disabled_optimizers=[_SLOW_FUSION])

    def open_prepared(name: str) -> ort.InferenceSession:
        graph = prepared.path(name)
        try:
            return open_session(graph, num_threads)
        except BundleError as error:
            if graph == bundle.path(name):
                raise
            warn_unshared(error)  # the bundle's own graph serves
            if classify(str(error)) is not Fault.OUT_OF_MEMORY:  # but damaged
                prepared.discard(name)
            return open_session(bundle.path(name), num_threads)

    return open_prepared


def open_session(graph: Path, num_threads: int) -> ort.InferenceSession:
    """The graph, ready to run.

    Args:
        num_threads: computing one operator; ONNX Runtime would take the host's, not the container's.

    Raises:
        BundleError: it is no graph that this ONNX Runtime can run.
    """
    options = session_options(num_threads, cpu_flags())
    try:
        return ort.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=[_SLOW_FUSION]
        )
    except Exception as error:  # ONNX Runtime's exceptions have no public base class
        raise BundleError(f"{graph} cannot be loaded by ONNX Runtime {ort.__version__}: {error}") from error


def session_options(num_threads: int, flags: frozenset[str]) -> ort.SessionOptions:
    """How ONNX Runtime is to run a graph on a CPU with these instructions."""
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


def check_limits(bundle: Bundle) -> None:
    """Refuse limits beyond the position table: a step past its end would fail the whole batch."""
    decoding, positions = bundle.manifest.decoding, bundle.manifest.config.max_positions
    for name in ("max_target_tokens", "max_source_tokens"):
        limit = getattr(decoding, name)
        if limit > positions:
            raise BundleError(
                f"{bundle.directory}: {name} is {limit}, the model has {positions} positions; export again"
            )


def layer_names(kind: str, num_layers: int) -> list[str]:
    """The graphs' names of a cache's arrays, in `SlotBuffers`' order: cross_key_0, cross_value_0, cross_key_1, ..."""
    return [f"{kind}_{part}_{layer}" for layer in range(num_layers) for part in ("key", "value")]


def pad(sources: Sequence[Sequence[int]]) -> tuple[Ints, npt.NDArray[np.int32]]:
    """Source ids [B, S], padded on the right to the longest, and lengths [B]."""
    lengths = np.array([len(source) for source in sources], np.int32)
    source_ids = np.full((len(sources), lengths.max()), PAD_ID, np.int64)
    for row, source in zip(source_ids, sources, strict=True):
        row[: len(source)] = source
    return source_ids, lengths
