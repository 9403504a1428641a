"""The two graphs run in a plain way, for calibration and verification: caches are copied at every step.

Knows the graphs' inputs and outputs; the serving engine has its own, faster runner.
Axes: B sentences, S source, T target, V vocabulary, C candidates.
"""

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort

from export.builder import Array, WeightFile
from export.transformer_graph import cache_names, cross_names
from model.config import ModelConfig

MASKED = -1e9  # added to the logits of columns that hold no token of a hypothesis
HALF_MASKED = -3e4  # in float16, where 1e9 would be infinite
BATCH_SENTENCES = 16
LARGE_BYTES = 64 << 20  # of weights; larger ones are not packed in memory

Values = dict[str, Array]  # by name


def open_session(path: Path) -> ort.InferenceSession:
    """Open a session on the CPU with one thread, so that results do not depend on the machine's load.

    Results of a large float model differ in their last bits with the number of rows: its weights are not packed.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors; caches that are copied, not written in place, are meant so here
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Unsigned weights: int8 products are then exact on every x86 CPU, where some saturate; slower, which is fine here.
    options.add_session_config_entry("session.x64quantprecision", "1")
    disabled: list[str] = []
    weights = path.with_name(WeightFile.name)
    if weights.exists() and weights.stat().st_size > LARGE_BYTES:
        with suppress(AttributeError):  # elsewhere than with glibc; the projection is transposed in several copies now
            ctypes.CDLL(None).malloc_trim(0)
        # The weights stay in their file, which is mapped: no packed copies, and no transposed table of floats.
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        nodes = onnx.load(str(path), load_external_data=False).graph.node
        disabled = [] if any(node.op_type == "MatMulIntegerToFloat" for node in nodes) else ["ConstantFolding"]
    providers = ["CPUExecutionProvider"]
    return ort.InferenceSession(str(path), options, providers=providers, disabled_optimizers=disabled)


class GreedyStep(NamedTuple):
    """One step of several sentences."""

    tokens: Array  # int64 [B]
    is_live: Array  # bool [B]: whether a sentence had not ended before
    values: Values  # all outputs of the step graph but the caches


class GraphRunner:
    """An encoder and a decoder step that belong together."""

    def __init__(self, encoder: Path, decoder_step: Path, config: ModelConfig) -> None:
        self._encoder = open_session(encoder)
        self._decoder_step = open_session(decoder_step)
        self._config = config
        inputs = self._decoder_step.get_inputs()
        self._input_types = {value.name: value.type for value in inputs}
        caches = cache_names(config, 0)
        self._cache_shape = next(value.shape for value in inputs if value.name == caches[0])
        is_half = self._input_types["self_mask"] == "tensor(float16)"
        self._dtype: type[np.floating[Any]] = np.float16 if is_half else np.float32
        self._masked = HALF_MASKED if is_half else MASKED

    def encode(self, source: Array, source_lengths: Array) -> Values:
        """Return keys and values by the step graph's names, of source ids [B, S], padded on the right."""
        outputs = _encode(self._encoder, source, source_lengths)
        if "cross" not in outputs:
            return outputs
        names = [name for layer in range(self._config.num_decoder_layers) for name in cross_names(layer)]
        return dict(zip(names, outputs["cross"], strict=True))

    def step(self, tokens: Array, past_length: int, num_candidates: int, memory: Values) -> Values:
        """Return the outputs of the step graph for one token of each sentence, all at the same position.

        `memory` has `source_lengths`, the encoder's outputs, and caches, which the step's own replace.
        """
        num_sentences = len(tokens)
        num_columns = memory[cache_names(self._config, 0)[0]].shape[2]
        mask = np.where(np.arange(num_columns) <= past_length, 0.0, self._masked).astype(self._dtype)
        feeds = {
            "tokens": tokens[:, None],
            "scores": np.zeros((num_sentences, 1, 1), np.float32),
            "past_lengths": np.full((num_sentences, 1), past_length),
            "columns": np.full(num_sentences, past_length),
            "new_places": np.array([[n, 0, past_length, 0] for n in range(num_sentences)])[:, None, None, None],
            "column_steps": np.tile(np.arange(num_columns), (num_sentences, 1)),
            "self_mask": np.tile(mask, (num_sentences, 1, 1, 1)),
            "edit_places": np.zeros(0, np.int64),
            "edit_values": np.zeros(0, np.float32),
            "edit_factors": np.ones(0, np.float32),
            "num_candidates": np.array([num_candidates]),
        }
        given = {name: value for name, value in (feeds | memory).items() if name in self._input_types}
        outputs = _run(self._decoder_step, given)
        names = [name for name in outputs if name.endswith("_out") and name.removesuffix("_out") in memory]
        memory |= {name.removesuffix("_out"): outputs.pop(name) for name in names}
        return outputs

    def empty_caches(self, num_sentences: int, num_columns: int) -> Values:
        """Return self-attention caches with room for `num_columns` tokens a sentence."""
        layers = range(self._config.num_decoder_layers)
        names = [name for layer in layers for name in cache_names(self._config, layer)]
        shape = num_sentences, self._config.num_heads, num_columns, *self._cache_shape[3:]
        return {name: np.zeros(shape, self._dtype) for name in names}

    def forced_log_probs(self, source: Array, source_lengths: Array, targets: Array) -> Iterator[Array]:
        """Yield log-probabilities [B, V] of every token after each prefix of the given target inputs [B, T]."""
        caches = self.empty_caches(*targets.shape)
        memory = {"source_lengths": source_lengths, **self.encode(source, source_lengths), **caches}
        num_logits = self._config.num_logits
        for position in range(targets.shape[1]):
            outputs = self.step(targets[:, position], position, num_logits, memory)
            log_probs = np.empty((len(targets), num_logits), np.float32)
            order, values = outputs["candidate_ids"], outputs["candidate_scores"]  # K is 1: ids are tokens
            np.put_along_axis(log_probs, order, values, axis=1)
            yield log_probs[:, : self._config.num_target_tokens]

    def greedy(
        self, sentences: Sequence[Sequence[int]], max_tokens: int, prefix: Sequence[int] = ()
    ) -> list[list[int]]:
        """Translate sentences greedily behind a prefix, and return the tokens of each, end-of-sentence included."""
        source, lengths = padded(sentences)
        steps = list(self.greedy_steps(self.encode(source, lengths), lengths, max_tokens, prefix))
        return [
            [int(step.tokens[number]) for step in steps if step.is_live[number]] for number in range(len(sentences))
        ]

    def greedy_steps(
        self, encoded: Values, source_lengths: Array, max_tokens: int, prefix: Sequence[int] = ()
    ) -> Iterator[GreedyStep]:
        """Translate what `encode` returned, step by step, until the last sentence ends."""
        num_sentences = len(source_lengths)
        memory = {"source_lengths": source_lengths, **encoded, **self.empty_caches(num_sentences, max_tokens)}
        tokens, is_live = np.full(num_sentences, self._config.start_id), np.ones(num_sentences, bool)
        for position in range(max_tokens):
            values = self.step(tokens, position, 1, memory)
            is_given = position < len(prefix)
            tokens = np.full(num_sentences, prefix[position]) if is_given else values["candidate_ids"][:, 0]
            yield GreedyStep(tokens, is_live, values)
            is_live = is_live & (tokens != self._config.eos_id)
            if not is_live.any():
                return


