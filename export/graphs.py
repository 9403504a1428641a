"""The two graphs of a bundle, drawn from a model's parameters: the encoder, and one step of the decoder.

The encoder graph ends in the cross-attention keys and values, so they are computed once a sentence.  The step graph
ends in log-softmax and top-k, so logits never leave it, and its self-attention cache is updated in place: every row has
a length of its own, a new key goes to the column its row has reached, and no row pays for another's age.

Knows neither files nor precisions (`linear.py`).  Section numbers are those of Vaswani et al. 2017.
Axes: B sentences, K hypotheses of a sentence, R = B * K rows, S source, T cache columns, D width, H heads, d = D / H,
V vocabulary, E edits, C candidates, L decoder layers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from export.builder import CONTRIB_DOMAIN, GraphBuilder, WeightFile
from export.linear import Products
from export.state import State, linear_weights, packed_weights, sinusoidal_positions
from model.config import ModelConfig, NormPlacement

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
LAYER_NORM_EPSILON = 1e-5  # as in model/layers.py

Sublayer = Callable[[str], str]  # name of a value -> name of a value


def cross_names(layer: int) -> list[str]:
    """Names of a decoder layer's cross-attention keys and values, in both graphs."""
    return [f"cross_key_{layer}", f"cross_value_{layer}"]


def cache_names(layer: int) -> list[str]:
    """Names of a decoder layer's self-attention keys and values."""
    return [f"self_key_{layer}", f"self_value_{layer}"]


class TransformerGraph:
    """What both graphs are made of: embeddings, residuals, norms, the feed-forward network."""

    def __init__(self, name: str, config: ModelConfig, state: State, products: Products, weights: WeightFile) -> None:
        self.graph = GraphBuilder(name, weights)
        self.config = config
        self.state = state
        self.products = products

    def embed(self, tokens: str, positions: str) -> str:
        """Sections 3.4 and 3.5: rows of the embedding times sqrt(D), plus positions; [..] -> [.., D]."""
        rows = self.products.embed(self.graph, tokens, self.state["embedding.weight"])
        return self.graph.node("Add", rows, positions)

    def position_table(self) -> str:
        """[P, D]."""
        table = sinusoidal_positions(self.config.max_positions, self.config.d_model)
        return self.graph.constant("positions", table)

    def residual(self, name: str, states: str, sublayer: Sublayer) -> str:
        """Section 5.4, or pre-norm (Xiong et al. 2020): a sub-layer, its residual sum and the norm called `name`."""
        if self.config.norm_placement is NormPlacement.PRE:
            return self.graph.node("Add", states, sublayer(self.norm(name, states)))
        return self.norm(name, self.graph.node("Add", states, sublayer(states)))

    def norm(self, name: str, states: str) -> str:
        """Layer normalisation over D.  Not joined with the sum before it: that operator is slow on CPU."""
        weights = (f"{name}.weight", f"{name}.bias")
        scale, bias = (self.graph.constant(weight, self.state[weight]) for weight in weights)
        return self.graph.node("LayerNormalization", states, scale, bias, axis=-1, epsilon=LAYER_NORM_EPSILON)

    def final_norm(self, stack: str, states: str) -> str:
        """The norm after a whole stack, which only pre-norm has."""
        return self.norm(f"{stack}.norm", states) if self.config.norm_placement is NormPlacement.PRE else states

    def feed_forward(self, name: str, states: str) -> str:
        """Equation 2: max(0, x W1 + b1) W2 + b2."""
        inner = self.graph.node("Relu", self.linear(f"{name}.inner", states))
        return self.linear(f"{name}.outer", inner)

    def linear(self, name: str, states: str) -> str:
        """One linear layer: [.., I] -> [.., O]."""
        return self.products.linear(self.graph, states, linear_weights(self.state, name))

    def packed(self, name: str, states: str, parts: list[str]) -> str:
        """Several linear layers with the same input as one product: [.., I] -> [.., sum of O]."""
        return self.products.linear(self.graph, states, packed_weights(self.state, name, parts))

    def head_shape(self, rows: str, columns: str) -> list[str | int]:
        """Shape of keys or values with the heads apart."""
        return [rows, self.config.num_heads, columns, self.config.d_head]


