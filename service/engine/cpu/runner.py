"""Runs the encoder and the decoder step with ONNX Runtime on the CPU (`Runner`).

Decides nothing: what runs, for whom and what follows from it is decided by the loop, the scheduler and the search.
"""

from collections.abc import Sequence
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.bundle import Bundle, BundleError
from model.manifest import GPU_PRECISION
from service.engine.beam import Candidates
from service.engine.cpu.cache import CpuCache, CpuEncoded
from service.engine.cpu.session import load_shortlist, open_session
from service.engine.cpu.vocabulary import LiveVocabulary, Projection
from service.engine.faults import explained
from service.engine.job import Forced, HeadWeights
from service.engine.key_value_cache import CacheShape
from service.engine.runner import (
    Floats,
    Ints,
    StepGraph,
    check_limits,
    layer_names,
    no_head_weights,
    no_scorer,
    pad,
    shortest_source,
)
from service.engine.scheduler import SchedulerConfig
from service.engine.scoring import scored_shape
from service.engine.spec import EngineSpec
from service.engine.steering import NO_EDITS, Edits

_MAX_LAYOUTS = 128  # bindings that are kept of a state; of the included model 16 kB each

_LARGE_LOGITS = 16 << 20  # bytes of a step's logits, whose memory is given back when steps have become smaller
_SMALL_STEPS = 8  # in a row: groups of different beams take turns

SHOWN = "num_shown"  # input of encoder and scorer: sentences, from the first on, whose attention weights are given
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
Scalar = TypeVar("Scalar", bound=np.generic)


class CpuState(CpuCache):
    """The caches of a group of sentences, the part of the vocabulary that they may use, and where all of it lies."""

    def __init__(self, shape: CacheShape, beam_size: int, vocabulary: LiveVocabulary | None) -> None:
        super().__init__(shape, beam_size)
        self.vocabulary = vocabulary  # None: all tokens
        self._bound_memory: tuple[int, ...] = ()
        self._bindings: dict[tuple[int, ...], _Binding] = {}  # by the arrays' shapes, least recently used first

    def append(self, encoded: CpuEncoded, indices: Sequence[int]) -> None:
        super().append(encoded, indices)
        if self.vocabulary is not None:
            self.vocabulary.append([encoded.sources[index] for index in indices])

    def remove(self, index: int, *, is_finite: bool = True) -> None:
        super().remove(index, is_finite=is_finite)
        if self.vocabulary is not None:
            self.vocabulary.remove(index)

    def binding(self, decoder: StepGraph, num_candidates: int) -> "_Binding":
        """Return the binding of the arrays as they lie now."""
        vocabulary = self.vocabulary
        generation, num_columns = (0, 0) if vocabulary is None else (vocabulary.generation, vocabulary.num_columns)
        memory, layout = (*self.memory, generation), (*self.layout, num_columns, num_candidates)
        if self._bound_memory != memory:  # what is kept for old memory would keep it from being freed
            self._bound_memory = memory
            self._bindings.clear()
        binding = self._bindings.pop(layout, None) or _Binding(decoder, self, num_candidates)
        self._bindings[layout] = binding
        if len(self._bindings) > _MAX_LAYOUTS:
            del self._bindings[next(iter(self._bindings))]
        return binding


