"""What the graphs of a bundle have in common: embeddings, residuals, norms, the feed-forward network, products.

Knows neither files nor precisions (`linear.py`).  Section numbers are those of Vaswani et al. 2017.

Axes: B sentences, S source, T target or cache columns, D width, H heads, d width of a head, V logits.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from onnx import TensorProto, helper

from export.builder import Array, GraphBuilder, WeightFile
from export.linear import Products, State, padded_table
from model.config import Activation, ModelConfig, NormPlacement
from model.layers import sinusoidal_positions

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
SHOWN = "num_shown"

Sublayer = Callable[[str], str]  # name of a value -> name of a value


def logits_bias(config: ModelConfig, state: State) -> Array | None:
    """Return what is added to the logits, minus infinity for what has no probability: [V]; None: nothing."""
    bias = np.full(config.num_logits, -np.inf, np.float32)
    bias[: config.num_target_tokens] = state["projection_bias"] if config.projection_bias else 0.0
    bias[[] if config.suppressed_keep_mass else list(config.suppressed_ids)] = -np.inf
    return bias if bias.any() else None


def cross_names(layer: int) -> list[str]:
    """Names of a decoder layer's cross-attention keys and values, in both graphs."""
    return [f"cross_key_{layer}", f"cross_value_{layer}"]


def cache_names(config: ModelConfig, layer: int) -> list[str]:
    """Names of what a decoder layer keeps of the tokens so far: keys and values, or the cells of an SSRU."""
    return [f"self_{part}_{layer}" for part in config.cache_parts]


