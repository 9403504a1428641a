"""The graph that reads a given translation in one pass: how likely each of its tokens is, and what it attends to.

Its weights are those of the step graph, under the same names.  The heads of `AlignmentHeads` are averaged in the graph,
so that one [T, S] matrix leaves it and not one for each head.

Axes: as in `graphs.py`; T target tokens, end-of-sentence included.
"""

from typing import Any

import numpy as np
from onnx import helper

from export.builder import WeightFile
from export.linear import Products, State
from export.transformer_graph import FLOAT, INT32, INT64, TransformerGraph, cross_names
from model.config import Architecture, ModelConfig
from model.manifest import AlignmentHeads

SCORER_NAME = "scorer.onnx"
_MASKED = np.float32(-1e9)  # added to the products of a query and the keys of padding


class ScorerGraph(TransformerGraph):
    """Log-probabilities and alignment of given translations.

    Inputs: tokens int64 [B, T], the decoder's inputs, begin-of-sentence first; next_tokens int64 [B, T], those that
        follow; source_lengths int32 [B]; cross_key_i, cross_value_i float32 [B, H, S, d] of each decoder layer i.
    Outputs: log_probs float32 [B, T] of `next_tokens`, and attention float32 [B, T, S], rows that sum up to 1.  Padding
        on the right of either side changes nothing, but the row of the last token with shifted heads.  Further, of the
        first `num_shown` sentences, int64 [1], the weights of each layer's heads: cross_weights_i [num_shown, H, T, S].
    """

    def __init__(
        self, config: ModelConfig, state: State, products: Products, weights: WeightFile, alignment: AlignmentHeads
    ) -> None:
        super().__init__("scorer", config, state, products, weights)
        self.alignment = alignment
        self.aligning: list[str] = []  # weights of each chosen head: [B, 1, T, S]
        tokens = self.graph.input("tokens", INT64, ["B", "T"])
        self.next_tokens = self.graph.input("next_tokens", INT64, ["B", "T"])
        for layer in range(config.num_decoder_layers):
            for name in cross_names(layer):
                self.graph.input(name, self.dtype, self.head_shape("S"))
        self.source_mask = self.declare_source_mask()
        self.bias = self.relative_bias_of_all("decoder", tokens)
        states = self.embed("decoder", tokens, self.first_positions("decoder", tokens))
        for layer in range(config.num_decoder_layers):
            states = self.layer(layer, states)
        self.log_probs(self.final_norm("decoder", states))
        self.attention()

    def declare_source_mask(self) -> str:
        """What hides the padding of the source: lengths [B], an input, -> [B, 1, 1, S]."""
        node, constant = self.graph.node, self.graph.constant
        lengths = self.graph.input("source_lengths", INT32, ["B"])
        begin, step = (node("Squeeze", constant(f"number_{value}", np.array([value]))) for value in (0, 1))
        num_columns = node("Squeeze", node("Shape", cross_names(0)[0], start=2, end=3))
        columns = node("Range", begin, num_columns, step)  # [S]
        ends = node("Reshape", node("Cast", lengths, to=INT64), constant("over_columns", np.array([-1, 1, 1, 1])))
        kept, hidden = constant("kept", np.float32(0.0)), constant("hidden", _MASKED)
        return node("Where", node("Less", columns, ends), kept, hidden)

    def layer(self, layer: int, states: str) -> str:
        """[B, T, D] -> [B, T, D]."""
        name = f"decoder.layers.{layer}"
        own, cross, feed_forward = (f"{name}.{part}" for part in ("self_attention", "cross_attention", "feed_forward"))
        states = self.residual(f"{own}_norm", states, lambda x: self.self_attention(own, x))
        states = self.residual(f"{cross}_norm", states, lambda x: self.cross_attention(cross, layer, x))
        return self.residual(f"{feed_forward}_norm", states, lambda x: self.feed_forward(feed_forward, x))

    def self_attention(self, name: str, states: str) -> str:
        """Section 3.2.3: each token attends to itself and to those before it; or an SSRU, token after token."""
        if self.config.architecture is Architecture.SSRU:
            return self.ssru(name, states)
        names = [f"{name}.{part}.states" for part in ("query", "key", "value")]
        parts = self.graph.nodes("Split", self.packed_projections(name, states), names=names, axis=-1, num_outputs=3)
        heads = self.config.num_heads
        inputs = [*parts, self.bias] if self.bias else parts
        mixed = self.graph.node("Attention", *inputs, q_num_heads=heads, kv_num_heads=heads, is_causal=1)
        return self.linear(f"{name}.output", mixed)

    def ssru(self, name: str, states: str) -> str:
        """As of `model.layers.Ssru`: [B, T, D] -> [B, T, D]."""
        node, constant = self.graph.node, self.graph.constant
        products = self.linear(f"{name}.input_forget", states, [f"{name}.input", f"{name}.forget"])
        names = [f"{name}.{part}.states" for part in ("input", "forget", "last", "cells")]
        new, forget = self.graph.nodes("Split", products, names=names[:2], axis=-1, num_outputs=2)
        first = node("Gather", new, constant("first_token", np.array([0])), axis=1)
        zeros = node("Reshape", node("Sub", first, first), constant("one_token", np.array([0, -1])))  # [B, D]
        cell, x, f, change, kept, following, seen = (f"{name}.scan_{number}" for number in range(7))
        nodes = [
            helper.make_node("Sub", [cell, x], [change]),
            helper.make_node("Mul", [f, change], [kept]),
            helper.make_node("Add", [x, kept], [following]),
            helper.make_node("Identity", [following], [seen]),
        ]
        ends = [helper.make_tensor_value_info(end, self.dtype, None) for end in (cell, x, f, following, seen)]
        body = helper.make_graph(nodes, "ssru", ends[:3], ends[3:])
        inputs = [zeros, new, node("Sigmoid", forget)]
        axes: dict[str, Any] = {"num_scan_inputs": 2, "scan_input_axes": [1, 1], "scan_output_axes": [1]}
        self.graph.nodes("Scan", *inputs, names=names[2:], body=body, **axes)
        return node("Relu", names[3])

    def cross_attention(self, name: str, layer: int, states: str) -> str:
        """Section 3.2.2, in single operators, since the weights are wanted: [B, T, D] -> [B, T, D]."""
        node, constant = self.graph.node, self.graph.constant
        key, value = cross_names(layer)
        query = self.heads_apart(self.linear(f"{name}.query", states), 1)  # [B, H, T, d]
        query = node("Mul", query, self.parameter("head_scale", np.array(self.config.d_head**-0.5)))
        products = node("MatMul", query, node("Transpose", key, perm=[0, 1, 3, 2]))  # [B, H, T, S]
        weights = node("Softmax", node("Add", products, self.source_mask), axis=-1)
        self.show(f"cross_weights_{layer}", weights, ["T", "S"])
        for head in [head for of_layer, head in self.alignment.heads if of_layer == layer]:
            one = node("Gather", weights, constant(f"head_{head}", np.array([head])), axis=1)
            self.aligning.append(self.as_float(one))
        mixed = node("Transpose", node("MatMul", weights, value), perm=[0, 2, 1, 3])  # [B, T, H, d]
        merged = node("Reshape", mixed, constant("merged", np.array([0, 0, self.config.attention_width])))
        return self.linear(f"{name}.output", merged)

    def log_probs(self, states: str) -> None:
        """The log-probability of each next token: [B, T, D] -> [B, T]."""
        node, constant = self.graph.node, self.graph.constant
        last = constant("last_axis", np.array([-1]))
        wanted = node("Unsqueeze", self.next_tokens, last)  # [B, T, 1]
        given = node(
            "GatherElements", node("LogSoftmax", self.as_float(self.all_logits(states)), axis=-1), wanted, axis=2
        )
        self.graph.output(node("Squeeze", given, last, name="log_probs"), FLOAT, ["B", "T"])

    def as_float(self, value: str) -> str:
        """The value in float32, as outputs are computed."""
        return value

    def attention(self) -> None:
        """The mean of the chosen heads: [B, T, S]."""
        node, constant = self.graph.node, self.graph.constant
        total = self.aligning[0]
        for weights in self.aligning[1:]:  # one by one: ReduceMean's order of sums depends on B
            total = node("Add", total, weights)
        mean = node("Mul", total, constant("share", np.float32(1 / len(self.aligning))))  # [B, 1, T, S]
        if self.alignment.is_shifted:
            one, last, end, rows = (
                constant(f"row_{name}", np.array([row]))
                for name, row in (("one", 1), ("last", -1), ("end", 1 << 31), ("axis", 2))
            )
            ahead = [node("Slice", mean, begin, end, rows) for begin in (one, last)]  # the last token has none after it
            mean = node("Concat", *ahead, axis=2)
        self.graph.output(
            node("Squeeze", mean, constant("axis", np.array([1])), name="attention"), FLOAT, ["B", "T", "S"]
        )
