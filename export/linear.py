"""The products of a Transformer with its weights, in each precision the project ships.

What differs between fp32, fp16 and int8 graphs is in this file; `graphs.py` is given one of the two classes.

int8 weights are symmetric with one scale for each output channel.  Activations have one scale and zero point for a
whole layer, fixed at export by calibration, so that a sentence's numbers do not depend on what else is in the batch.

Axes: D model width, V vocabulary, I inputs and O outputs of a layer.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from onnx import TensorProto, helper

from export.builder import CONTRIB_DOMAIN, Array, Deferred, GraphBuilder
from model.config import VOCABULARY_MULTIPLE

State = Mapping[str, Array]  # a model's parameters by the names of `model/transformer.py`

LOGITS_BIAS = "logits.bias"
WEIGHT_LIMIT = 127  # symmetric: -128 is left out
ACTIVATION_LEVELS = 255
SCALE_NAME, ZERO_POINT_NAME = ".input_scale", ".input_zero_point"  # behind a layer's name: its `ActivationScale`
SMALLEST_SCALE = 1e-20  # of a channel whose weights are all zero; far below that of any other
BLOCK_BYTES = 16 << 20  # of a table, which may have a gigabyte: read, quantised and written at a time


class Table(NamedTuple):
    """Embeddings of tokens, or rows of the projection: those of the state's `name.weight`, and zeros behind them."""

    name: str
    rows: Array  # up to [V, D]
    shape: tuple[int, int]  # V, D

    def blocks(self) -> Iterator[Array]:
        """Yield all rows, some at a time."""
        step = max(1, BLOCK_BYTES // (4 * self.shape[1]))
        for first in range(0, len(self.rows), step):
            yield self.rows[first : first + step]
        yield np.zeros((self.shape[0] - len(self.rows), self.shape[1]), np.float32)


def padded_table(state: State, name: str) -> Table:
    """Return the parameter `name.weight` with rows of zeros up to a multiple of `VOCABULARY_MULTIPLE`."""
    rows = state[f"{name}.weight"]
    return Table(name, rows, (len(rows) + -len(rows) % VOCABULARY_MULTIPLE, rows.shape[1]))


class QuantizedWeight(NamedTuple):
    """weight [O, I] ~ integers [O, I] * scales [O, 1]."""

    integers: Array  # int8
    scales: Array  # float32 [O]


def quantize_weight(weight: Array) -> QuantizedWeight:
    """Return integers in which each row's largest magnitude is 127: [O, I] float -> int8 and [O] scales."""
    largest = np.maximum(weight.max(axis=1), -weight.min(axis=1))
    scales = np.maximum(largest / WEIGHT_LIMIT, SMALLEST_SCALE).astype(np.float32)
    integers = np.clip(np.rint(weight / scales[:, None]), -WEIGHT_LIMIT, WEIGHT_LIMIT)
    return QuantizedWeight(integers.astype(np.int8), scales)


def _quantized(blocks: Callable[[], Iterable[Array]], shape: tuple[int, int]) -> tuple[Deferred, Deferred]:
    """Return the integers and the scales of a weight [O, I], whose rows come in blocks."""

    def integers() -> Iterator[Array]:
        return (quantize_weight(block).integers for block in blocks() if len(block))

    def scales() -> Iterator[Array]:
        return (quantize_weight(block).scales for block in blocks() if len(block))

    return Deferred(np.dtype(np.int8), shape, integers), Deferred(np.dtype(np.float32), shape[:1], scales)


@dataclass(frozen=True, slots=True)
class ActivationScale:
    """value ~ (integer - zero_point) * scale, integer in 0 .. 255."""

    scale: float
    zero_point: int

    @classmethod
    def of_range(cls, low: float, high: float) -> "ActivationScale":
        """Return the finest scale that covers [low, high] and represents zero exactly."""
        low, high = min(low, 0.0), max(high, 0.0)
        scale = max((high - low) / ACTIVATION_LEVELS, SMALLEST_SCALE)
        return cls(scale, int(np.clip(np.rint(-low / scale), 0, ACTIVATION_LEVELS)))


class Product(NamedTuple):
    """What calibration must know of a product: where its input is seen, and its weight."""

    graph: GraphBuilder  # the first one that has it
    value: str  # that enters it
    blocks: Callable[[], Iterable[Array]]  # rows of the weight [O, I], some at a time


@dataclass
class FloatProducts:
    """Plain float32, or float16.  `products` remembers each product by its layer's name, for calibration."""

    products: dict[str, Product] = field(default_factory=dict)
    dtype: int = TensorProto.FLOAT  # of what flows through a graph beside products: activations, norms, caches
    stored: int | None = None  # type of the weights in their file, which are cast when it is loaded; None: `dtype`

    def linear(self, graph: GraphBuilder, inputs: str, name: str, weights: Sequence[Array], bias: Array) -> str:
        """Inputs times weights^T [O, I] plus bias [O]: [.., I] -> [.., O]; ONNX Runtime fuses MatMul and Add.

        `weights` are layers on top of each other, each [its outputs, I].
        """
        product = self.product(graph, inputs, name, weights)
        return graph.node("Add", product, graph.constant(f"{name}.bias", self.as_stored(bias)))

    def product(self, graph: GraphBuilder, inputs: str, name: str, weights: Sequence[Array]) -> str:
        """The same without a bias."""
        self.products.setdefault(name, Product(graph, inputs, lambda: weights))
        shape = weights[0].shape[1], sum(map(len, weights))
        matrix = self._weight(graph, name, shape, lambda: [np.concatenate(weights, dtype=np.float32).T])
        return graph.node("MatMul", inputs, matrix)

    def embed(self, graph: GraphBuilder, tokens: str, table: Table, scale: float) -> str:
        """Rows of the table times a number: [..] -> [.., D]."""
        rows = graph.node("Gather", self._rows(graph, table), tokens)
        if scale == 1.0:
            return rows
        return graph.node("Mul", rows, graph.constant(f"{table.name}.sqrt_d_model", self.as_stored(np.float32(scale))))

    def logits(self, graph: GraphBuilder, inputs: str, table: Table, bias: Array | None) -> str:
        """Inputs times table^T, which becomes a constant when the graph is loaded, plus bias: [.., D] -> [.., V]."""
        self.products.setdefault(table.name, Product(graph, inputs, table.blocks))
        product = graph.node("MatMul", inputs, graph.node("Transpose", self._rows(graph, table), perm=[1, 0]))
        if bias is None:
            return product
        return graph.node("Add", product, graph.constant(LOGITS_BIAS, self.as_stored(bias)))

    def _rows(self, graph: GraphBuilder, table: Table) -> str:
        return self._weight(graph, table.name, table.shape, table.blocks)

    def _weight(
        self, graph: GraphBuilder, name: str, shape: tuple[int, int], blocks: Callable[[], Iterable[Array]]
    ) -> str:
        stored = helper.tensor_dtype_to_np_dtype(self.stored or self.dtype)
        tensor = Deferred(stored, shape, lambda: (block.astype(stored) for block in blocks()))
        weight = graph.constant(f"{name}.weight", tensor)
        return graph.node("Cast", weight, to=self.dtype) if self.stored else weight

    def as_stored(self, array: Array | np.generic) -> Array:
        """The array in the graph's element type."""
        return np.asarray(array, helper.tensor_dtype_to_np_dtype(self.dtype))


@dataclass(frozen=True)
class Int8Products:
    """int8 weights with a scale for each output, activations with one calibrated scale for each layer.

    QuantizeLinear and MatMulIntegerToFloat: whole numbers in between, so a row's result is the same in every batch.
    A layer without a scale keeps float products, with weights stored in float16.  The methods take and return what
    those of `FloatProducts` do.
    """

    scales: Mapping[str, ActivationScale]  # by layer: how its input is quantised
    dtype: int = TensorProto.FLOAT
    floats: FloatProducts = field(default_factory=lambda: FloatProducts(stored=TensorProto.FLOAT16))

    def linear(self, graph: GraphBuilder, inputs: str, name: str, weights: Sequence[Array], bias: Array) -> str:
        """Quantise the input, multiply integers, scale back and add the bias: [.., I] -> [.., O]."""
        if name not in self.scales:
            return self.floats.linear(graph, inputs, name, weights, bias)
        integers, scales = _quantized(lambda: weights, (len(bias), weights[0].shape[1]))
        transposed = Deferred(integers.dtype, integers.shape[::-1], lambda: [np.concatenate(list(integers.blocks())).T])
        matrix = graph.constant(f"{name}.int8", transposed)
        bias_name = graph.constant(f"{name}.bias", bias)
        return self._product(graph, inputs, name, matrix, graph.constant(f"{name}.scales", scales), bias_name)

    def embed(self, graph: GraphBuilder, tokens: str, table: Table, scale: float) -> str:
        """The table's integers, and its scales times a number: [..] -> [.., D]."""
        integers, scales = _quantized(table.blocks, table.shape)
        factor = np.float32(scale)
        row_scales = Deferred(
            scales.dtype, (*scales.shape, 1), lambda: ((block * factor)[:, None] for block in scales.blocks())
        )  # [V, 1]
        rows = graph.node("Gather", graph.constant(f"{table.name}.int8", integers), tokens)
        of_rows = graph.node("Gather", graph.constant(f"{table.name}.row_scales", row_scales), tokens)
        return graph.node("Mul", graph.node("Cast", rows, to=TensorProto.FLOAT), of_rows)

    def logits(self, graph: GraphBuilder, inputs: str, table: Table, bias: Array | None) -> str:
        """Inputs times the table's integers, whose transpose becomes a constant when the graph is loaded, plus bias."""
        if table.name not in self.scales:
            return self.floats.logits(graph, inputs, table, bias)
        rows, scales = self._rows(graph, table)
        transposed = graph.node("Transpose", rows, perm=[1, 0])
        bias_name = "" if bias is None else graph.constant(LOGITS_BIAS, bias)
        return self._product(graph, inputs, table.name, transposed, scales, bias_name)

    def _rows(self, graph: GraphBuilder, table: Table) -> tuple[str, str]:
        """Integers [V, D] and scales [V]."""
        integers, scales = _quantized(table.blocks, table.shape)
        return graph.constant(f"{table.name}.int8", integers), graph.constant(f"{table.name}.scales", scales)

    def _product(self, graph: GraphBuilder, inputs: str, name: str, matrix: str, weight_scales: str, bias: str) -> str:
        """Float inputs [.., I] times an int8 matrix [I, O]: [.., O], float again."""
        activation = self.scales[name]
        scale = graph.constant(f"{name}{SCALE_NAME}", np.float32(activation.scale))
        zero_point = graph.constant(f"{name}{ZERO_POINT_NAME}", np.uint8(activation.zero_point))
        integers = graph.node("QuantizeLinear", inputs, scale, zero_point)
        factors = (integers, matrix, scale, weight_scales, zero_point, "", bias)
        return graph.node("MatMulIntegerToFloat", *factors, domain=CONTRIB_DOMAIN)


Products = FloatProducts | Int8Products
