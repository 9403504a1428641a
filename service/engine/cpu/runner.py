"""Runs the encoder and the decoder step with ONNX Runtime on the CPU (`Runner`), with caches that it reads and writes.

A slot of a cache holds one sentence; slots are numbered 0 .. num_sentences - 1 without holes, as in `BeamSearch`.  The
hypotheses of a sentence share its columns: a step adds one column for each hypothesis, and a mask says which columns
are a hypothesis' own past.  A beam that changes its order thus moves a few rows of the mask and no keys.  Columns that
no hypothesis attends to any more are removed now and then (compacting), at moments that depend on the sentence alone:
the place of its columns decides the order of sums, and so the last bits of a result that must not depend on the batch.

Axes: A arrays, L layers, B sentences, N slots, H heads, K hypotheses of a sentence, C columns.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.bundle import Bundle, BundleError
from model.config import ModelConfig
from model.manifest import GPU_PRECISION
from service.engine.beams import Candidates, Floats, Ints
from service.engine.choice import cpu_flags, multiplies_int8_exactly
from service.engine.device_errors import explained
from service.engine.logits import NO_EDITS, Edits
from service.engine.runner import (
    NO_HEAD_WEIGHTS,
    NO_SCORER,
    BundleRunner,
    StepGraph,
    layer_names,
    pad,
    teacher_forced,
    token_scores,
)
from service.engine.wire import HeadWeights, TokenScores, scored_shape

SHOWN = "num_shown"  # input of encoder and scorer: sentences, from the first on, whose attention weights are given
Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = dict[str, Array]
# ONNX Runtime itself applies it to every x86 CPU, also to those that multiply exactly without it.
EXACT_INT8 = "session.x64quantprecision"
# Joins a sum with the normalisation behind it: on a CPU five times as slow as the two apart (0.76 ms against 0.15).
_SLOW_FUSION = "SkipLayerNormFusion"

MASKED = np.float32(-1e9)  # added to the product of a query and a key that do not belong together
# Columns come in multiples of these: a ragged end would change the order of a sum in ONNX Runtime's attention.
SELF_COLUMNS = 16
CROSS_COLUMNS = 8
_STEPS_BETWEEN_COMPACTIONS = 4  # of a sentence, about
_SMALLEST_SLACK = 16  # columns that are free after compacting, at least
_KEPT_SLOTS, _KEPT_COLUMNS = 32, 64  # of an empty cache that is kept


class CpuEncoded(NamedTuple):
    """What the encoder returns for some sentences."""

    arrays: Sequence[Floats]  # key and value of layer 0, of layer 1, ...: [B, H, S, d_head]
    lengths: npt.NDArray[np.int32]  # [B]

    @property
    def num_columns(self) -> int:
        """S."""
        return int(self.arrays[0].shape[2])


class CpuCache:
    """The caches of live sentences that decode together: one beam size, sources of similar length."""

    def __init__(self, config: ModelConfig, beam_size: int) -> None:
        self.beam_size = beam_size
        self.num_sentences = 0
        self._slack = _round_up(max(_SMALLEST_SLACK, _STEPS_BETWEEN_COMPACTIONS * beam_size), SELF_COLUMNS)
        num_layers, H, d = config.num_decoder_layers, config.num_heads, config.d_head
        num_own = len(config.cache_parts) * num_layers
        self._own = np.zeros((num_own, 0, H, self._slack, d), np.float32)  # [A, N, H, C, d]
        self._cross = np.zeros((2 * num_layers, 0, H, CROSS_COLUMNS, d), np.float32)
        self._mask = np.zeros((1, 0, beam_size, self._slack, 1), np.float32)  # [1, N, K, C, 1]
        self._steps = np.zeros((1, 0, 1, self._slack, 1), np.int64)  # [1, N, 1, C, 1]
        self.columns: Ints = np.zeros(0, np.int64)  # [B]: filled ones; the next step writes the K behind them
        self._limits: Ints = np.zeros(0, np.int64)  # [B]: with so many columns, a sentence is compacted
        self.past_lengths: Ints = np.zeros((0, 1), np.int64)  # [B, 1]: decoder steps behind each sentence
        self.source_lengths: npt.NDArray[np.int32] = np.zeros(0, np.int32)  # [B]: columns of cross-attention

    @property
    def has_grown(self) -> bool:
        """Whether an empty cache of this size is worth replacing by a new one."""
        return self._own.shape[1] > _KEPT_SLOTS or max(self._own.shape[3], self._cross.shape[3]) > _KEPT_COLUMNS

    def self_arrays(self) -> list[Floats]:
        """Return L or 2 L arrays [B, H, C, d_head], contiguous."""
        return list(self._own[:, : self.num_sentences])

    def cross_arrays(self) -> list[Floats]:
        """Return 2 L arrays [B, H, C, d_head], contiguous."""
        return list(self._cross[:, : self.num_sentences])

    @property
    def mask(self) -> Floats:
        """[B, 1, K, C]: 0 where a hypothesis attends to a column, `MASKED` elsewhere."""
        return self._mask[0, : self.num_sentences, None, :, :, 0]

    @property
    def column_steps(self) -> Ints:
        """[B, C]: the decoder step that wrote each column."""
        return self._steps[0, : self.num_sentences, 0, :, 0]

    def append(self, encoded: CpuEncoded, indices: Sequence[int]) -> None:
        """Give some of the encoder's sentences the next slots, in this order."""
        chosen, first = list(indices), self.num_sentences
        lengths = encoded.lengths[chosen]
        self.num_sentences += len(chosen)
        self.columns = np.append(self.columns, np.zeros(len(chosen), np.int64))
        self._limits = np.append(self._limits, np.full(len(chosen), self._slack))
        self.past_lengths = np.append(self.past_lengths, np.zeros((len(chosen), 1), np.int64), axis=0)
        self.source_lengths = np.append(self.source_lengths, lengths)
        self._fit(num_used=first)
        new, width = slice(first, self.num_sentences), int(lengths.max())
        self.mask[new] = MASKED
        for target, source in zip(self._cross, encoded.arrays, strict=True):
            target[new, :, :width] = source[chosen, :, :width]

    def remove(self, index: int, *, is_finite: bool = True) -> None:
        """Free a slot, into which the last sentence moves; what no mask lets through must be finite."""
        if not is_finite:
            self._own[:, index] = self._cross[:, index] = 0.0
        last = self.num_sentences - 1
        for array in (*self._own, *self._cross, *self._mask, *self._steps):  # there may be no memory for more at once
            array[index] = array[last]
        for numbers in (self.columns, self._limits, self.past_lengths, self.source_lengths):
            numbers[index] = numbers[last]
        self.num_sentences = last
        self.columns, self._limits = self.columns[:last], self._limits[:last]
        self.past_lengths, self.source_lengths = self.past_lengths[:last], self.source_lengths[:last]

    def prepare(self) -> None:
        """Make room for the K columns of the next step, and let each hypothesis attend to its own of them."""
        full = (self.columns + self.beam_size > self._limits).nonzero()[0].tolist()
        for index in full:
            self._compact(index)
        if full:
            self._fit(num_used=self.num_sentences)
        slots, hypotheses = np.arange(self.num_sentences)[:, None], np.arange(self.beam_size)
        new = self.columns[:, None] + hypotheses  # [B, K]
        self._mask[0, slots, hypotheses, new, 0] = 0.0
        self._steps[0, slots, 0, new, 0] = self.past_lengths

    def advance(self, parents: Ints) -> None:
        """Count the columns that a decoder step has written, and give every hypothesis its parent's past, [B, K]."""
        self.columns += self.beam_size
        self.past_lengths += 1
        if self.beam_size > 1:
            rows = self._mask[0, : self.num_sentences].reshape(-1, self._mask.shape[3])  # [B * K, C], a view
            first = np.arange(self.num_sentences)[:, None] * self.beam_size
            rows[:] = rows.take((first + parents).ravel(), axis=0)

    def _compact(self, index: int) -> None:
        """Close the gaps that columns without a hypothesis leave; the others keep their order."""
        mask = self._mask[0, index, :, :, 0]  # [K, C], a view
        used = (mask.max(axis=0) == 0.0).nonzero()[0]
        columns = self._own[:, index]  # [A, H, C, d], a view
        columns[:, :, : used.size] = columns[:, :, used]
        mask[:, : used.size] = mask[:, used]
        mask[:, used.size :] = MASKED
        steps = self._steps[0, index, 0, :, 0]  # [C], a view
        steps[: used.size] = steps[used]
        self.columns[index] = used.size
        self._limits[index] = _round_up(used.size + self._slack, SELF_COLUMNS)

    def _fit(self, num_used: int) -> None:
        """Make all arrays as wide as the widest live sentence needs, and narrower only where that spares half."""
        own = _fitting(self._own.shape[3], int(self._limits.max()))
        cross = _fitting(self._cross.shape[3], _round_up(int(self.source_lengths.max()), CROSS_COLUMNS))
        self._own = _resized(self._own, num_used, self.num_sentences, own)
        self._cross = _resized(self._cross, num_used, self.num_sentences, cross)
        self._mask = _resized(self._mask, num_used, self.num_sentences, own, MASKED)
        self._steps = _resized(self._steps, num_used, self.num_sentences, own)


