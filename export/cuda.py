"""The graphs as a GPU runs them best: every node has a CUDA kernel, and nothing but shapes is computed on the host.

Differs from `graphs.py` where that draws nodes which ONNX Runtime gives to the CPU (sums of shapes), and where keys and
values move: on a GPU they move between two memories, all layers at once, by the graphs at the end of this file.

Axes: as in `graphs.py`; A arrays of keys or values (two a layer), N slots before and M after, R = N * H * T rows.
"""

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from export.builder import GraphBuilder, WeightFile
from export.graphs import INT32, DecoderStepGraph, EncoderGraph
from model.config import ModelConfig


class CudaEncoderGraph(EncoderGraph):
    """source_ids int64 [B, S], source_lengths int32 [B] -> cross [A, B, H, S, d]: key and value of each layer."""

    def self_attention(self, name: str, states: str) -> str:
        """As in `EncoderGraph`, with the operator whose CUDA kernels take lengths in every case."""
        names = [f"{name}.{part}.states" for part in ("query", "key", "value")]
        parts = self.graph.nodes("Split", self.packed_projections(name, states), names=names, axis=-1, num_outputs=3)
        inputs = [*parts, "", "source_lengths"]
        mixed = self.graph.contrib("MultiHeadAttention", *inputs, num_heads=self.config.num_heads)
        return self.linear(f"{name}.output", mixed)

    def cross_keys_and_values(self, memory: str) -> None:
        """All of them in one output, so that one node moves them into the caches."""
        layers = range(self.config.num_decoder_layers)
        parts = [f"decoder.layers.{layer}.cross_attention.{part}" for layer in layers for part in ("key", "value")]
        packed = self.packed("decoder.cross_attention.key_value", memory, parts)  # [B, S, A * D]
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
        """[3]: a Shape is no work for a device; the Concat of the other graph would be the CPU's."""
        return self.graph.node("Shape", logits)

    def num_ranked(self, ranked: str) -> str:
        """[1]: as long as the first C blocks, of which there may be fewer; a Min would be the CPU's."""
        zero, axis = (
            self.graph.constant(name, np.array([value])) for name, value in (("begin", 0), ("blocks_axis", 1))
        )
        first = self.graph.node("Slice", ranked, zero, self.step.num_candidates, axis)
        return self.graph.node("Shape", first, start=1, end=2)


def arrange_graph(config: ModelConfig, dtype: int, weights: WeightFile) -> GraphBuilder:
    """Slots of a memory in another order, with other columns, in another memory.

    Inputs: source [A, R, d]; rows int32 [M, 1, T], the row of each wanted column in the slot's first head; strides
        int32 [M, 1, 1], rows between two heads of that slot.
    Output: target [A, M, H, T, d].
    """
    return _moving_graph("arrange", config, dtype, weights, lambda _, source: source)


def extend_graph(config: ModelConfig, dtype: int, weights: WeightFile) -> GraphBuilder:
    """`arrange_graph` over two memories; a second input, added [A, R', d], has the rows R and beyond."""

    def both(graph: GraphBuilder, source: str) -> str:
        added = graph.input("added", dtype, ["A", "R2", config.d_head])
        return graph.node("Concat", source, added, axis=1)

    return _moving_graph("extend", config, dtype, weights, both)


def _moving_graph(
    name: str, config: ModelConfig, dtype: int, weights: WeightFile, memory: Callable[[GraphBuilder, str], str]
) -> GraphBuilder:
    graph = GraphBuilder(name, weights)
    source = memory(graph, graph.input("source", dtype, ["A", "R", config.d_head]))
    rows, strides = graph.input("rows", INT32, ["M", 1, "T"]), graph.input("strides", INT32, ["M", 1, 1])
    heads = graph.constant("heads", np.arange(config.num_heads, dtype=np.int32)[None, :, None])
    places = graph.node("Add", rows, graph.node("Mul", strides, heads))  # [M, H, T]
    target = graph.node("Gather", source, places, name="target", axis=1)
    graph.output(target, dtype, ["A", "M", config.num_heads, "T", config.d_head])
    return graph