class EncoderGraph(TransformerGraph):
    """source_ids int64 [B, S], source_lengths int32 [B] -> cross_key_i, cross_value_i float32 [B, H, S, d]."""

    def __init__(self, config: ModelConfig, state: State, products: Products, weights: WeightFile) -> None:
        super().__init__("encoder", config, state, products, weights)
        self.source = self.graph.input("source_ids", INT64, ["B", "S"])
        self.source_lengths = self.graph.input("source_lengths", INT32, ["B"])
        self.num_columns = self.graph.node("Shape", self.source, start=1, end=2)  # [1]: S
        self.attended = self.attended_columns()
        states = self.embed(self.source, self.positions())
        for layer in range(config.num_encoder_layers):
            states = self.layer(f"encoder.layers.{layer}", states)
        self.cross_keys_and_values(self.final_norm("encoder", states))

    def positions(self) -> str:
        """The table's first S rows: [S, D]."""
        begin = self.graph.constant("zero", np.array([0]))
        return self.graph.node("Slice", self.position_table(), begin, self.num_columns, begin)

    def attended_columns(self) -> list[str]:
        """Each sentence's last column, int32 [B], and the number of columns, int32 [1], as attention wants them."""
        one = self.graph.constant("one", np.array(1, np.int32))
        last = self.graph.node("Sub", self.source_lengths, one)
        return [last, self.graph.node("Cast", self.num_columns, to=INT32)]

    def layer(self, name: str, states: str) -> str:
        """[B, S, D] -> [B, S, D]."""
        attention, feed_forward = f"{name}.self_attention", f"{name}.feed_forward"
        states = self.residual(f"{attention}_norm", states, lambda x: self.self_attention(attention, x))
        return self.residual(f"{feed_forward}_norm", states, lambda x: self.feed_forward(feed_forward, x))

    def self_attention(self, name: str, states: str) -> str:
        """Section 3.2.2 over the first `source_lengths` columns: [B, S, D] -> [B, S, D].

        Each sentence is attended over its own length, so padding costs nothing here and changes nothing.
        """
        parts = [f"{name}.{part}" for part in ("query", "key", "value")]
        packed = self.packed(f"{name}.query_key_value", states, parts)  # [B, S, 3D]
        inputs = [packed, "", "", "", "", *self.attended]
        heads = self.config.num_heads
        mixed = self.graph.contrib("GroupQueryAttention", *inputs, num_heads=heads, kv_num_heads=heads, causal=0)
        return self.linear(f"{name}.output", mixed)

    def cross_keys_and_values(self, memory: str) -> None:
        """Every decoder layer's keys and values of the memory [B, S, D], in one product; the graph's outputs."""
        layers = range(self.config.num_decoder_layers)
        parts = [f"decoder.layers.{layer}.cross_attention.{part}" for layer in layers for part in ("key", "value")]
        names = [name for layer in layers for name in cross_names(layer)]
        packed = self.packed("decoder.cross_attention.key_value", memory, parts)  # [B, S, 2L * D]
        heads_apart = np.array([0, 0, len(parts) * self.config.num_heads, self.config.d_head])
        shape = self.graph.constant("heads_apart", heads_apart)
        heads = self.graph.node("Transpose", self.graph.node("Reshape", packed, shape), perm=[0, 2, 1, 3])
        self.graph.nodes("Split", heads, names=names, axis=1, num_outputs=len(names))  # each [B, H, S, d]
        for name in names:
            self.graph.output(name, FLOAT, self.head_shape("B", "S"))


@dataclass(frozen=True, slots=True)
class StepInputs:
    """Names of what the layers of the step graph read beside their states and caches."""

    tokens: str  # int64 [B, K]: the last token of each hypothesis
    past_lengths: str  # int32 [R]: tokens in the row's cache, and so the position of `tokens`
    total_length: str  # int32 [1]: max(past_lengths) + 1
    source_lengths: str  # int32 [B]
    edit_indices: str  # int64 [E, 2]: (row, token)
    edit_values: str  # float32 [E]: added to the logits
    num_candidates: str  # int64 [1]: C


