"""Runs the encoder and the decoder step with ONNX Runtime on the CPU (`Runner`).

Decides nothing: what runs, for whom and what follows from it is decided by the loop, the scheduler and the search.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.bundle import Bundle, BundleError
from model.manifest import GPU_PRECISION
from service.engine.beams import Candidates
from service.engine.cpu.instructions import cpu_flags, multiplies_int8_exactly
from service.engine.cpu.kv_cache import CpuCache, CpuEncoded
from service.engine.faults import explained
from service.engine.logits import NO_EDITS, Edits
from service.engine.runner import (
    CacheShape,
    Floats,
    Ints,
    StepGraph,
    check_limits,
    layer_names,
    no_head_weights,
    no_scorer,
    pad,
    scored_shape,
    shortest_source,
)
from service.engine.wire import EngineSpec, Forced, HeadWeights, SchedulerConfig

SHOWN = "num_shown"  # input of encoder and scorer: sentences, from the first on, whose attention weights are given
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
# ONNX Runtime itself applies it to every x86 CPU, also to those that multiply exactly without it.
EXACT_INT8 = "session.x64quantprecision"
# Joins a sum with the normalisation behind it: on a CPU five times as slow as the two apart (0.76 ms against 0.15).
_SLOW_FUSION = "SkipLayerNormFusion"


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
        self._encoder = open_session(bundle.path(variant.encoder), num_threads)
        self._decoder = StepGraph.of(open_session(bundle.path(variant.decoder_step), num_threads))
        self._scorer = open_session(bundle.path(variant.scorer), num_threads) if variant.scorer else None
        self._bundle, self._variant = bundle, variant

    @property
    def has_scorer(self) -> bool:
        return self._scorer is not None

    @classmethod
    def open(cls, spec: EngineSpec) -> Self:
        """Return the runner of an engine process, or raise BundleError."""
        bundle = Bundle.load(spec.bundle_dir, manifest_sha256=spec.manifest_sha256)
        return cls(bundle, precision=spec.precision, num_threads=spec.num_threads)

    def budgets(self, wanted: SchedulerConfig) -> SchedulerConfig:
        """Return the wanted budgets unchanged: the operator decides how much memory they may take."""
        return wanted

    def new_state(self, beam_size: int, *, use_shortlist: bool = False) -> CpuCache:
        """Return an empty cache; these graphs score all tokens, whatever a shortlist names."""
        return CpuCache(self.cache_shape, beam_size)

    def encode(self, sources: Sequence[Sequence[int]]) -> CpuEncoded:
        source_ids, lengths = pad(sources)
        with explained():
            arrays = self._encoder.run(self._cross_names, {"source_ids": source_ids, "source_lengths": lengths})
        return CpuEncoded(arrays, lengths)

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
        self, tokens: Ints, scores: Floats, state: CpuCache, edits: Edits | None = None, *, num_candidates: int
    ) -> Candidates:
        state.prepare()
        num_sentences, num_logits, layers = len(tokens), self._num_logits, self.cache_shape.num_layers
        caches = dict(zip(layer_names("self", layers, self.cache_shape.cache_parts), state.self_arrays(), strict=True))
        inputs: Arrays = {
            "tokens": tokens,
            "scores": scores[:, :, None],
            "past_lengths": state.past_lengths,
            "columns": state.columns,
            "self_mask": state.mask,
            "source_lengths": state.source_lengths,
            "num_candidates": np.array([min(num_candidates, state.beam_size * num_logits)]),
            **({} if state.column_steps is None else {"column_steps": state.column_steps}),
            **self._decoder.edit_inputs(edits or NO_EDITS, num_logits),
            **dict(zip(self._cross_names, state.cross_arrays(), strict=True)),
            **caches,
        }
        shape = num_sentences, int(inputs["num_candidates"][0])
        best, ids, check = np.zeros(shape, np.float32), np.zeros(shape, np.int64), np.zeros(num_sentences, np.float32)
        outputs: Arrays = {"candidate_scores": best, "candidate_ids": ids, "check": check}
        outputs |= {f"{name}_out": array for name, array in caches.items()}  # in place: a column for each hypothesis
        binding = self._decoder.session.io_binding()
        inputs = {name: np.ascontiguousarray(array) for name, array in inputs.items()}  # kept: it holds addresses alone
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        for name, array in outputs.items():
            binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(array))
        with explained():
            self._decoder.session.run_with_iobinding(binding)
        parents, found = np.divmod(ids, num_logits)
        return Candidates(best, found, parents, check)


def _all_outputs(graph: ort.InferenceSession, given: Arrays) -> Arrays:
    """Return all outputs of a graph by name; of what is given it takes what it knows."""
    inputs = [*graph.get_inputs(), *graph.get_overridable_initializers()]
    names = [value.name for value in graph.get_outputs()]
    feeds = {value.name: given[value.name] for value in inputs}
    return dict(zip(names, graph.run(names, feeds), strict=True))


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
