"""From ranges of activations to integers: what is left out, rounded and kept in floats; products repeat bit for bit."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto

from export.builder import Array, GraphBuilder, WeightFile
from export.calibrate import HISTOGRAM_BINS, MAX_DIVERGENCE, Histogram, activation_scales, layer_precisions, observe
from export.importers.command import Format, import_model
from export.importers.foreign import ImportOptions
from export.linear import ActivationScale, Int8Products, quantize_weight
from export.onnx_export import LAYERS_NAME, write_graphs
from export.runner import open_session
from export.samples import PROMPTS
from export.verify import compare, reference_model, translated_samples
from tests.fakes.tiny_model import random_sentences, state_of, tiny_config, tiny_model
from tests.parity.marian_model import write_marian

finite = st.floats(-1e3, 1e3, width=32)


def test_coverage_leaves_out_the_outliers() -> None:
    histogram = Histogram()
    histogram.add(np.concatenate([np.linspace(-1.0, 1.0, 9_999), [500.0]]))
    low, high = histogram.range(0.999)

    assert histogram.range(1.0) == (-1.0, 500.0)
    assert -1.0 <= low < -0.9
    assert 0.9 < high < 1.2


@given(st.lists(hnp.arrays(np.float32, st.integers(1, 20), elements=finite), min_size=1, max_size=5))
def test_a_histogram_counts_every_value_however_far_it_lies(batches: list[Array]) -> None:
    histogram = Histogram()
    for batch in batches:
        histogram.add(batch)
    values = np.concatenate(batches)
    low, high = histogram.range(0.5)

    assert (histogram.counts.sum(), len(histogram.counts)) == (len(values), HISTOGRAM_BINS)
    assert values.min() <= low <= high <= values.max() + 2 * histogram.limit / HISTOGRAM_BINS


matrices = hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8), elements=finite)


@given(matrices)
def test_a_weight_comes_back_to_within_half_a_step(weight: Array) -> None:
    quantized = quantize_weight(weight)

    assert quantized.integers.dtype == np.int8
    scales = quantized.scales[:, None]
    assert (np.abs(quantized.integers * scales - weight) <= scales * 0.5001 + 1e-7).all()


@pytest.fixture
def run_linear(tmp_path: Path):
    """A function that multiplies inputs with one int8 layer, whose weights come from a seed."""
    random = np.random.default_rng(0)
    weight, bias = random.standard_normal((40, 64), np.float32), random.standard_normal(40, np.float32)
    graph = GraphBuilder("linear", WeightFile())
    value = graph.input("inputs", TensorProto.FLOAT, ["R", 64])
    products = Int8Products({"layer": ActivationScale.of_range(-1.5, 3.0)})
    graph.output(products.linear(graph, value, "layer", [weight], bias), TensorProto.FLOAT)
    (tmp_path / "linear.onnx").write_bytes(graph.build().SerializeToString())
    session = open_session(tmp_path / "linear.onnx")
    return weight, bias, lambda inputs: session.run(None, {"inputs": inputs})[0]


def test_the_graph_computes_what_the_integers_say(run_linear) -> None:
    """Against the same arithmetic in NumPy: quantise, multiply whole numbers, scale back, add the bias."""
    weight, bias, run = run_linear
    scale, quantized = ActivationScale.of_range(-1.5, 3.0), quantize_weight(weight)
    inputs = np.random.default_rng(1).standard_normal((5, 64), np.float32) * 2  # some beyond the range: they saturate

    integers = np.clip(np.rint(inputs / np.float32(scale.scale)) + scale.zero_point, 0, 255) - scale.zero_point
    products = integers.astype(np.int64) @ quantized.integers.astype(np.int64).T
    expected = products * np.float32(scale.scale) * quantized.scales + bias
    np.testing.assert_allclose(run(inputs), expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("num_rows", [2, 3, 17, 128])
def test_a_row_of_an_int8_product_is_the_same_alone_and_beside_an_outlier(num_rows: int, run_linear) -> None:
    _, _, run = run_linear
    inputs = np.random.default_rng(1).standard_normal((num_rows, 64), np.float32)
    inputs[0] *= 1e4  # a scale taken from the batch would crush the other rows to zero
    together = run(inputs)

    for row in range(num_rows):
        np.testing.assert_array_equal(run(inputs[row : row + 1])[0], together[row])


SPOILED = "decoder.layers.0.feed_forward.inner"


def test_a_layer_that_int8_destroys_stays_float_and_only_that(tmp_path: Path) -> None:
    """One input that is always zero has weights so large that an int8 scale leaves nothing of the others."""
    config = tiny_config()
    state = {name: np.array(array) for name, array in state_of(tiny_model(config)).items()}
    state[f"{SPOILED}.weight"][:, 0] *= 1_000.0
    for part in ("weight", "bias"):
        state[f"decoder.layers.0.feed_forward_norm.{part}"][0] = 0.0
    sentences = random_sentences(config, lengths=range(2, 20))

    seen = observe(config, state, sentences)
    scales = activation_scales(seen)
    layers = layer_precisions(seen, scales, MAX_DIVERGENCE)

    assert [layer.layer for layer in layers if layer.is_float] == [SPOILED]
    assert {layer.layer for layer in layers} == set(scales)
    found = {}
    for name, kept in (("all", scales), ("some", {layer: scales[layer] for layer in scales if layer != SPOILED})):
        runner = write_graphs(config, state, Int8Products(kept), tmp_path / name)
        samples = translated_samples(runner, config, sentences)
        found[name] = compare(runner, reference_model(config, state), samples).mean_difference
    assert found["some"] < found["all"] / 3
    graph = onnx.load(str(tmp_path / "some" / "decoder_step.onnx"), load_external_data=False).graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    assert types[f"{SPOILED}.weight"] == TensorProto.FLOAT16


def test_an_import_without_text_has_int8_graphs_a_report_and_golden_sentences(
    tmp_path: Path, tiny_tokenizer_path: Path
) -> None:
    model = write_marian(tmp_path, tiny_tokenizer_path)
    bundle = import_model(model.directory, tmp_path / "bundle", ImportOptions(), Format.MARIAN, ("int8",))

    rows = [line.split("\t") for line in bundle.path(f"int8/{LAYERS_NAME}").read_text().splitlines()]
    assert {len(row) for row in rows} == {3}
    assert {row[2] for row in rows} == {"int8"}
    assert bundle.manifest.exported_with["calibration_sentences"] == "32"
    assert {sentence.source for sentence in bundle.golden_sentences("int8")} <= set(PROMPTS)