class DecoderStepGraph(TransformerGraph):
    """The next candidates of every hypothesis.

    Inputs: those of `StepInputs`, then for each decoder layer i
        cross_key_i, cross_value_i [B, H, S, d], shared by the hypotheses of a sentence, and
        self_key_i, self_value_i [R, H, T, d] with T >= total_length.
    Outputs: self_key_i_out, self_value_i_out, to be bound to the memory of the inputs;
        candidate_log_probs float32 [B, K, C], best first, and candidate_tokens int64 [B, K, C].
    """

    def __init__(self, config: ModelConfig, state: State, products: Products, weights: WeightFile) -> None:
        super().__init__("decoder_step", config, state, products, weights)
        self.step = self.declare_inputs()
        self.beam_shape = self.graph.node("Shape", self.step.tokens)  # B, K
        self.states_shape = self.with_width(config.d_model)  # B, K, D
        states = self.embed(self.step.tokens, self.positions())
        for layer in range(config.num_decoder_layers):
            states = self.layer(layer, states)
        self.candidates(self.final_norm("decoder", states))

    def declare_inputs(self) -> StepInputs:
        """The graph's inputs, in the order of the class's description."""
        declare = self.graph.input
        step = StepInputs(
            tokens=declare("tokens", INT64, ["B", "K"]),
            past_lengths=declare("past_lengths", INT32, ["R"]),
            total_length=declare("total_length", INT32, [1]),
            source_lengths=declare("source_lengths", INT32, ["B"]),
            edit_indices=declare("edit_indices", INT64, ["E", 2]),
            edit_values=declare("edit_values", FLOAT, ["E"]),
            num_candidates=declare("num_candidates", INT64, [1]),
        )
        for layer in range(self.config.num_decoder_layers):
            for name in cross_names(layer):
                declare(name, FLOAT, self.head_shape("B", "S"))
            for name in cache_names(layer):
                declare(name, FLOAT, self.head_shape("R", "T"))
        return step

    def with_width(self, width: int) -> str:
        """The shape [B, K, width]."""
        last = self.graph.constant(f"width_{width}", np.array([width]))
        return self.graph.node("Concat", self.beam_shape, last, axis=0)

    def positions(self) -> str:
        """Each row's own position: [B, K, D]."""
        positions = self.graph.node("Reshape", self.step.past_lengths, self.beam_shape)
        return self.graph.node("Gather", self.position_table(), positions)

    def layer(self, layer: int, states: str) -> str:
        """[B, K, D] -> [B, K, D]."""
        name = f"decoder.layers.{layer}"
        own, cross, feed_forward = (f"{name}.{part}" for part in ("self_attention", "cross_attention", "feed_forward"))
        states = self.residual(f"{own}_norm", states, lambda x: self.self_attention(own, layer, x))
        states = self.residual(f"{cross}_norm", states, lambda x: self.cross_attention(cross, layer, x))
        return self.residual(f"{feed_forward}_norm", states, lambda x: self.feed_forward(feed_forward, x))

    def self_attention(self, name: str, layer: int, states: str) -> str:
        """Masked self-attention: a row's new token over its own earlier ones, which are in its cache.

        The operator's `seqlens_k` is each row's total length minus one: its past length, since a step adds one token.
        """
        parts = [f"{name}.{part}" for part in ("query", "key", "value")]
        packed = self.packed(f"{name}.query_key_value", states, parts)  # [B, K, 3D]
        one_step = self.graph.constant("one_step", np.array([-1, 1, 3 * self.config.d_model]))
        rows = self.graph.node("Reshape", packed, one_step)  # [R, 1, 3D]
        inputs = [rows, "", "", *cache_names(layer), self.step.past_lengths, self.step.total_length]
        heads = {"num_heads": self.config.num_heads, "kv_num_heads": self.config.num_heads}
        names = [f"{name}.mixed", *(f"{cache}_out" for cache in cache_names(layer))]
        self.graph.nodes("GroupQueryAttention", *inputs, names=names, domain=CONTRIB_DOMAIN, **heads)
        for cache in names[1:]:
            self.graph.output(cache, FLOAT, self.head_shape("R", "T"))
        return self.linear(f"{name}.output", self.graph.node("Reshape", names[0], self.states_shape))

    def cross_attention(self, name: str, layer: int, states: str) -> str:
        """Encoder-decoder attention: the K hypotheses of a sentence are the queries over its one set of keys."""
        query = self.linear(f"{name}.query", states)
        inputs = [query, *cross_names(layer), "", self.step.source_lengths]
        return self.linear(
            f"{name}.output", self.graph.contrib("MultiHeadAttention", *inputs, num_heads=self.config.num_heads)
        )

    def candidates(self, states: str) -> None:
        """Tied projection, edits, log-softmax, top-k: [B, K, D] -> the outputs, [B, K, C] each."""
        logits = self.products.logits(self.graph, states, self.state["embedding.weight"])  # [B, K, V]
        log_probs = self.graph.node("LogSoftmax", self.edit(logits), axis=-1)
        names = ["candidate_log_probs", "candidate_tokens"]
        self.graph.nodes("TopK", log_probs, self.step.num_candidates, names=names, axis=-1)
        for name, dtype in zip(names, (FLOAT, INT64), strict=True):
            self.graph.output(name, dtype, ["B", "K", "C"])

    def edit(self, logits: str) -> str:
        """Add `edit_values` at `edit_indices`: [B, K, V] -> [B, K, V], without a copy of all logits.

        ScatterElements on one flat axis works in place, given that both shapes are known to be equal; ScatterND would
        take what 1.5 layers' norms take (0.25 ms at 112 rows of 8,000), edits or not.
        """
        one_axis = self.graph.constant("one_axis", np.array([-1]))
        pitch = self.graph.constant("logits_pitch", np.array([[self.config.vocab_size], [1]]))
        column = self.graph.node("MatMul", self.step.edit_indices, pitch)  # [E, 2] -> [E, 1]: row * V + token
        places, flat = (self.graph.node("Reshape", value, one_axis) for value in (column, logits))
        edited = self.graph.node("ScatterElements", flat, places, self.step.edit_values, axis=0, reduction="add")
        for name in (flat, edited):
            self.graph.hint_shape(name, FLOAT, ["R * V"])
        return self.graph.node("Reshape", edited, self.with_width(self.config.vocab_size))
