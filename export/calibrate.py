"""Which values enter each product of a model, seen by translating sentences with its fp32 graphs.

Knows the graphs and their fp32 products; what becomes of the histograms is in `quantize.py`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from onnx import TensorProto

from export.builder import Array, GraphBuilder, WeightFile, save_graphs
from export.graphs import DecoderStepGraph, EncoderGraph
from export.linear import FloatProducts
from export.quantize import ActivationScale, Histogram
from export.runner import GraphRunner, Values
from export.state import State
from model.config import ModelConfig

# Share of the values that a scale must reach.  KL divergence from fp32 at 4,543 positions of tatoeba_dev and flores-dev
# (d 256, 6+2 layers, update 750): 2.4e-4 with [min, max], 2.0e-4 with 0.99999 and 0.9999, 6.1e-4 with 0.999.
COVERAGE = 0.99999
MAX_TARGET_TOKENS = 128  # a model that never stops must not hold up calibration

Histograms = Mapping[str, Histogram]  # layer -> values of its input


def observe(config: ModelConfig, state: State, sentences: Iterable[Sequence[int]]) -> Histograms:
    """Translate sentences greedily with the fp32 graphs and count what enters each product.

    Args:
        config: the model's shape.
        state: its parameters.
        sentences: source ids, each ending with end-of-sentence; a few hundred are enough.
    """
    histograms: dict[str, Histogram] = {}
    with TemporaryDirectory(prefix="dragoman-calibration-") as name:
        watched = _WatchedGraphs(config, state, Path(name))
        for sentence in sentences:
            for layer, values in watched.layer_inputs(list(sentence)):
                histograms.setdefault(layer, Histogram()).add(values)
    return histograms


def activation_scales(histograms: Histograms, coverage: float = COVERAGE) -> dict[str, ActivationScale]:
    """One scale for each layer."""
    return {layer: ActivationScale.of_range(*seen.range(coverage)) for layer, seen in histograms.items()}


class _WatchedGraphs:
    """fp32 graphs that also return what enters each of their products."""

    def __init__(self, config: ModelConfig, state: State, directory: Path) -> None:
        weights, encoder, decoder = WeightFile(), FloatProducts(), FloatProducts()
        graphs = {
            "encoder.onnx": EncoderGraph(config, state, encoder, weights).graph,
            "decoder_step.onnx": DecoderStepGraph(config, state, decoder, weights).graph,
        }
        _expose(graphs["encoder.onnx"], encoder.inputs)
        _expose(graphs["decoder_step.onnx"], decoder.inputs)
        save_graphs(graphs, directory)
        self._runner = GraphRunner(directory / "encoder.onnx", directory / "decoder_step.onnx", config)
        self._encoder_inputs, self._decoder_inputs = encoder.inputs, decoder.inputs
        self._max_tokens = min(MAX_TARGET_TOKENS, config.max_positions)

    def layer_inputs(self, sentence: list[int]) -> Iterator[tuple[str, Array]]:
        """(layer, the values that entered it) while one sentence is translated."""
        encoded, steps = self._runner.greedy(sentence, self._max_tokens)
        yield from _named(self._encoder_inputs, [encoded])
        yield from _named(self._decoder_inputs, steps)


def _expose(graph: GraphBuilder, inputs: Mapping[str, str]) -> None:
    for value in dict.fromkeys(inputs.values()):  # layers that read the same value share an output
        graph.output(value, TensorProto.FLOAT)


def _named(inputs: Mapping[str, str], runs: Sequence[Values]) -> Iterator[tuple[str, Array]]:
    for layer, value in inputs.items():
        yield layer, np.concatenate([run[value].ravel() for run in runs])
