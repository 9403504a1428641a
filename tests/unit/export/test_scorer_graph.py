"""The scorer computes what the model computes in one pass; a pair's numbers depend on that pair alone.

Axes: B pairs, T target, S source.
"""

from pathlib import Path

import numpy as np

from export.graphs import ENCODER_NAME
from export.linear import FloatProducts
from export.onnx_export import write_graphs
from export.runner import ScorerRunner
from export.scorer import SCORER_NAME
from export.verify import (
    seeded_samples,
)
from model.config import NormPlacement
from model.manifest import AlignmentHeads
from tests.fakes.tiny_model import TinyGraphs, state_of, tiny_config, tiny_model

SOME_HEADS = AlignmentHeads(heads=((0, 1), (1, 0), (1, 3)))


def scorer_of(directory: Path, alignment: AlignmentHeads, placement: NormPlacement) -> tuple[ScorerRunner, TinyGraphs]:
    model = tiny_model(tiny_config(placement))
    runner = write_graphs(model.config, state_of(model), FloatProducts(), directory / "fp32", alignment)
    graphs = TinyGraphs(model, directory / "fp32", runner)
    return ScorerRunner(graphs.directory / SCORER_NAME, graphs.directory / ENCODER_NAME), graphs


def test_padding_of_either_side_changes_nothing_and_rows_sum_up_to_one(tmp_path: Path) -> None:
    scorer, graphs = scorer_of(tmp_path, SOME_HEADS, NormPlacement.PRE)
    source, lengths, targets, _ = seeded_samples(graphs.config)[3]
    next_tokens = np.roll(targets, -1, axis=1)
    S, T = source.shape[1], targets.shape[1]

    plain = scorer.score(source, lengths, targets, next_tokens)
    wide, wide_targets, wide_tokens = (np.pad(array, ((0, 0), (0, 15))) for array in (source, targets, next_tokens))
    log_probs, attention = scorer.score(wide, lengths, wide_targets, wide_tokens)

    assert np.abs(log_probs[:, :T] - plain[0]).max() < 1e-5
    assert np.abs(attention[:, :T, :S] - plain[1]).max() < 1e-6
    assert not attention[:, :, S:].any()
    assert np.abs(attention.sum(axis=-1) - 1).max() < 1e-5
    assert all(not row[:, length:].any() for row, length in zip(plain[1], lengths, strict=True))


def test_weights_of_the_step_are_not_stored_again(tmp_path: Path) -> None:
    _, graphs = scorer_of(tmp_path, SOME_HEADS, NormPlacement.PRE)
    parameters = sum(array.nbytes for array in state_of(graphs.model).values())
    positions = 64 * (32 * 4)
    num_tensors = len(state_of(graphs.model)) + 1

    size = (graphs.directory / "weights.data").stat().st_size

    assert size <= parameters + positions + num_tensors * 4_096  # each begins on a page
    assert (graphs.directory / SCORER_NAME).stat().st_size < 64_000
