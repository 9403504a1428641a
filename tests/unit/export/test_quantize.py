"""Integers stand for the numbers they were made from, to within half a step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto

from export.builder import Array, GraphBuilder, WeightFile
from export.linear import Int8Products
from export.quantize import HISTOGRAM_BINS, ActivationScale, Histogram, quantize_weight
from export.runner import open_session
from export.state import LinearWeights

finite = st.floats(-1e3, 1e3, width=32)
matrices = hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8), elements=finite)


@given(matrices)
def test_a_weight_comes_back_to_within_half_a_step(weight: Array) -> None:
    quantized = quantize_weight(weight)

    assert quantized.integers.dtype == np.int8
    scales = quantized.scales[:, None]
    error = np.abs(quantized.integers * scales - weight)
    assert (error <= scales * 0.5001 + 1e-7).all()


def test_each_output_channel_has_its_own_scale() -> None:
    quantized = quantize_weight(np.array([[0.5, -1.0], [100.0, 50.0], [0.0, 0.0]], np.float32))

    assert quantized.integers.tolist() == [[64, -127], [127, 64], [0, 0]]
    np.testing.assert_allclose(quantized.scales[:2], [1.0 / 127, 100.0 / 127], rtol=1e-6)


@given(finite, finite)
def test_a_scale_covers_its_range_and_hits_zero(one: float, other: float) -> None:
    low, high = sorted((one, other))
    scale = ActivationScale.of_range(low, high)

    assert 0 <= scale.zero_point <= 255
    assert -scale.zero_point * scale.scale <= min(low, 0.0) + scale.scale * 0.51
    assert (255 - scale.zero_point) * scale.scale >= max(high, 0.0) - scale.scale * 0.51


@pytest.mark.parametrize(("low", "high"), [(-3.0, 0.1), (-0.1, 3.0), (-2.0, -1.0), (-1.5, 1.5)])
def test_a_scale_is_no_coarser_than_its_range_needs(low: float, high: float) -> None:
    scale = ActivationScale.of_range(low, high)

    assert scale.scale == pytest.approx((max(high, 0.0) - min(low, 0.0)) / 255)


def test_values_that_are_never_negative_get_the_whole_range() -> None:
    scale = ActivationScale.of_range(0.25, 5.1)

    assert scale.zero_point == 0
    assert scale.scale == pytest.approx(5.1 / 255)


def test_full_coverage_is_the_smallest_and_largest_value() -> None:
    histogram = Histogram()
    histogram.add(np.array([0.25, -3.5]))
    histogram.add(np.array([[17.125]]))

    assert histogram.range(1.0) == (-3.5, 17.125)


def test_less_coverage_leaves_out_the_outliers() -> None:
    histogram = Histogram()
    histogram.add(np.concatenate([np.linspace(-1.0, 1.0, 9_999), [500.0]]))
    low, high = histogram.range(0.999)

    assert -1.0 <= low < -0.9
    assert 0.9 < high < 1.2


@given(st.lists(hnp.arrays(np.float32, st.integers(1, 20), elements=finite), min_size=1, max_size=5))
def test_a_histogram_counts_every_value_however_far_it_lies(batches: list[Array]) -> None:
    histogram = Histogram()
    for batch in batches:
        histogram.add(batch)
    values = np.concatenate(batches)
    low, high = histogram.range(0.5)

    assert histogram.counts.sum() == len(values)
    assert len(histogram.counts) == HISTOGRAM_BINS
    assert values.min() <= low <= high <= values.max() + 2 * histogram.limit / HISTOGRAM_BINS


def test_the_graph_computes_what_the_integers_say() -> None:
    """Against the same arithmetic in NumPy: quantise, multiply whole numbers, scale back, add the bias."""
    random = np.random.default_rng(0)
    weights = LinearWeights(
        "layer", random.standard_normal((24, 16), np.float32), random.standard_normal(24, np.float32)
    )
    scale = ActivationScale.of_range(-1.5, 3.0)
    inputs = random.standard_normal((5, 16), np.float32) * 2  # some beyond the range: they saturate
    found = run_linear(Int8Products({"layer": scale}), weights, inputs)

    integers = np.clip(np.rint(inputs / np.float32(scale.scale)) + scale.zero_point, 0, 255) - scale.zero_point
    quantized = quantize_weight(weights.weight)
    products = integers.astype(np.int64) @ quantized.integers.astype(np.int64).T
    expected = products * np.float32(scale.scale) * quantized.scales + weights.bias
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("num_rows", [2, 3, 17, 128])
def test_a_row_of_an_int8_product_is_the_same_alone_and_beside_an_outlier(num_rows: int) -> None:
    random = np.random.default_rng(1)
    weights = LinearWeights(
        "layer", random.standard_normal((40, 64), np.float32), random.standard_normal(40, np.float32)
    )
    products = Int8Products({"layer": ActivationScale.of_range(-3.0, 3.0)})
    inputs = random.standard_normal((num_rows, 64), np.float32)
    inputs[0] *= 1e4  # a scale taken from the batch would crush the other rows to zero
    together = run_linear(products, weights, inputs)

    for row in range(num_rows):
        np.testing.assert_array_equal(run_linear(products, weights, inputs[row : row + 1])[0], together[row])


def run_linear(products: Int8Products, weights: LinearWeights, inputs: Array) -> Array:
    import tempfile
    from pathlib import Path

    graph = GraphBuilder("linear", WeightFile())
    value = graph.input("inputs", TensorProto.FLOAT, ["R", weights.weight.shape[1]])
    graph.output(products.linear(graph, value, weights), TensorProto.FLOAT)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "linear.onnx"
        path.write_bytes(graph.build().SerializeToString())
        outputs: list[Array] = open_session(path).run(None, {"inputs": inputs})
    return outputs[0]
