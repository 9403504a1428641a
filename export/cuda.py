"""The graphs for a GPU: every node has a CUDA kernel, and the host computes nothing but shapes.

They differ from those of `graphs.py` where ONNX Runtime would give a node to the CPU (sums of shapes), and where keys
and values go.

Axes: as in `graphs.py`; A arrays of keys or values (two a layer).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from export.builder import CONTRIB_DOMAIN, GraphBuilder, WeightFile
from export.graphs import DECODER_STEP_NAME, ENCODER_NAME, DecoderStepGraph, EncoderGraph
from export.heads import usual_heads
from export.linear import Products, State
from export.scorer import SCORER_NAME, ScorerGraph
from export.transformer_graph import INT64
from model.config import ModelConfig
from model.manifest import AlignmentHeads


def draw_cuda_graphs(
    config: ModelConfig, state: State, products: Products, alignment: AlignmentHeads | None = None
) -> dict[str, GraphBuilder]:
    """Return a model's graphs for a GPU by file name; `alignment` are the scorer's heads, if not the usual ones.

    Raises:
        ValueError: the model has relative positions.
    """
    if config.relative_distance:
        raise ValueError("a model with relative positions (T5, MADLAD) has no graphs for a GPU: leave fp16 out")
    weights = WeightFile()
    return {
        ENCODER_NAME: CudaEncoderGraph(config, state, products, weights).graph,
        DECODER_STEP_NAME: CudaStepGraph(config, state, products, weights).graph,
        SCORER_NAME: CudaScorerGraph(config, state, products, weights, alignment or usual_heads(config)).graph,
    }


class CudaEncoderGraph(EncoderGraph):
    """source_ids int64 [B, S], source_lengths int32 [B] -> cross [A, B, H, S, d]: key and value of each layer.

    It takes bounds int32 [3 B + 2], too, with which attention is one kernel: lengths, then where each sentence begins
    and the last one ends among the B * S queries, and the same of the keys.
    """

    def __init__(self, *args: Any) -> None:
        self.bounds = "bounds"
        super().__init__(*args)
        self.graph.input(self.bounds, TensorProto.INT32, ["3 * B + 2"])

    def self_attention(self, name: str, states: str) -> str:
        """Self-attention as in `EncoderGraph`, with the operator whose CUDA kernels always take lengths."""
        names = [f"{name}.{part}.states" for part in ("query", "key", "value")]
        parts = self.graph.nodes("Split", self.packed_projections(name, states), names=names, axis=-1, num_outputs=3)
        inputs, heads = [*parts, "", self.bounds], self.config.num_heads
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
    """The step of `DecoderStepGraph`, whose K new columns may lie anywhere; scores are float32 from the logits on.

    In place of `columns` it takes new_columns int64 [B, H, K, 3]: sentence, head and column of each new key and value.
    """

    def declare_columns(self) -> str:
        """Any columns: those that no hypothesis attends to any more are used again, and nothing ever moves."""
        return self.graph.input("new_columns", INT64, ["B", self.config.num_heads, "K", 3])

    def write(self, cache: str, update: str, written: str) -> None:
        """[B, H, K, d] into [B, H, T, d]."""
        self.graph.node("ScatterND", cache, self.step.columns, update, name=written)

    def logits(self, states: str) -> str:
        """[B, K, D] -> float32 [B, K, V]."""
        return self.graph.node("Cast", super().logits(states), to=TensorProto.FLOAT)

    def put(self, logits: str, places: str, values: str) -> str:
        """As in `DecoderStepGraph`: ScatterElements copies all logits on a GPU, even for no edit."""
        column = self.graph.node("Reshape", places, self.graph.constant("one_index", np.array([-1, 1])))
        return self.graph.node("ScatterND", logits, column, values)

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


class CudaScorerGraph(ScorerGraph):
    """The scorer of `ScorerGraph`, whose outputs are computed in float32; it shows the weights of no single head.

    In place of source_lengths it takes source_mask [B, 1, 1, S], added to the products of queries and keys.
    """

    def declare_source_mask(self) -> str:
        """An input: to compute it from lengths takes sums of shapes."""
        return self.graph.input("source_mask", self.dtype, ["B", 1, 1, "S"])

    def self_attention(self, name: str, states: str) -> str:
        """As in `ScorerGraph`, with the operator of the encoder."""
        names = [f"{name}.{part}.states" for part in ("query", "key", "value")]
        parts = self.graph.nodes("Split", self.packed_projections(name, states), names=names, axis=-1, num_outputs=3)
        node, heads = self.graph.node, self.config.num_heads
        mixed = node("MultiHeadAttention", *parts, domain=CONTRIB_DOMAIN, num_heads=heads, unidirectional=1)
        return self.linear(f"{name}.output", mixed)

    def as_float(self, value: str) -> str:
        """A cast."""
        return self.graph.node("Cast", value, to=TensorProto.FLOAT)

    def show(self, name: str, weights: str, axes: Sequence[str | int]) -> None:
        """Nothing."""
