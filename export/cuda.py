"""The graphs for a GPU: every node has a CUDA kernel, and the host computes nothing but shapes.

They differ from those of `graphs.py` where ONNX Runtime would give a node to the CPU (sums of shapes), and where keys
and values go.

Axes: as in `graphs.py`; A arrays of keys or values (two a layer).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from export.builder import CONTRIB_DOMAIN, GraphBuilder, WeightFile
from export.fused import FusedGraph
from export.graphs import DECODER_STEP_NAME, ENCODER_NAME, DecoderStepGraph, EncoderGraph
from export.heads import usual_heads
from export.linear import FloatProducts, State
from export.scorer import SCORER_NAME, ScorerGraph
from export.transformer_graph import FLOAT, INT64, cache_names, cross_names
from model.config import ModelConfig
from model.manifest import AlignmentHeads

PIECE_WIDTH = 8  # of a key or value: what one thread copies


def draw_cuda_graphs(
    config: ModelConfig, state: State, products: FloatProducts, alignment: AlignmentHeads | None = None
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


class CudaEncoderGraph(FusedGraph, EncoderGraph):
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


class CudaStepGraph(FusedGraph, DecoderStepGraph):
    """The step of `DecoderStepGraph`, whose K new columns may lie anywhere; scores are float32 from the logits on.

    In place of `columns` it takes new_places int64 [B, K, 1, 1, 4]: sentence, 0, column and 0 for each hypothesis.
    self_key_i and self_value_i are [B, H, T, pieces, d / pieces] here: a kernel writes a piece at a time.
    """

    def declare_columns(self) -> str:
        """Any columns: those that no hypothesis attends to any more are used again, and nothing ever moves."""
        places = self.graph.input("new_places", INT64, ["B", "K", 1, 1, 4])
        heads, pieces = np.indices(self.pieces[:2])
        zeros = np.zeros_like(heads)
        within = self.graph.constant("places_within", np.stack([zeros, heads, zeros, pieces], axis=-1))
        return self.graph.node("Add", places, within)  # [B, K, H, pieces, 4]

    @property
    def pieces(self) -> tuple[int, int, int]:
        """Heads, pieces of a head's key, and the width of one."""
        width = math.gcd(self.config.d_head, PIECE_WIDTH)
        return self.config.num_heads, self.config.d_head // width, width

    def cache_shape(self) -> list[str | int]:
        """In pieces."""
        num_heads, *pieces = self.pieces
        return ["B", num_heads, "T", *pieces]

    def self_attention(self, name: str, layer: int, states: str) -> str:
        """As in `DecoderStepGraph`; no key and no value has a bias."""
        node, constant = self.graph.node, self.graph.constant
        layers = [f"{name}.{part}" for part in ("query", "key", "value")]
        packed = self.product(f"{name}.query_key_value", states, layers)
        names = [f"{part}.states" for part in layers]
        query, *new = self.graph.nodes("Split", packed, names=names, axis=-1, num_outputs=3)
        in_pieces = constant("in_pieces", np.array([0, 0, *self.pieces]))
        caches = []
        for cache, update in zip(cache_names(self.config, layer), new, strict=True):
            pieces = node("Reshape", update, in_pieces)  # [B, K, H, pieces, d / pieces]
            written = node("ScatterND", cache, self.step.columns, pieces, name=f"{cache}_out")
            self.graph.output(written, self.dtype, self.cache_shape())
            caches.append(node("Reshape", written, constant("whole_heads", np.array([0, 0, 0, -1]))))
        mixed = self.mixed(name, query, *caches, "", self.self_mask)
        return self.last_product(f"{name}.output", mixed, self.state[f"{name}.value.bias"])

    def cross_attention(self, name: str, layer: int, states: str) -> str:
        """As in `DecoderStepGraph`."""
        query = self.product(f"{name}.query", states)
        return self.linear(f"{name}.output", self.mixed(name, query, *cross_names(layer), self.step.source_lengths))

    def mixed(self, name: str, query: str, *others: str) -> str:
        """What hypotheses attend to: [B, K, D], of keys, values, lengths and a mask; adds the query's bias."""
        key, value, *masks = others
        bias = np.pad(self.state[f"{name}.query.bias"], (0, 2 * self.config.attention_width))
        inputs = [query, key, value, self.parameter(f"{name}.query_bias", bias), *masks]
        heads = self.config.num_heads
        return self.graph.node("MultiHeadAttention", *inputs, domain=CONTRIB_DOMAIN, num_heads=heads)

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

    def best(self, log_probs: str) -> None:
        """The C best extensions of a sentence's K hypotheses, as those that cost least.

        Of the smallest numbers of a long row, up to 32 are found in one pass by many blocks of threads.  For the
        largest, ONNX Runtime sorts the row in parts, which takes longer the more sentences there are.
        """
        node, constant = self.graph.node, self.graph.constant
        costs = node("Sub", node("Neg", self.step.scores), log_probs)
        of_sentence = node("Reshape", costs, constant("of_sentence", np.array([0, -1])))  # [B, K * V]
        names = ["least_costs", "candidate_ids"]
        least, _ = self.graph.nodes("TopK", of_sentence, self.step.num_candidates, names=names, axis=1, largest=0)
        self.graph.output(node("Neg", least, name="candidate_scores"), FLOAT, ["B", "C"])
        self.graph.output("candidate_ids", INT64, ["B", "C"])
        # Where one of a hypothesis' logits is NaN or infinite, all of its log-probabilities are NaN.
        begin, end, axis = (constant(f"number_{number}", np.array([number])) for number in (0, 1, 2))
        first = node("Slice", log_probs, begin, end, axis)  # [B, K, 1]
        node("ReduceSum", first, constant("but_first", np.array([1, 2])), name="check", keepdims=0)
        self.graph.output("check", FLOAT, ["B"])


class CudaScorerGraph(FusedGraph, ScorerGraph):
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