class CpuRunner:
    """The graphs of one bundle on the CPU."""

    def __init__(self, bundle: Bundle, *, precision: str | None = None, num_threads: int = 1) -> None:
        """Open the graphs, or raise BundleError."""
        variant = bundle.variant(precision)
        if variant is bundle.manifest.variants.get(GPU_PRECISION):
            raise BundleError(f"{bundle.directory}: these are graphs for a GPU; choose device cuda or other graphs")
        check_limits(bundle)
        config = bundle.manifest.config
        self.profile, self.warm_up_source = bundle.manifest.profile, shortest_source(config)
        self.cache_shape = CacheShape.of(config)
        self._num_logits = bundle.manifest.num_logits
        self._cross_names = layer_names("cross", self.cache_shape.num_layers)
        self._encoder = self._opened(bundle, variant.encoder, num_threads)
        self._decoder = StepGraph.of(self._opened(bundle, variant.decoder_step, num_threads))
        self._shortlist = load_shortlist(bundle, precision)
        if self._shortlist is not None and variant.shortlist_step and variant.projection:
            self._shortlist_decoder = StepGraph.of(self._opened(bundle, variant.shortlist_step, num_threads))
            source = open_session(bundle.path(variant.projection), 1)
            outputs = dict(zip((value.name for value in source.get_outputs()), source.run(None, {}), strict=True))
            self._projection = Projection(outputs["rows"], outputs.get("scales"), outputs.get("bias"))

        self._logits_bytes = 0  # of the largest step over the whole vocabulary since memory was given back
        self._small_steps = 0  # in a row, each much smaller than that
        self._giving_back = ort.RunOptions()
        self._giving_back.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._scorer = self._opened(bundle, variant.scorer, num_threads) if variant.scorer else None
        self._bundle, self._variant = bundle, variant

    @property
    def has_scorer(self) -> bool:
        return self._scorer is not None

    @classmethod
    def open(cls, spec: EngineSpec) -> Self:
        """Return the runner of an engine process, or raise BundleError."""
        bundle = Bundle.load(spec.bundle_dir, manifest_sha256=spec.manifest_sha256)
        return cls(bundle, precision=spec.precision, num_threads=spec.num_threads)

    @staticmethod
    def _opened(bundle: Bundle, name: str, num_threads: int) -> ort.InferenceSession:
        return open_session(bundle.path(name), num_threads, bundle.manifest.num_logits)

    def budgets(self, wanted: SchedulerConfig) -> SchedulerConfig:
        """Return the wanted budgets unchanged: the operator decides how much memory they may take."""
        return wanted

    def new_state(self, beam_size: int, *, use_shortlist: bool = False) -> CpuState:
        vocabulary = None
        if use_shortlist and self._shortlist is not None:
            vocabulary = LiveVocabulary(self._shortlist, self._projection)
        return CpuState(self.cache_shape, beam_size, vocabulary)

    def encode(self, sources: Sequence[Sequence[int]]) -> CpuEncoded:
        source_ids, lengths = pad(sources)
        with explained():
            arrays = self._encoder.run(self._cross_names, {"source_ids": source_ids, "source_lengths": lengths})
        return CpuEncoded(arrays, lengths, sources)

    def score(self, encoded: Sequence[tuple[CpuEncoded, int]], translations: Sequence[Sequence[int]]) -> list[Forced]:
        if self._scorer is None:
            raise no_scorer(self._bundle)
        lengths = np.array([batch.lengths[index] for batch, index in encoded], np.int32)
        num_columns, num_steps = (
            min(length, self._bundle.manifest.config.max_positions)
            for length in scored_shape(int(lengths.max()), max(map(len, translations)) + 1)
        )
        ids = np.zeros((len(encoded), num_steps + 1), np.int64)  # each decoder input, and the token after it
        for row, translation in zip(ids, translations, strict=True):
            row[: len(translation) + 2] = (self.profile.start, *translation, self.profile.end)
        feeds = {"tokens": ids[:, :-1], "next_tokens": ids[:, 1:], "source_lengths": lengths}
        for part, name in enumerate(self._cross_names):
            feeds[name] = self._padded([batch.arrays[part][index] for batch, index in encoded], lengths, num_columns)
        with explained():
            log_probs, attention = self._scorer.run(["log_probs", "attention"], feeds)
        return [
            Forced(
                tuple(log_probs[row, : len(translation) + 1].tolist()),
                attention[row, : len(translation) + 1, : lengths[row]].astype(np.float16).tobytes(),
            )
            for row, translation in enumerate(translations)
        ]

    def head_weights(self, source: Sequence[int], translation: Sequence[int]) -> HeadWeights:
        if self._scorer is None or not self._variant.attention_weights:
            raise no_head_weights(self._bundle)
        lengths, shown = np.array([len(source)], np.int32), np.array([1])
        tokens = np.array([[self.profile.start, *translation]])
        next_tokens = np.array([[*translation, self.profile.end]])
        given = {"source_ids": np.array([source]), "tokens": tokens, "next_tokens": next_tokens}
        given |= {"source_lengths": lengths, SHOWN: shown}
        with explained():
            given |= _all_outputs(self._encoder, given)
            given |= _all_outputs(self._scorer, given)
        num_heads, config = self.cache_shape.num_heads, self._bundle.manifest.config
        layers = {"self": config.num_encoder_layers, "cross": config.num_decoder_layers}
        found = {
            kind: np.stack([given[f"{kind}_weights_{layer}"] for layer in range(number)])
            for kind, number in layers.items()
        }
        encoder, cross = (np.rint(found[kind] * 255).astype(np.uint8).tobytes() for kind in layers)
        return HeadWeights(num_heads, encoder, cross)

    def _padded(self, sentences: Sequence[Floats], lengths: npt.NDArray[np.int32], num_columns: int) -> Floats:
        """Keys or values [H, S, d] of sentences with zeros beyond their lengths: [B, H, num_columns, d]."""
        shape = self.cache_shape
        padded = np.zeros((len(sentences), shape.num_heads, num_columns, shape.d_head), np.float32)
        for row, sentence, length in zip(padded, sentences, lengths, strict=True):
            row[:, :length] = sentence[:, :length]
        return padded

    def decode_step(
        self, tokens: Ints, scores: Floats, state: CpuState, edits: Edits | None = None, *, num_candidates: int
    ) -> Candidates:
        state.prepare()
        vocabulary = state.vocabulary
        decoder = self._decoder if vocabulary is None else self._shortlist_decoder
        num_columns = self._num_logits if vocabulary is None else vocabulary.num_columns
        binding = state.binding(decoder, min(num_candidates, state.beam_size * num_columns))
        if edits is not None or binding.is_edited:
            binding.edit(edits if vocabulary is None or edits is None else vocabulary.in_columns(edits), num_columns)
        binding.tokens[:] = tokens
        binding.scores[:, :, 0] = scores
        with explained():
            options = self._run_options(tokens.size) if vocabulary is None else None
            decoder.session.run_with_iobinding(binding.io, options)
        parents, found = np.divmod(binding.ids, num_columns)
        tokens = found if vocabulary is None else vocabulary.tokens.take(found)
        return Candidates(binding.best, tokens, parents, binding.check)

    def _run_options(self, num_rows: int) -> ort.RunOptions | None:
        """Return how to run a step of so many rows: the last of several small ones gives back a large one's memory."""
        logits_bytes = 4 * num_rows * self._num_logits
        is_small = self._logits_bytes > max(_LARGE_LOGITS, 4 * logits_bytes)
        self._small_steps = self._small_steps + 1 if is_small else 0
        if self._small_steps < _SMALL_STEPS:
            self._logits_bytes = max(self._logits_bytes, logits_bytes)
            return None
        self._logits_bytes, self._small_steps = logits_bytes, 0
        return self._giving_back


