"""Graphs of a random model, written once, and what their steps are fed with.

Axes: B sentences, K hypotheses of a sentence, T target.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from export.builder import Array
from export.graphs import DECODER_STEP_NAME
from export.runner import Values
from model.config import BOS_ID, NormPlacement
from tests.fakes.step_driver import StepDriver
from tests.fakes.tiny_model import TinyGraphs, padded, tiny_graphs

PRECISIONS = ("fp32", "int8")
SOURCE_COLUMNS = 8  # the step graph's cross-attention columns come in multiples of this


@cache
def graphs_of(precision: str, placement: NormPlacement = NormPlacement.PRE, vocab_size: int = 60) -> TinyGraphs:
    """The same model for all precisions."""
    return tiny_graphs(Path(mkdtemp(prefix="dragoman-test-")), precision, placement, vocab_size=vocab_size)


def memory_of(graphs: TinyGraphs, sentences: Sequence[Sequence[int]], num_columns: int | None = None) -> Values:
    """Encoder outputs padded to a multiple of `SOURCE_COLUMNS` (or to `num_columns`), and the lengths."""
    source, lengths = padded(sentences)
    encoded = graphs.runner.encode(source, lengths)
    columns = num_columns or -(-source.shape[1] // SOURCE_COLUMNS) * SOURCE_COLUMNS
    widths = [(0, 0), (0, 0), (0, columns - source.shape[1]), (0, 0)]
    return {"source_lengths": lengths, **{name: np.pad(value, widths) for name, value in encoded.items()}}


def driver(graphs: TinyGraphs, num_sentences: int, beam: int, num_columns: int = 48) -> StepDriver:
    """Of a new batch."""
    return StepDriver(graphs.directory / DECODER_STEP_NAME, graphs.config, num_sentences, beam, num_columns)


def random_targets(graphs: TinyGraphs, num_sentences: int, beam: int, num_steps: int, seed: int = 1) -> Array:
    """Tokens to go on with, [T, B, K], beginning of sentence first."""
    shape = (num_steps, num_sentences, beam)
    targets = np.random.default_rng(seed).integers(4, graphs.config.vocab_size, shape)
    targets[0] = BOS_ID
    return targets
