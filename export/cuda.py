"""The graphs for a GPU: every node has a CUDA kernel, and the host computes nothing but shapes.

They differ from those of `graphs.py` where ONNX Runtime would give a node to the CPU (sums of shapes), and where keys
and values move: on a GPU they move between two memories, all layers at once, by graphs of their own.

Axes: as in `graphs.py`; A arrays of keys or values (two a layer), N slots before and M after, R = N * H * T rows.
"""

import numpy as np
from onnx import TensorProto

from export.builder import CONTRIB_DOMAIN, GraphBuilder, WeightFile
from export.graphs import DECODER_STEP_NAME, ENCODER_NAME, DecoderStepGraph, EncoderGraph
from export.linear import Products, State
from export.transformer_graph import INT32
from model.config import ModelConfig

ARRANGE_NAME = "arrange.onnx"
EXTEND_NAME = "extend.onnx"


def draw_cuda_graphs(config: ModelConfig, state: State, products: Products) -> dict[str, GraphBuilder]:
    """Return a model's graphs for a GPU by file name.

    Raises:
        ValueError: the model has relative positions.
    """
    if config.relative_distance:
        raise ValueError("a model with relative positions (T5, MADLAD) has no graphs for a GPU: leave fp16 out")
    weights = WeightFile()
    return {
        ENCODER_NAME: CudaEncoderGraph(config, state, products, weights).graph,
        DECODER_STEP_NAME: CudaStepGraph(config, state, products, weights).graph,
        ARRANGE_NAME: arrange_graph(config, products.dtype, weights),
        EXTEND_NAME: arrange_graph(config, products.dtype, weights, extends=True),
    }


class CudaEncoderGraph(EncoderGraph):
    """source_ids int64 [B, S], source_lengths int32 [B] -> cross [A, B, H, S, d]: key and value of each layer."""

    def self_attention(self, name: str, states: str) -> str:
        """Self-attention as in `EncoderGraph`, with the operator whose CUDA kernels always take lengths."""
        names = [f"{name}.{part}.states" for part in ("query", "key", "value")]
        parts = self.graph.nodes("Split", self.packed_projections(name, states), names=names, axis=-1, num_outputs=3)
        inputs, heads = [*parts, "", "source_lengths"], self.config.num_heads
        mixed = self.graph.node("MultiHeadAttention", *inputs, domain=CONTRIB_DOMAIN, num_heads=heads)
        return self.linear(f"{name}.output", mixed)

    def cross_keys_and_values(self, memory: str) -> None:
        """Return all keys and values as one output, so that one node moves them into the caches."""
        layers = range(self.config.num_decoder_layers)
        parts = [f"decoder.layers.{layer}.cross_attention.{part}" for layer in layers for part in ("key", "value")]
        packed = self.linear("decoder.cross_attention.key_value", memory, parts)  # [B, S, A * D]
        sizes = np.array([0, 0, len(parts), self.config.num_heads, self.config.d_head])
        split = self.graph.node("Reshape", packed, self.graph.constant("arrays_in_heads", sizes))
        cross = self.graph.node("Transpose", split, name="cross", perm=[2, 0, 3, 1, 4])
        self.graph.output(cross, self.dtype, [len(parts), "B", self.config.num_heads, "S", self.config.d_head])


class CudaStepGraph(DecoderStepGraph):
    """The step of `DecoderStepGraph` with the same inputs and outputs; scores are float32 from the logits on."""

    def logits(self, states: str) -> str:
        """[B, K, D] -> float32 [B, K, V]."""
        return self.graph.node("Cast", super().logits(states), to=TensorProto.FLOAT)

    def shape_of_logits(self, logits: str) -> str:
        """[3]: a Shape is no work for a device; the Concat of `DecoderStepGraph` would run on the CPU."""
        return self.graph.node("Shape", logits)

    def num_ranked(self, ranked: str) -> str:
        """[1]: the number of the first C blocks, of which there may be fewer; a Min would run on the CPU."""
        zero, axis = (
            self.graph.constant(name, np.array([value])) for name, value in (("begin", 0), ("blocks_axis", 1))
        )
        first = self.graph.node("Slice", ranked, zero, self.step.num_candidates, axis)
        return self.graph.node("Shape", first, start=1, end=2)


def arrange_graph(config: ModelConfig, dtype: int, weights: WeightFile, *, extends: bool = False) -> GraphBuilder:
    """Draw the graph that moves slots of a memory in another order, with other columns, to another memory.

    Inputs: source [A, R, d]; with `extends` a second memory, added [A, R', d], which has the rows R and beyond;
        rows int32 [M, 1, T], the row of each wanted column in the slot's first head;
        strides int32 [M, 1, 1], rows between two heads of that slot.
    Output: target [A, M, H, T, d].
    """
    graph = GraphBuilder("extend" if extends else "arrange", weights)
    source = graph.input("source", dtype, ["A", "R", config.d_head])
    if extends:
        source = graph.node("Concat", source, graph.input("added", dtype, ["A", "R2", config.d_head]), axis=1)
    rows, strides = graph.input("rows", INT32, ["M", 1, "T"]), graph.input("strides", INT32, ["M", 1, 1])
    heads = graph.constant("heads", np.arange(config.num_heads, dtype=np.int32)[None, :, None])
    places = graph.node("Add", rows, graph.node("Mul", strides, heads))  # [M, H, T]
    target = graph.node("Gather", source, places, name="target", axis=1)
    graph.output(target, dtype, ["A", "M", config.num_heads, "T", config.d_head])
    return graph
