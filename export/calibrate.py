"""Which values enter each product of a model, seen by translating sentences with its fp32 graphs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from onnx import TensorProto

from export.builder import Array, GraphBuilder, save_graphs
from export.graphs import DECODER_STEP_NAME, ENCODER_NAME
from export.linear import ACTIVATION_LEVELS, ActivationScale, FloatProducts, Product, State, quantize_weight
from export.recurrent_graphs import draw_graphs
from export.runner import GraphRunner, Values, in_batches, longest_target, padded
from model.config import ModelConfig

# Share of the values that a scale must reach.  KL divergence from fp32 at 4,543 positions of tatoeba_dev and flores-dev
# (d 256, 6+2 layers, update 750): 2.4e-4 with [min, max], 2.0e-4 with 0.99999 and 0.9999, 6.1e-4 with 0.999.
COVERAGE = 0.99999
MAX_TARGET_TOKENS = 128  # a model that never stops must not hold up calibration
HISTOGRAM_BINS = 8_192
# Of the error of an int8 product to its outputs, both root mean square: layers beyond keep float weights.  The included
# models have 0.010 (median) to 0.018, and lose 0.009 of a log-probability with all of it.
MAX_DIVERGENCE = 0.05
SAMPLE_ROWS = 128  # of a layer's inputs, that its int8 product is compared on
ROWS_EACH = 4  # of one run of a graph


@dataclass
class Histogram:
    """How often each value occurred, in equal bins over [-limit, limit]; the limit doubles when a value exceeds it."""

    limit: float = 1.0
    counts: Array = field(default_factory=lambda: np.zeros(HISTOGRAM_BINS, np.int64))
    low: float = np.inf
    high: float = -np.inf

    def add(self, values: Array) -> None:
        """Count values of any shape."""
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        while max(-self.low, self.high) > self.limit:  # [-limit, limit] becomes the middle half: bins merge in pairs
            self.counts = np.pad(self.counts.reshape(-1, 2).sum(axis=1), HISTOGRAM_BINS // 4)
            self.limit *= 2
        counts, _ = np.histogram(values, bins=HISTOGRAM_BINS, range=(-self.limit, self.limit))
        self.counts += counts

    def range(self, coverage: float) -> tuple[float, float]:
        """Return the range without (1 - coverage) of the values, half on each side; coverage 1 gives [min, max]."""
        if coverage >= 1.0:
            return self.low, self.high
        share = np.cumsum(self.counts) / self.counts.sum()
        outside = (1.0 - coverage) / 2
        first, last = np.searchsorted(share, [outside, 1.0 - outside])
        edges = np.linspace(-self.limit, self.limit, HISTOGRAM_BINS + 1)
        return max(self.low, float(edges[first])), min(self.high, float(edges[last + 1]))


@dataclass
class Observed:
    """A layer's product: how often each value entered it, and some rows of them."""

    product: Product
    histogram: Histogram = field(default_factory=Histogram)
    rows: list[Array] = field(default_factory=list)  # each [I]
    num_offered: int = 0  # rows of which these are a sample
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def add(self, inputs: Array) -> None:
        """Count the values of inputs [R, I], and offer some rows, evenly spaced, to the sample of all runs."""
        self.histogram.add(inputs)
        step = max(1, len(inputs) // ROWS_EACH)
        for row in inputs[self.random.integers(step) :: step][:ROWS_EACH]:
            self.num_offered += 1
            place = int(self.random.integers(self.num_offered))  # reservoir sampling (Vitter 1985, algorithm R)
            if len(self.rows) < SAMPLE_ROWS:
                self.rows.append(row.copy())
            elif place < SAMPLE_ROWS:
                self.rows[place] = row.copy()

    def divergence(self, scale: ActivationScale) -> float:
        """Return the root mean square error of the int8 product's outputs over that of the float outputs.

        Bias does not count, since both have it.
        """
        inputs = np.stack(self.rows)
        integers = np.clip(np.rint(inputs / np.float32(scale.scale)) + scale.zero_point, 0, ACTIVATION_LEVELS)
        rounded = (integers - scale.zero_point).astype(np.float32) * np.float32(scale.scale)
        error = total = 0.0
        for block in self.product.blocks():
            if len(block):
                weight = quantize_weight(block)
                expected = inputs @ block.T
                found = rounded @ (weight.integers.astype(np.float32) * weight.scales[:, None]).T
                error += float(np.square(found - expected).sum(dtype=np.float64))
                total += float(np.square(expected).sum(dtype=np.float64))
        return math.sqrt(error / total) if total else 0.0


def observe(
    config: ModelConfig, state: State, sentences: Iterable[Sequence[int]], scratch: Path | None = None
) -> dict[str, Observed]:
    """Translate some hundred sentences with the fp32 graphs and note, by layer, what enters each product.

    The graphs go into a directory in `scratch`, since a large model may have more than a place for temporary files.
    """
    products = FloatProducts()
    graphs = draw_graphs(config, state, products)
    encoder, decoder_step = graphs[ENCODER_NAME], graphs[DECODER_STEP_NAME]
    seen = {layer: Observed(product) for layer, product in products.products.items()}
    for graph, value in dict.fromkeys((product.graph, product.value) for product in products.products.values()):
        graph.output(value, TensorProto.FLOAT)  # layers that read the same value share an output
    with TemporaryDirectory(prefix="dragoman-calibration-", dir=scratch) as name:
        directory = Path(name)
        save_graphs({ENCODER_NAME: encoder, DECODER_STEP_NAME: decoder_step}, directory)
        runner = GraphRunner(directory / ENCODER_NAME, directory / DECODER_STEP_NAME, config)
        for batch in in_batches(sentences):
            source, lengths = padded(batch)
            encoded = runner.encode(source, lengths)
            _add(seen, encoder, encoded, np.arange(source.shape[1]) < lengths[:, None])
            max_tokens = longest_target(config, batch, MAX_TARGET_TOKENS)
            for step in runner.greedy_steps(encoded, lengths, max_tokens):
                _add(seen, decoder_step, step.values, step.is_live)
    return seen


def _add(seen: Mapping[str, Observed], graph: GraphBuilder, values: Values, is_real: Array) -> None:
    """Note what one run of a graph gave, without the rows of padding and of sentences that have ended."""
    for layer in seen.values():
        if layer.product.graph is graph:
            found = values[layer.product.value][is_real]
            layer.add(found.reshape(-1, found.shape[-1]))


def activation_scales(seen: Mapping[str, Observed], coverage: float = COVERAGE) -> dict[str, ActivationScale]:
    """Return one scale for each layer."""
    return {name: ActivationScale.of_range(*layer.histogram.range(coverage)) for name, layer in seen.items()}


@dataclass(frozen=True, slots=True)
class LayerPrecision:
    """What became of a layer's product."""

    layer: str
    divergence: float
    is_float: bool

    def __str__(self) -> str:
        return f"{self.layer}\t{self.divergence:.4f}\t{'float16' if self.is_float else 'int8'}"


def layer_precisions(
    seen: Mapping[str, Observed], scales: Mapping[str, ActivationScale], most: float
) -> list[LayerPrecision]:
    """Return what each layer loses as int8, and whether that is more than it may."""
    found = [(name, layer.divergence(scales[name])) for name, layer in seen.items()]
    return [LayerPrecision(name, divergence, not divergence <= most) for name, divergence in found]
