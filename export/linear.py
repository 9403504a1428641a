"""The products of a Transformer with its weights, in each precision the project ships.

What differs between fp32, fp16 and int8 graphs is in this file; `graphs.py` is given one of these strategies.
Axes: D model width, V vocabulary, I inputs and O outputs of a layer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from onnx import TensorProto, helper

from export.builder import Array, GraphBuilder
from export.quantize import ActivationScale, quantize_weight
from export.state import LinearWeights

EMBEDDING = "embedding"

Output = tuple[str, str, int, list[int | str]]  # name, value, dtype, shape


class Products(Protocol):
    """How a graph multiplies with weights."""

    @property
    def dtype(self) -> int:
        """Element type of what flows through a graph beside products: activations, norms, caches."""
        ...

    def linear(self, graph: GraphBuilder, inputs: str, weights: LinearWeights) -> str:
        """Inputs times weight^T plus bias: [.., I] -> [.., O]."""
        ...

    def embed(self, graph: GraphBuilder, tokens: str, table: Array) -> str:
        """Rows of the table [V, D] times sqrt(D): [..] -> [.., D]."""
        ...

    def logits(self, graph: GraphBuilder, inputs: str, table: Array) -> str:
        """Inputs times table^T: [.., D] -> [.., V]."""
        ...

    def chosen_logits(self, graph: GraphBuilder, inputs: str) -> str:
        """Inputs times columns of table^T that are inputs of the graph: [.., D] -> [.., N]."""
        ...

    def projection(self, graph: GraphBuilder, table: Array) -> list[Output]:
        """What such columns are made from: `rows`, and their `scales` if they have some."""
        ...


@dataclass
class FloatProducts:
    """Plain float32, or float16.  `inputs` remembers the value that enters each product, for calibration."""

    inputs: dict[str, str] = field(default_factory=dict)  # layer -> name of the value
    dtype: int = TensorProto.FLOAT

    def linear(self, graph: GraphBuilder, inputs: str, weights: LinearWeights) -> str:
        """MatMul and Add; ONNX Runtime joins the two where that pays."""
        self.inputs[weights.name] = inputs
        weight = graph.constant(f"{weights.name}.weight", self._cast(weights.weight.T))
        product = graph.node("MatMul", inputs, weight)
        return graph.node("Add", product, graph.constant(f"{weights.name}.bias", self._cast(weights.bias)))

    def embed(self, graph: GraphBuilder, tokens: str, table: Array) -> str:
        """Gather and Mul."""
        rows = graph.node("Gather", graph.constant(f"{EMBEDDING}.weight", self._cast(table)), tokens)
        scale = graph.constant(f"{EMBEDDING}.sqrt_d_model", self._cast(np.float32(np.sqrt(table.shape[1]))))
        return graph.node("Mul", rows, scale)

    def logits(self, graph: GraphBuilder, inputs: str, table: Array) -> str:
        """MatMul with the embedding's transpose, which becomes a constant when the graph is loaded."""
        self.inputs[EMBEDDING] = inputs
        transposed = graph.node("Transpose", graph.constant(f"{EMBEDDING}.weight", self._cast(table)), perm=[1, 0])
        return graph.node("MatMul", inputs, transposed)

    def chosen_logits(self, graph: GraphBuilder, inputs: str) -> str:
        """MatMul with the input `vocabulary_weights` [D, N]."""
        self.inputs[EMBEDDING] = inputs
        return graph.node("MatMul", inputs, graph.input("vocabulary_weights", self.dtype, ["D", "N"]))

    def projection(self, graph: GraphBuilder, table: Array) -> list[Output]:
        """The embedding."""
        value = graph.constant(f"{EMBEDDING}.weight", self._cast(table))
        return [("rows", value, self.dtype, list(table.shape))]

    def _cast(self, array: Array | np.generic) -> Array:
        return np.asarray(array, helper.tensor_dtype_to_np_dtype(self.dtype))


@dataclass(frozen=True)
class Int8Products:
    """int8 weights with a scale for each output, activations with one calibrated scale for each layer.

    QuantizeLinear and MatMulIntegerToFloat: whole numbers in between, so a row's result is the same in every batch.
    """

    scales: Mapping[str, ActivationScale]  # layer -> how its input is quantised
    dtype: int = TensorProto.FLOAT

    def linear(self, graph: GraphBuilder, inputs: str, weights: LinearWeights) -> str:
        """Quantise the input, multiply integers, scale back and add the bias."""
        quantized = quantize_weight(weights.weight)
        matrix = graph.constant(f"{weights.name}.int8", quantized.integers.T)
        bias = graph.constant(f"{weights.name}.bias", weights.bias)
        return self._product(graph, inputs, weights.name, matrix, quantized.scales, bias)

    def embed(self, graph: GraphBuilder, tokens: str, table: Array) -> str:
        """The projection's integers, and its scales times sqrt(D)."""
        quantized = quantize_weight(table)
        scales = (quantized.scales * np.sqrt(table.shape[1])).astype(np.float32)[:, None]  # [V, 1]
        integers = graph.node("Gather", graph.constant(f"{EMBEDDING}.int8", quantized.integers), tokens)
        row_scales = graph.node("Gather", graph.constant(f"{EMBEDDING}.row_scales", scales), tokens)
        return graph.node("Mul", graph.node("Cast", integers, to=TensorProto.FLOAT), row_scales)

    def logits(self, graph: GraphBuilder, inputs: str, table: Array) -> str:
        """The embedding's integers once more; their transpose becomes a constant when the graph is loaded."""
        quantized = quantize_weight(table)
        integers = graph.constant(f"{EMBEDDING}.int8", quantized.integers)
        transposed = graph.node("Transpose", integers, perm=[1, 0])
        return self._product(graph, inputs, EMBEDDING, transposed, quantized.scales, "")

    def chosen_logits(self, graph: GraphBuilder, inputs: str) -> str:
        """With the inputs `vocabulary_weights` int8 [D, N] and `vocabulary_scales` float32 [N]."""
        matrix = graph.input("vocabulary_weights", TensorProto.INT8, ["D", "N"])
        scales = graph.input("vocabulary_scales", TensorProto.FLOAT, ["N"])
        return self._integer_product(graph, inputs, EMBEDDING, matrix, scales, "")

    def projection(self, graph: GraphBuilder, table: Array) -> list[Output]:
        """The embedding's integers and their scales."""
        quantized = quantize_weight(table)
        integers = graph.constant(f"{EMBEDDING}.int8", quantized.integers)
        scales = graph.constant(f"{EMBEDDING}.scales", quantized.scales)
        return [
            ("rows", integers, TensorProto.INT8, list(table.shape)),
            ("scales", scales, TensorProto.FLOAT, [len(table)]),
        ]

    def _product(self, graph: GraphBuilder, inputs: str, name: str, matrix: str, scales: Array, bias: str) -> str:
        """Float inputs [.., I] times an int8 matrix [I, O]: [.., O], float again."""
        weight_scales = graph.constant(f"{name}.scales", scales)
        return self._integer_product(graph, inputs, name, matrix, weight_scales, bias)

    def _integer_product(
        self, graph: GraphBuilder, inputs: str, name: str, matrix: str, weight_scales: str, bias: str
    ) -> str:
        activation = self.scales[name]
        scale = graph.constant(f"{name}.input_scale", np.float32(activation.scale))
        zero_point = graph.constant(f"{name}.input_zero_point", np.uint8(activation.zero_point))
        integers = graph.node("QuantizeLinear", inputs, scale, zero_point)
        return graph.contrib("MatMulIntegerToFloat", integers, matrix, scale, weight_scales, zero_point, "", bias)