def _all_outputs(graph: ort.InferenceSession, given: Arrays) -> Arrays:
    """Return all outputs of a graph by name; of what is given it takes what it knows."""
    inputs = [*graph.get_inputs(), *graph.get_overridable_initializers()]
    names = [value.name for value in graph.get_outputs()]
    feeds = {value.name: given[value.name] for value in inputs}
    return dict(zip(names, graph.run(names, feeds), strict=True))


class _Binding:
    """The memory that the decoder graph reads and writes, for arrays of certain shapes.

    Nearly all of it is the cache's own, so that a step copies nothing but tokens and scores.  To tell ONNX Runtime an
    address takes about 10 us, so a binding is kept and, when the shapes come again, used again.
    """

    def __init__(self, decoder: StepGraph, state: CpuState, width: int) -> None:
        num_sentences, beam_size = state.num_sentences, state.beam_size
        self.io = decoder.session.io_binding()
        self._keep: list[npt.NDArray[Any]] = []  # ONNX Runtime holds addresses, not references
        self.tokens = self._input("tokens", np.zeros((num_sentences, beam_size), np.int64))
        self.scores = self._input("scores", np.zeros((num_sentences, beam_size, 1), np.float32))
        self._input("past_lengths", state.past_lengths)
        self._input("columns", state.columns)
        self._input("self_mask", state.mask)
        self._input("source_lengths", state.source_lengths)
        if state.column_steps is not None:
            self._input("column_steps", state.column_steps)
        self.is_edited = False
        self._decoder = decoder
        self._bind_edits(NO_EDITS, 0)
        self._input("num_candidates", np.array([width], np.int64))
        for name, array in zip(layer_names("cross", state.shape.num_layers), state.cross_arrays(), strict=True):
            self._input(name, array)
        own_names = layer_names("self", state.shape.num_layers, state.shape.cache_parts)
        for name, array in zip(own_names, state.self_arrays(), strict=True):
            self._input(name, array)
            self._output(f"{name}_out", array)  # in place: the graph writes one column a hypothesis
        if state.vocabulary is not None:
            self._input("vocabulary_weights", state.vocabulary.weights)
            if state.vocabulary.scales is not None:
                self._input("vocabulary_scales", state.vocabulary.scales)
            self._input("vocabulary_mask", state.vocabulary.mask)
        self.best = self._output("candidate_scores", np.zeros((num_sentences, width), np.float32))
        self.ids = self._output("candidate_ids", np.zeros((num_sentences, width), np.int64))
        self.check = self._output("check", np.zeros(num_sentences, np.float32))

    def edit(self, edits: Edits | None, num_columns: int) -> None:
        """Have the next steps change these logits, until other ones are given."""
        self.is_edited = edits is not None
        self._bind_edits(edits or NO_EDITS, num_columns)

    def _bind_edits(self, edits: Edits, num_columns: int) -> None:
        self._edits = self._decoder.edit_inputs(edits, num_columns)  # kept: ONNX Runtime holds addresses
        for name, array in self._edits.items():
            self.io.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def _input(self, name: str, array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        self.io.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        self._keep.append(array)
        return array

    def _output(self, name: str, array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        self.io.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        self._keep.append(array)
        return array
