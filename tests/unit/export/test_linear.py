"""Integers stand for the numbers they were made from, to within half a step; products of them repeat bit for bit."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto

from export.builder import Array, GraphBuilder, WeightFile
from export.linear import ActivationScale, Int8Products, quantize_weight
from export.runner import open_session

finite = st.floats(-1e3, 1e3, width=32)
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