class ScorerRunner:
    """A scorer, with the encoder that belongs to it."""

    def __init__(self, scorer: Path, encoder: Path) -> None:
        self._scorer = open_session(scorer)
        self._encoder = open_session(encoder)

    def score(self, source: Array, source_lengths: Array, targets: Array, next_tokens: Array) -> tuple[Array, Array]:
        """Return log-probabilities [B, T] of the tokens that follow the decoder's inputs, and attention [B, T, S]."""
        memory = _encode(self._encoder, source, source_lengths)
        given = {"tokens": targets, "next_tokens": next_tokens}
        if "cross" in memory:  # of graphs for a GPU
            names = [value.name for value in self._scorer.get_inputs() if value.name.startswith("cross_")]
            is_kept = np.arange(source.shape[1]) < source_lengths[:, None]
            mask = np.where(is_kept, 0.0, HALF_MASKED).astype(memory["cross"].dtype)
            memory = {"source_mask": mask[:, None, None], **dict(zip(names, memory["cross"], strict=True))}
        else:
            memory["source_lengths"] = source_lengths
        outputs = _run(self._scorer, given | memory)
        return outputs["log_probs"], outputs["attention"]


def in_batches(sentences: Iterable[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    """Yield the sentences in lists of `BATCH_SENTENCES`."""
    rest = iter(sentences)
    while batch := list(islice(rest, BATCH_SENTENCES)):
        yield batch


def longest_target(config: ModelConfig, sentences: Sequence[Sequence[int]], most: int) -> int:
    """Return how long translations may be made: a model without training never ends one."""
    return min(most, config.max_positions, 2 * max(map(len, sentences)) + 8)


def padded(sentences: Sequence[Sequence[int]]) -> tuple[Array, Array]:
    """Return source ids [B, S] with zeros on the right, and lengths int32 [B]."""
    lengths = np.array([len(sentence) for sentence in sentences], np.int32)
    source = np.zeros((len(sentences), max(lengths, default=0)), np.int64)
    source[np.arange(source.shape[1]) < lengths[:, None]] = np.concatenate(sentences)
    return source, lengths


def _encode(encoder: ort.InferenceSession, source: Array, source_lengths: Array) -> Values:
    given = {"source_ids": source, "source_lengths": source_lengths}
    if any(value.name == "bounds" for value in encoder.get_inputs()):  # of a graph for a GPU
        starts = np.arange(len(source) + 1) * source.shape[1]
        given["bounds"] = np.concatenate([source_lengths, starts, starts]).astype(np.int32)
    outputs = _run(encoder, given)
    return {name: value for name, value in outputs.items() if not name.startswith("self_weights")}


def _run(session: ort.InferenceSession, feeds: Values) -> Values:
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))