class CpuRunner(BundleRunner):
    """The graphs of one bundle on the CPU."""

    def __init__(self, bundle: Bundle, *, precision: str | None = None, num_threads: int = 1) -> None:
        """Open the graphs, or raise BundleError."""
        variant = bundle.variant(precision)
        if variant is bundle.manifest.variants.get(GPU_PRECISION):
            raise BundleError(f"{bundle.directory}: these are graphs for a GPU; choose device cuda or other graphs")
        super().__init__(bundle)
        self._num_logits = bundle.manifest.num_logits
        self._cross_names = layer_names("cross", self._config.num_decoder_layers)
        self._encoder = open_session(bundle.path(variant.encoder), num_threads)
        self._decoder = StepGraph.of(open_session(bundle.path(variant.decoder_step), num_threads))
        self._scorer = open_session(bundle.path(variant.scorer), num_threads) if variant.scorer else None
        self._shows_heads = variant.attention_weights
        self.has_scorer = self._scorer is not None

    def new_state(self, beam_size: int, *, use_shortlist: bool = False) -> CpuCache:
        """Return an empty cache; these graphs score all tokens, whatever a shortlist names."""
        return CpuCache(self._config, beam_size)

    def encode(self, sources: Sequence[Sequence[int]]) -> CpuEncoded:
        source_ids, lengths = pad(sources)
        with explained():
            arrays = self._encoder.run(self._cross_names, {"source_ids": source_ids, "source_lengths": lengths})
        return CpuEncoded(arrays, lengths)

    def score(
        self, encoded: Sequence[tuple[CpuEncoded, int]], translations: Sequence[Sequence[int]]
    ) -> list[TokenScores]:
        if self._scorer is None:
            raise self._refusal(NO_SCORER)
        lengths = np.array([batch.lengths[index] for batch, index in encoded], np.int32)
        num_columns, num_steps = (
            min(length, self._config.max_positions)
            for length in scored_shape(int(lengths.max()), max(map(len, translations)) + 1)
        )
        tokens, next_tokens = teacher_forced(self.profile, translations, num_steps)
        feeds = {"tokens": tokens, "next_tokens": next_tokens, "source_lengths": lengths}
        for part, name in enumerate(self._cross_names):
            feeds[name] = self._padded([batch.arrays[part][index] for batch, index in encoded], lengths, num_columns)
        with explained():
            log_probs, attention = self._scorer.run(["log_probs", "attention"], feeds)
        return token_scores(log_probs, attention, lengths.tolist(), translations)

    def head_weights(self, source: Sequence[int], translation: Sequence[int]) -> HeadWeights:
        if self._scorer is None or not self._shows_heads:
            raise self._refusal(NO_HEAD_WEIGHTS)
        tokens, next_tokens = teacher_forced(self.profile, [translation], len(translation) + 1)
        given = {"source_ids": np.array([source]), "tokens": tokens, "next_tokens": next_tokens}
        given |= {"source_lengths": np.array([len(source)], np.int32), SHOWN: np.array([1])}
        with explained():
            given |= _all_outputs(self._encoder, given)
            given |= _all_outputs(self._scorer, given)
        config = self._config
        found = []
        for kind, num_layers in (("self", config.num_encoder_layers), ("cross", config.num_decoder_layers)):
            weights = np.stack([given[f"{kind}_weights_{layer}"] for layer in range(num_layers)])
            found.append(np.rint(weights * 255).astype(np.uint8).tobytes())
        return HeadWeights(config.num_heads, *found)

    def _padded(self, sentences: Sequence[Floats], lengths: npt.NDArray[np.int32], num_columns: int) -> Floats:
        """Keys or values [H, S, d] of sentences with zeros beyond their lengths: [B, H, num_columns, d]."""
        padded = np.zeros((len(sentences), self._config.num_heads, num_columns, self._config.d_head), np.float32)
        for row, sentence, length in zip(padded, sentences, lengths, strict=True):
            row[:, :length] = sentence[:, :length]
        return padded

    def decode_step(
        self, tokens: Ints, scores: Floats, state: CpuCache, edits: Edits | None = None, *, num_candidates: int
    ) -> Candidates:
        state.prepare()
        num_sentences, num_logits = len(tokens), self._num_logits
        names = layer_names("self", self._config.num_decoder_layers, self._config.cache_parts)
        caches = dict(zip(names, state.self_arrays(), strict=True))
        inputs: Arrays = {
            "tokens": tokens,
            "scores": scores[:, :, None],
            "past_lengths": state.past_lengths,
            "columns": state.columns,
            "self_mask": state.mask,
            "source_lengths": state.source_lengths,
            "num_candidates": np.array([min(num_candidates, state.beam_size * num_logits)]),
            **self._decoder.edit_inputs(edits or NO_EDITS, num_logits),
            **dict(zip(self._cross_names, state.cross_arrays(), strict=True)),
            **caches,
        }
        if self._config.relative_distance:
            inputs["column_steps"] = state.column_steps
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


def _resized(slots: Array, num_used: int, num_sentences: int, num_columns: int, empty: Any = 0) -> Array:
    """Return arrays with room for the sentences and so many columns, and with what the used slots hold."""
    arrays, num_slots, rows, old_columns, width = slots.shape
    if num_sentences <= num_slots and num_columns == old_columns:
        return slots
    if num_sentences > num_slots:
        num_slots = 2 * num_sentences
    resized = np.full((arrays, num_slots, rows, num_columns, width), empty, slots.dtype)
    kept = min(num_columns, old_columns)
    resized[:, :num_used, :, :kept] = slots[:, :num_used, :, :kept]
    return resized


def _fitting(num_columns: int, needed: int) -> int:
    return needed if needed > num_columns or 2 * needed <= num_columns else num_columns


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


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
