"""The two graphs run in a plain way, for calibration and verification: caches are copied at every step.

Knows the graphs' inputs and outputs; the serving engine has its own, faster runner.
Axes: B sentences, S source, T target, V vocabulary, C candidates.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from export.builder import Array
from export.graphs import BLOCK_WIDTH, cache_names, cross_names
from model.config import ModelConfig

MASKED = -1e9  # added to the logits of columns that hold no token of a hypothesis
HALF_MASKED = -3e4  # in float16, where 1e9 would be infinite

Values = dict[str, Array]  # by name


def open_session(path: Path) -> ort.InferenceSession:
    """Open a session on the CPU with one thread, so that results do not depend on the machine's load."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors; caches that are copied, not written in place, are meant so here
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Unsigned weights: int8 products are then exact on every x86 CPU, where some saturate; slower, which is fine here.
    options.add_session_config_entry("session.x64quantprecision", "1")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class GraphRunner:
    """An encoder and a decoder step that belong together."""

    def __init__(self, encoder: Path, decoder_step: Path, config: ModelConfig, projection: Path | None = None) -> None:
        """Open the graphs; `projection` is given where the step takes a part of the vocabulary: it gets all tokens."""
        self._encoder = open_session(encoder)
        self._decoder_step = open_session(decoder_step)
        self._config = config
        self._input_types = {value.name: value.type for value in self._decoder_step.get_inputs()}
        is_half = self._input_types["self_mask"] == "tensor(float16)"
        self._dtype: type[np.floating[Any]] = np.float16 if is_half else np.float32
        self._masked = HALF_MASKED if is_half else MASKED
        self._vocabulary = _whole_vocabulary(open_session(projection)) if projection else Values()

    def encode(self, source: Array, source_lengths: Array) -> Values:
        """Return keys and values by the step graph's names, of source ids [B, S], padded on the right."""
        outputs = _run(self._encoder, {"source_ids": source, "source_lengths": source_lengths})
        if "cross" not in outputs:
            return outputs
        names = [name for layer in range(self._config.num_decoder_layers) for name in cross_names(layer)]
        return dict(zip(names, outputs["cross"], strict=True))

    def step(self, tokens: Array, past_length: int, num_candidates: int, memory: Values) -> Values:
        """Return all outputs of the step graph for one token of each sentence, all at the same position.

        `memory` has `source_lengths`, the encoder's outputs, and caches, which the step's own replace.
        """
        num_sentences = len(tokens)
        num_columns = memory[cache_names(0)[0]].shape[2]
        mask = np.where(np.arange(num_columns) <= past_length, 0.0, self._masked).astype(self._dtype)
        feeds = {
            "tokens": tokens[:, None],
            "scores": np.zeros((num_sentences, 1, 1), np.float32),
            "past_lengths": np.full((num_sentences, 1), past_length),
            "columns": np.full(num_sentences, past_length),
            "self_mask": np.tile(mask, (num_sentences, 1, 1, 1)),
            "edit_places": np.zeros(0, np.int64),
            "edit_values": np.zeros(0, np.float32),
            "edit_factors": np.ones(0, np.float32),
            "num_candidates": np.array([num_candidates]),
        }
        if self._vocabulary:
            mask = self._vocabulary["vocabulary_mask"]
            feeds |= self._vocabulary | {"vocabulary_mask": np.tile(mask, (num_sentences, 1, 1))}
        given = {name: value for name, value in (feeds | memory).items() if name in self._input_types}
        outputs = _run(self._decoder_step, given)
        memory |= {name.removesuffix("_out"): value for name, value in outputs.items() if name.endswith("_out")}
        return outputs

    def empty_caches(self, num_sentences: int, num_columns: int) -> Values:
        """Return self-attention caches with room for `num_columns` tokens a sentence."""
        shape = (num_sentences, self._config.num_heads, num_columns, self._config.d_head)
        layers = range(self._config.num_decoder_layers)
        return {name: np.zeros(shape, self._dtype) for layer in layers for name in cache_names(layer)}

    def forced_log_probs(self, source: Array, source_lengths: Array, targets: Array) -> Array:
        """Return log-probabilities [B, T, V] of every token after each prefix of the given target inputs [B, T]."""
        caches = self.empty_caches(*targets.shape)
        memory = {"source_lengths": source_lengths, **self.encode(source, source_lengths), **caches}
        num_logits = self._config.num_logits
        log_probs = np.empty((*targets.shape, num_logits), np.float32)
        for position in range(targets.shape[1]):
            outputs = self.step(targets[:, position], position, num_logits, memory)
            order, values = outputs["candidate_ids"], outputs["candidate_scores"]  # K is 1: ids are tokens
            np.put_along_axis(log_probs[:, position], order, values, axis=1)
        return log_probs[:, :, : self._config.num_target_tokens]

    def greedy(self, source_ids: list[int], max_tokens: int) -> tuple[Values, list[Values]]:
        """Translate one sentence greedily; return all outputs of the encoder and of each step."""
        lengths = np.array([len(source_ids)], np.int32)
        encoded = self.encode(np.array([source_ids]), lengths)
        memory = {"source_lengths": lengths, **encoded, **self.empty_caches(1, max_tokens)}
        token, steps = self._config.start_id, list[Values]()
        while len(steps) < max_tokens and not (steps and token == self._config.eos_id):  # which may start, too
            steps.append(self.step(np.array([token]), len(steps), 1, memory))
            token = int(steps[-1]["candidate_ids"].item())
        return encoded, steps


class ScorerRunner:
    """A scorer, with the encoder that belongs to it."""

    def __init__(self, scorer: Path, encoder: GraphRunner) -> None:
        self._scorer = open_session(scorer)
        self._encoder = encoder

    def score(self, source: Array, source_lengths: Array, targets: Array, next_tokens: Array) -> tuple[Array, Array]:
        """Return log-probabilities [B, T] of the tokens that follow the decoder's inputs, and attention [B, T, S]."""
        memory = self._encoder.encode(source, source_lengths)
        given = {"tokens": targets, "next_tokens": next_tokens, "source_lengths": source_lengths}
        outputs = _run(self._scorer, given | memory)
        return outputs["log_probs"], outputs["attention"]


def _whole_vocabulary(projection: ort.InferenceSession) -> Values:
    """Inputs of the shortlist step that allow every token; further columns fill the last block."""
    outputs = _run(projection, {})
    rows = outputs["rows"]
    spare = -len(rows) % BLOCK_WIDTH  # graphs of format 2 have any number of rows
    mask = np.pad(outputs.get("bias", np.zeros(len(rows), np.float32)), (0, spare), constant_values=MASKED)
    columns = {"vocabulary_weights": np.pad(rows.T, ((0, 0), (0, spare))), "vocabulary_mask": mask[None, None]}
    scales = {"vocabulary_scales": np.pad(outputs["scales"], (0, spare))} if "scales" in outputs else {}
    return columns | scales


def _run(session: ort.InferenceSession, feeds: Values) -> Values:
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))