class TransformerGraph:
    """Parts of all graphs: embeddings, residuals, norms, the feed-forward network."""

    def __init__(self, name: str, config: ModelConfig, state: State, products: Products, weights: WeightFile) -> None:
        self.graph = GraphBuilder(name, weights)
        self.config = config
        self.state = state
        self.products = products
        self.dtype = products.dtype

    def parameter(self, name: str, array: Array) -> str:
        """Add a tensor that no product uses, in the graph's element type."""
        return self.graph.constant(name, array.astype(helper.tensor_dtype_to_np_dtype(self.dtype)))

    def embed(self, stack: str, tokens: str, positions: str) -> str:
        """Sections 3.4 and 3.5: rows of the stack's embedding times sqrt(D), plus positions if any; [..] -> [.., D]."""
        name = "embedding" if stack == "encoder" else self.config.target_table
        scale = math.sqrt(self.config.d_model) if self.config.scaled_embeddings else 1.0
        states = self.products.embed(self.graph, tokens, padded_table(self.state, name), scale)
        if positions:
            states = self.graph.node("Add", states, positions)
        return self.norm(f"{stack}.embedding_norm", states) if self.config.embedding_norm else states

    def position_table(self, stack: str) -> str:
        """[P, D]."""
        if self.config.separate_positions and stack == "decoder":
            return self.parameter("target_positions", self.state["target_positions"])
        if self.config.position_table:
            return self.parameter("positions", self.state["positions"])
        table = sinusoidal_positions(self.config.max_positions, self.config.d_model)
        return self.parameter("positions", table.numpy())

    def first_positions(self, stack: str, tokens: str) -> str:
        """The first T rows of the stack's table, for tokens [B, T]: [T, D]; empty where no positions are added."""
        if self.config.relative_distance:
            return ""
        begin = self.graph.constant("zero", np.array([0]))
        num_columns = self.graph.node("Shape", tokens, start=1, end=2)  # [1]: T
        return self.graph.node("Slice", self.position_table(stack), begin, num_columns, begin)

    def residual(self, name: str, states: str, sublayer: Sublayer) -> str:
        """Section 5.4, or pre-norm (Xiong et al. 2020): a sub-layer, its residual sum and the norm called `name`."""
        if self.config.norm_placement is NormPlacement.PRE:
            return self.graph.node("Add", states, sublayer(self.norm(name, states)))
        return self.norm(name, self.graph.node("Add", states, sublayer(states)))

    def norm(self, name: str, states: str) -> str:
        """Layer normalisation over D.  Not joined with the sum before it: that operator is slow on CPU."""
        kinds = ("weight",) if self.config.rms_norm else ("weight", "bias")
        weights = [self.parameter(f"{name}.{kind}", self.state[f"{name}.{kind}"]) for kind in kinds]
        op = "RMSNormalization" if self.config.rms_norm else "LayerNormalization"
        return self.graph.node(op, states, *weights, axis=-1, epsilon=self.config.norm_epsilon)

    def final_norm(self, stack: str, states: str) -> str:
        """The norm after a whole stack, where the model has one."""
        return self.norm(f"{stack}.norm", states) if self.config.has_final_norm else states

    def feed_forward(self, name: str, states: str) -> str:
        """Equation 2: max(0, x W1 + b1) W2 + b2, or another activation, or with a gate."""
        if not self.config.gated:
            return self.linear(f"{name}.outer", self.activate(self.linear(f"{name}.inner", states)))
        parts = [f"{name}.gate", f"{name}.inner"]
        both = self.linear(f"{name}.gate_inner", states, parts)  # [.., 2F]
        names = [f"{part}.states" for part in parts]
        gate, inner = self.graph.nodes("Split", both, names=names, axis=-1, num_outputs=2)
        return self.linear(f"{name}.outer", self.graph.node("Mul", self.activate(gate), inner))

    def activate(self, states: str) -> str:
        """The activation of the feed-forward network; any shape."""
        match self.config.activation:
            case Activation.RELU:
                return self.graph.node("Relu", states)
            case Activation.SWISH:
                return self.graph.node("Mul", states, self.graph.node("Sigmoid", states))
            case Activation.GELU:
                return self.graph.node("Gelu", states)
            case Activation.GELU_TANH:
                return self.graph.node("Gelu", states, approximate="tanh")

    def all_logits(self, states: str) -> str:
        """The projection to all tokens: [.., D] -> [.., V]."""
        table = padded_table(self.state, self.config.projection_table)
        return self.products.logits(self.graph, states, table, logits_bias(self.config, self.state))

    def linear(self, name: str, states: str, parts: Sequence[str] = ()) -> str:
        """One linear layer, or those of `parts` side by side as one product: [.., I] -> [.., O]."""
        layers = parts or [name]
        weights, biases = ([self.state[f"{layer}.{kind}"] for layer in layers] for kind in ("weight", "bias"))
        return self.products.linear(self.graph, states, name, weights, np.concatenate(biases))

    def heads_apart(self, states: str, num_parts: int) -> str:
        """Keys or values side by side to head by head: [B, Q, parts * H * d] -> [B, parts * H, Q, d]."""
        shape = np.array([0, 0, num_parts * self.config.num_heads, self.config.d_head])
        split = self.graph.node("Reshape", states, self.graph.constant(f"{num_parts}_parts_in_heads", shape))
        return self.graph.node("Transpose", split, perm=[0, 2, 1, 3])

    def head_shape(self, columns: str) -> list[str | int]:
        """Shape of keys or values with the heads apart: [B, H, columns, d]."""
        return ["B", self.config.num_heads, columns, self.config.d_head]

    def show(self, name: str, weights: str, axes: Sequence[str | int]) -> None:
        """Make attention weights [B, H, ..] of the first `num_shown` sentences an output; of none unless it is given.

        An output of all would keep the memory of every layer until the run ends.
        """
        shown = self.graph.optional_input(SHOWN, np.array([0]))
        begin = self.graph.constant("first_shown", np.array([0]))
        self.graph.node("Slice", weights, begin, shown, begin, name=name)
        self.graph.output(name, self.dtype, [SHOWN, self.config.num_heads, *axes])

    def packed_projections(self, name: str, states: str) -> str:
        """Query, key and value of self-attention in one product: [B, Q, D] -> [B, Q, 3 H d]."""
        return self.linear(f"{name}.query_key_value", states, [f"{name}.{part}" for part in ("query", "key", "value")])

    def relative_bias(self, stack: str, distances: str) -> str:
        """What self-attention adds for keys that are so far before their queries: int64 [..] -> [H, ..]."""
        node, farthest = self.graph.node, self.config.relative_distance
        least, most = (self.graph.constant(f"distance_{at}", np.array(at)) for at in (-farthest, farthest))
        places = node("Add", node("Clip", distances, least, most), most)
        name = f"{stack}.relative_bias"
        return node("Gather", self.parameter(name, self.state[name]), places, axis=1)

    def relative_bias_of_all(self, stack: str, tokens: str) -> str:
        """The bias of each pair of columns of tokens [B, S]: [H, S, S]; empty where the model has none."""
        if not self.config.relative_distance:
            return ""
        node, constant = self.graph.node, self.graph.constant
        begin, step = (constant(f"column_{value}", np.array(value)) for value in (0, 1))
        columns = node("Range", begin, node("Squeeze", node("Shape", tokens, start=1, end=2)), step)  # [S]
        queries = node("Unsqueeze", columns, constant("keys_axis", np.array([1])))
        return self.relative_bias(stack, node("Sub", queries, columns))
