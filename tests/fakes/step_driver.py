"""Runs a decoder-step graph as the engine does: caches bound in place, the hypotheses of a sentence in one cache.

Keeps to the plain way otherwise: each step takes the next K columns, and nothing is ever squeezed out.
Axes: B sentences, K hypotheses of a sentence, T cache columns, V vocabulary, C candidates.
"""

import atexit
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import numpy as np
import onnxruntime as ort

from export.builder import Array
from export.graphs import DECODER_STEP_NAME
from export.runner import MASKED, Values, open_session
from export.transformer_graph import cache_names
from model.config import BOS_ID, ModelConfig, NormPlacement
from tests.fakes.tiny_model import TinyGraphs, padded, tiny_graphs

OUTPUTS = ["candidate_scores", "candidate_ids", "check"]
Edit = tuple[int, int, int]  # sentence, hypothesis, token


class StepDriver:
    def __init__(
        self, decoder_step: Path, config: ModelConfig, num_sentences: int, beam: int, num_columns: int
    ) -> None:
        self._session = open_session(decoder_step)
        self._num_logits = config.num_logits
        self.past_lengths = np.zeros((num_sentences, 1), np.int64)
        self.columns = np.zeros(num_sentences, np.int64)  # filled, of each sentence
        self.mask = np.full((num_sentences, 1, beam, num_columns), MASKED, np.float32)
        shape = (num_sentences, config.num_heads, num_columns, config.d_head)
        names = [name for layer in range(config.num_decoder_layers) for name in cache_names(config, layer)]
        self.caches = {name: np.full(shape, 1e3, np.float32) for name in names}  # what is masked must not matter

    def step(
        self,
        tokens: Array,
        memory: Values,
        *,
        scores: Array | None = None,
        candidates: int | None = None,
        edits: Mapping[Edit, float] | None = None,
        penalties: Mapping[Edit, float] | None = None,
    ) -> Values:
        """One token for every hypothesis.

        Args:
            tokens: [B, K].
            memory: the cross keys and values, and `source_lengths`.
            scores: [B, K]; zeros if not given.
            candidates: C; all K * V of a sentence if not given.
            edits: what is added to logits.
            penalties: what they are divided by (positive ones) and multiplied by (negative ones) before that.

        Returns:
            Those of `OUTPUTS`.
        """
        (num_sentences, beam), edits, penalties = tokens.shape, edits or {}, penalties or {}
        given = sorted({*edits, *penalties})
        own = self.columns[:, None] + np.arange(beam)  # [B, K]
        np.put_along_axis(self.mask, own[:, None, :, None], 0.0, axis=3)
        places = [(sentence * beam + hypothesis) * self._num_logits + token for sentence, hypothesis, token in given]
        binding = self._session.io_binding()
        feeds = {
            "tokens": tokens,
            "scores": np.zeros((num_sentences, beam, 1), np.float32) if scores is None else scores[:, :, None],
            "past_lengths": self.past_lengths,
            "columns": self.columns,
            "self_mask": self.mask,
            "edit_places": np.array(places, np.int64),
            "edit_values": np.array([edits.get(edit, 0.0) for edit in given], np.float32),
            "edit_factors": np.array([penalties.get(edit, 1.0) for edit in given], np.float32),
            "num_candidates": np.array([candidates or beam * self._num_logits]),
            **memory,
        }
        for name, value in feeds.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(value))
        self._bind_in_place(binding)
        self._session.run_with_iobinding(binding)
        self.past_lengths = self.past_lengths + 1
        self.columns = self.columns + beam
        return dict(zip(OUTPUTS, binding.copy_outputs_to_cpu()[-len(OUTPUTS) :], strict=True))

    def restart(self, sentence: int) -> None:
        """Another sentence takes this one's place."""
        self.past_lengths[sentence] = self.columns[sentence] = 0
        self.mask[sentence] = MASKED

    def _bind_in_place(self, binding: ort.IOBinding) -> None:
        for name, array in self.caches.items():
            value = ort.OrtValue.ortvalue_from_numpy(array)  # shares the array's memory
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(f"{name}_out", value)
        for name in OUTPUTS:
            binding.bind_output(name)


def full_log_probs(outputs: Values, beam: int, config: ModelConfig) -> Array:
    """[B, K, V] in the order of the vocabulary, from candidates that are all of it, with scores of zero."""
    log_probs = np.empty_like(outputs["candidate_scores"])
    np.put_along_axis(log_probs, outputs["candidate_ids"], outputs["candidate_scores"], axis=-1)
    return log_probs.reshape(len(log_probs), beam, -1)[:, :, : config.num_target_tokens]


PRECISIONS = ("fp32", "int8")
SOURCE_COLUMNS = 8  # the step graph's cross-attention columns come in multiples of this


@cache
def graphs_of(precision: str, placement: NormPlacement = NormPlacement.PRE, vocab_size: int = 60) -> TinyGraphs:
    """The same model for all precisions."""
    directory = Path(mkdtemp(prefix="dragoman-test-"))
    atexit.register(rmtree, directory, ignore_errors=True)
    return tiny_graphs(directory, precision, placement, vocab_size=vocab_size)


def memory_of(graphs: TinyGraphs, sentences: Sequence[Sequence[int]], num_columns: int | None = None) -> Values:
    """Encoder outputs padded to a multiple of `SOURCE_COLUMNS` (or to `num_columns`), and the lengths."""
    source, lengths = padded(sentences)
    encoded = graphs.runner.encode(source, lengths)
    columns = num_columns or -(-source.shape[1] // SOURCE_COLUMNS) * SOURCE_COLUMNS
    widths = [(0, 0), (0, 0), (0, columns - source.shape[1]), (0, 0)]
    return {"source_lengths": lengths, **{name: np.pad(value, widths) for name, value in encoded.items()}}


def driver(graphs: TinyGraphs, num_sentences: int, beam: int, num_columns: int = 48) -> StepDriver:
    return StepDriver(graphs.directory / DECODER_STEP_NAME, graphs.config, num_sentences, beam, num_columns)


def random_targets(graphs: TinyGraphs, num_sentences: int, beam: int, num_steps: int, seed: int = 1) -> Array:
    """Tokens to go on with, [T, B, K], beginning of sentence first."""
    shape = (num_steps, num_sentences, beam)
    targets = np.random.default_rng(seed).integers(4, graphs.config.vocab_size, shape)
    targets[0] = BOS_ID
    return targets
