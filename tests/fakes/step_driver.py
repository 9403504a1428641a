"""Runs a decoder-step graph as the engine does: caches bound in place, each row at its own length.

Axes: B sentences, K hypotheses of a sentence, R = B * K rows, T cache columns.
"""

from pathlib import Path

import numpy as np
import onnxruntime as ort

from export.builder import Array
from export.graphs import cache_names
from export.runner import Values, open_session
from model.config import ModelConfig

OUTPUTS = ["candidate_log_probs", "candidate_tokens"]


class StepDriver:
    """One batch of hypotheses and its caches."""

    def __init__(
        self, decoder_step: Path, config: ModelConfig, num_sentences: int, beam: int, num_columns: int
    ) -> None:
        self._session = open_session(decoder_step)
        self._config = config
        self.lengths = np.zeros(num_sentences * beam, np.int32)  # past length of each row
        self._beam_shape = (num_sentences, beam)
        shape = (num_sentences * beam, config.num_heads, num_columns, config.d_head)
        names = [name for layer in range(config.num_decoder_layers) for name in cache_names(layer)]
        self.caches = {
            name: np.full(shape, np.nan, np.float32) for name in names
        }  # what is not written must not matter

    def step(
        self, tokens: Array, memory: Values, *, candidates: int, edits: dict[tuple[int, int], float] | None = None
    ) -> Values:
        """One token for every row, [R]; `memory` holds the cross keys and values, and `source_lengths`."""
        edits = edits or {}
        binding = self._session.io_binding()
        feeds = {
            "tokens": tokens.reshape(self._beam_shape),
            "past_lengths": self.lengths,
            "total_length": np.array([self.lengths.max() + 1], np.int32),
            "edit_indices": np.array(list(edits), np.int64).reshape(-1, 2),
            "edit_values": np.array(list(edits.values()), np.float32),
            "num_candidates": np.array([candidates]),
            **memory,
        }
        for name, value in feeds.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(value))
        self._bind_in_place(binding)
        self._session.run_with_iobinding(binding)
        self.lengths = self.lengths + 1
        return dict(zip(OUTPUTS, binding.copy_outputs_to_cpu()[-2:], strict=True))

    def _bind_in_place(self, binding: ort.IOBinding) -> None:
        for name, cache in self.caches.items():
            value = ort.OrtValue.ortvalue_from_numpy(cache)  # shares the array's memory
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(f"{name}_out", value)
        for name in OUTPUTS:
            binding.bind_output(name)


def full_log_probs(outputs: Values) -> Array:
    """[B, K, V] in the order of the vocabulary, from candidates that are the whole of it."""
    log_probs = np.empty_like(outputs["candidate_log_probs"])
    np.put_along_axis(log_probs, outputs["candidate_tokens"], outputs["candidate_log_probs"], axis=-1)
    return log_probs
