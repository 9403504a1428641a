"""The same weights in PyTorch and in ONNX Runtime give the same log-probabilities and the same words."""

from pathlib import Path

import numpy as np
import pytest

from export.runner import GraphRunner
from export.source import ExportSource
from export.verify import TOLERANCES, compare, reference_model, seeded_samples, translated_samples
from model.bundle import WEIGHTS_NAME, Bundle, default_bundle_dir
from model.config import NormPlacement
from model.tokenizer import Tokenizer
from tests.fakes.tiny_model import random_sentences, tiny_graphs

SENTENCES = [
    "The children are playing in the garden.",
    "A man in a blue shirt is standing on a ladder cleaning a window.",
    "Yes.",
    "Where did you put the keys that I gave you yesterday, and why is the door still open?",
    "Two dogs run through the snow.",
]


@pytest.mark.parametrize("placement", list(NormPlacement))
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_random_models_are_within_the_stated_tolerance(
    tmp_path: Path, precision: str, placement: NormPlacement
) -> None:
    graphs = tiny_graphs(tmp_path, precision, placement)
    sentences = random_sentences(graphs.config, lengths=range(2, 20), seed=3)
    samples = translated_samples(graphs.runner, graphs.config, sentences)
    if precision == "fp32":
        samples += seeded_samples(graphs.config)
    parity = compare(graphs.runner, graphs.model, samples)

    parity.require(precision, TOLERANCES[precision])


def test_the_shipped_graphs_are_within_the_stated_tolerance_of_the_kept_weights() -> None:
    bundle = Bundle.load(default_bundle_dir())
    assert WEIGHTS_NAME in bundle.manifest.files
    source, tokenizer = ExportSource.load(bundle.directory), Tokenizer.load(bundle.tokenizer_path)
    sentences = [tokenizer.encode(text) for text in SENTENCES]

    for precision, variant in bundle.manifest.variants.items():
        runner = GraphRunner(bundle.path(variant.encoder), bundle.path(variant.decoder_step), source.config)
        samples = translated_samples(runner, source.config, sentences)
        parity = compare(runner, reference_model(source.config, source.state), samples)
        parity.require(precision, TOLERANCES[precision])
        assert np.isfinite(parity.largest_difference)
