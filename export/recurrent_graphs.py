"""The graphs of recurrent decoders, with the inputs and outputs of a Transformer's, and which graphs a model has.

They are that of a recurrent model (`model/recurrent.py`), and of a Transformer with SSRUs (`model/layers.py`).

The engine has one kind of cache: columns that belong to hypotheses, and a mask that says which are a hypothesis' own
past.  A recurrent layer needs one vector of its past, the newest.  So the step writes its state as a column, as a
Transformer writes a key, and reads the newest column that the mask shows: that of its parent, whichever row that was.

Axes: B sentences, K hypotheses of a sentence, S source, T cache columns, D width, H heads, d = D / H, V logits, L
decoder layers.
"""

import numpy as np

from export.builder import CONTRIB_DOMAIN, Array, GraphBuilder, WeightFile
from export.graphs import DECODER_STEP_NAME, ENCODER_NAME, DecoderStepGraph, EncoderGraph
from export.linear import Products, State, padded_table
from export.transformer_graph import INT32, INT64, TransformerGraph, cache_names, cross_names
from model.config import Architecture, ModelConfig

_GATES = [0, 3, 1, 2]  # of PyTorch, i f g o, in the order of ONNX, i o f g
_DIRECTIONS = ("", "_reverse")


class RecurrentEncoderGraph(TransformerGraph):
    """source_ids int64 [B, S], source_lengths int32 [B] -> cross_key_i, cross_value_i float32 [B, 1, S, D].

    cross_value_0 is the memory, and cross_key_0 its products with W_a, or the memory itself without attention.  Nothing
    reads those of further layers: they are the memory again.
    """

    def __init__(self, config: ModelConfig, state: State, products: Products, weights: WeightFile) -> None:
        super().__init__("encoder", config, state, products, weights)
        source = self.graph.input("source_ids", INT64, ["B", "S"])
        lengths = self.graph.input("source_lengths", INT32, ["B"])
        states = products.embed(self.graph, source, padded_table(state, "embedding"), config.d_model**0.5)
        for layer in range(config.num_encoder_layers):
            states = self.layer(layer, states, lengths)
        values = keys = self.one_head(states)
        if config.architecture is Architecture.LSTM_ATTENTION:
            weight, bias = state["attention.key.weight"], np.zeros(config.d_model, np.float32)
            keys = self.one_head(products.linear(self.graph, states, "attention.key", [weight], bias))
        for layer in range(config.num_decoder_layers):
            for name, value in zip(cross_names(layer), (values if layer else keys, values), strict=True):
                self.graph.node("Identity", value, name=name)
                self.graph.output(name, self.dtype, self.head_shape("S"))

    def one_head(self, states: str) -> str:
        """[B, S, D] -> [B, 1, S, D]."""
        return self.graph.node("Unsqueeze", states, self.graph.constant("heads_axis", np.array([1])))

    def layer(self, layer: int, states: str, lengths: str) -> str:
        """Both directions over the tokens of each sentence: [B, S, D] -> [B, S, D]."""
        node, constant = self.graph.node, self.graph.constant
        name = f"encoder.layer_{layer}"
        inner = [constant(f"{name}.{kind}", self._gates(f"weight_{kind}_l{layer}")) for kind in ("ih", "hh")]
        bias = constant(
            f"{name}.bias", np.concatenate([self._gates(f"bias_{kind}_l{layer}") for kind in ("ih", "hh")], 1)
        )
        steps = node("Transpose", states, perm=[1, 0, 2])  # [S, B, D]
        hidden = node(
            "LSTM", steps, *inner, bias, lengths, hidden_size=self.config.d_model // 2, direction="bidirectional"
        )  # [S, 2, B, D / 2]
        apart = node("Transpose", hidden, perm=[2, 0, 1, 3])
        return node("Reshape", apart, constant("sides_joined", np.array([0, 0, -1])))

    def _gates(self, name: str) -> Array:
        """A parameter of both directions, its gates in ONNX's order: [2, 4 D/2, ..]."""
        sides = [self.state[f"encoder.{name}{direction}"] for direction in _DIRECTIONS]
        return np.stack([np.concatenate([np.split(side, 4)[gate] for gate in _GATES]) for side in sides])


class NewestColumnGraph(DecoderStepGraph):
    """A step that reads the state of each hypothesis' parent from the cache."""

    def newest_column(self) -> str:
        """The last column of each hypothesis' own past, this step's left out; 0 at the first: int64 [B, 1, K, 1]."""
        node, constant = self.graph.node, self.graph.constant
        begin, step = (constant(f"number_{value}", np.array(value)) for value in (0, 1))
        num_columns = node("Squeeze", node("Shape", self.step.self_mask, start=3, end=4))
        columns = node("Range", begin, num_columns, step)  # [T]
        is_own = node("Greater", self.step.self_mask, constant("half_hidden", np.float32(-0.5)))  # [B, 1, K, T]
        new = node("Reshape", self.step.columns, constant("over_hypotheses", np.array([-1, 1, 1, 1])))
        is_past = node("And", is_own, node("Less", columns, new))
        return node("ReduceMax", node("Where", is_past, columns, begin), constant("last", np.array([-1])), keepdims=1)

    def or_first(self, states: str, first: str) -> str:
        """States [B, K, D], or at the first step those given: [B, K, D]."""
        past = self.graph.node("Reshape", self.step.past_lengths, self.of_sentences())
        is_first = self.graph.node("Equal", past, self.graph.constant("none_yet", np.array(0)))
        return self.graph.node("Where", is_first, first, states)

    def of_sentences(self) -> str:
        """Shape of one number for each sentence, beside hypotheses and features: [B, 1, 1]."""
        return self.graph.constant("of_sentences", np.array([-1, 1, 1]))


class RecurrentStepGraph(NewestColumnGraph):
    """The next candidates of every sentence, as of `DecoderStepGraph`; of its inputs the mask picks the state.

    Caches: self_key_i [B, 1, T, D] has the hidden states s of decoder layer i, self_value_i the cells.
    """

    def decode(self) -> str:
        """[B, K, D]: o of each hypothesis."""
        self.newest = self.graph.node(
            "Squeeze", self.newest_column(), self.graph.constant("heads_axis", np.array([1]))
        )  # [B, K, 1]
        table, scale = padded_table(self.state, "embedding"), self.config.d_model**0.5
        states = self.products.embed(self.graph, self.step.tokens, table, scale)
        first = self.first_states()
        for layer in range(self.config.num_decoder_layers):
            states = self.layer_of(layer, states, first[2 * layer : 2 * layer + 2])
        return self.attend(states) if self.config.architecture is Architecture.LSTM_ATTENTION else states

    def first_states(self) -> list[str]:
        """Hidden state and cell of each layer before the first token, as `Recurrent.first_state`: 2 L of [B, 1, D]."""
        node, constant, half = self.graph.node, self.graph.constant, self.config.d_model // 2
        memory = node("Squeeze", cross_names(0)[1], constant("heads_axis", np.array([1])))  # [B, S, D]
        lengths = node("Reshape", node("Cast", self.step.source_lengths, to=INT64), self.of_sentences())
        last = node("GatherND", memory, node("Sub", lengths, constant("one", np.array(1))), batch_dims=1)  # [B, 1, D]
        first = node("Gather", memory, constant("first_column", np.array([0])), axis=1)
        halves = constant("halves", np.array([half, half]))
        forward, _ = self.graph.nodes("Split", last, halves, names=["forward", "last_backward"], axis=-1)
        _, backward = self.graph.nodes("Split", first, halves, names=["first_forward", "backward"], axis=-1)
        bridged = node("Tanh", self.linear("bridge", node("Concat", forward, backward, axis=-1)))  # [B, 1, 2 L D]
        layers = range(self.config.num_decoder_layers)
        names = [f"first_{kind}_{layer}" for kind in ("hidden", "cell") for layer in layers]
        self.graph.nodes("Split", bridged, names=names, axis=-1, num_outputs=len(names))
        return [f"first_{kind}_{layer}" for layer in layers for kind in ("hidden", "cell")]

    def layer_of(self, layer: int, inputs: str, first: list[str]) -> str:
        """One LSTM layer for one token: inputs [B, K, D] -> s [B, K, D]; the new state goes into the cache."""
        node = self.graph.node
        hidden, cell = (
            self.state_of(cache, start) for cache, start in zip(cache_names(self.config, layer), first, strict=True)
        )
        name = f"decoder.layer_{layer}"
        kinds = ("ih", "hh")
        weight = np.concatenate([self.state[f"decoder.weight_{kind}_l{layer}"] for kind in kinds], axis=1)
        bias = np.sum([self.state[f"decoder.bias_{kind}_l{layer}"] for kind in kinds], axis=0)
        gates = self.products.linear(self.graph, node("Concat", inputs, hidden, axis=-1), name, [weight], bias)
        names = [f"{name}.{gate}" for gate in ("input", "forget", "new", "output")]
        write, keep, new, show = self.graph.nodes("Split", gates, names=names, axis=-1, num_outputs=4)
        kept = node("Mul", node("Sigmoid", keep), cell)
        cell = node("Add", kept, node("Mul", node("Sigmoid", write), node("Tanh", new)))
        hidden = node("Mul", node("Sigmoid", show), node("Tanh", cell))
        for cache, value in zip(cache_names(self.config, layer), (hidden, cell), strict=True):
            column = node("Unsqueeze", value, self.graph.constant("heads_axis", np.array([1])))  # [B, 1, K, D]
            self.graph.node("TensorScatter", cache, column, self.step.columns, name=f"{cache}_out", axis=2)
            self.graph.output(f"{cache}_out", self.dtype, self.head_shape("T"))
        return hidden

    def state_of(self, cache: str, first: str) -> str:
        """The newest own column of each hypothesis, or the first state: [B, K, D]."""
        node, constant = self.graph.node, self.graph.constant
        columns = node("Squeeze", cache, constant("heads_axis", np.array([1])))  # [B, T, D]
        newest = node("GatherND", columns, self.newest, batch_dims=1)
        return self.or_first(newest, first)

    def attend(self, states: str) -> str:
        """tanh(W_c [c ; s]) (Luong et al. 2015, equation 5), c from attention over the memory: [B, K, D]."""
        key, value = cross_names(0)
        inputs = [states, key, value, "", self.step.source_lengths]
        context = self.graph.node("MultiHeadAttention", *inputs, domain=CONTRIB_DOMAIN, num_heads=1, scale=1.0)
        joined = self.graph.node("Concat", context, states, axis=-1)
        bias = np.zeros(self.config.d_model, np.float32)
        weight = self.state["attention.output.weight"]
        return self.graph.node("Tanh", self.products.linear(self.graph, joined, "attention.output", [weight], bias))


class SsruStepGraph(NewestColumnGraph):
    """The next candidates of every sentence, as of `DecoderStepGraph`, of a decoder with SSRUs.

    Caches: self_key_i [B, H, T, d] has the cells c of decoder layer i, in H parts.
    """

    def decode(self) -> str:
        """The decoder's states of each hypothesis: [B, K, D]."""
        of_heads = self.graph.constant("of_heads", np.array([1, self.config.num_heads, 1, 1]))
        self.newest = self.graph.node("Expand", self.newest_column(), of_heads)  # [B, H, K, 1]
        return super().decode()

    def self_attention(self, name: str, layer: int, states: str) -> str:
        """relu(c), c = f * c of the parent + (1 - f) * x: [B, K, D]; c goes into the cache."""
        node, constant = self.graph.node, self.graph.constant
        products = self.linear(f"{name}.input_forget", states, [f"{name}.input", f"{name}.forget"])
        names = [f"{name}.{part}.states" for part in ("input", "forget")]
        new, forget = self.graph.nodes("Split", products, names=names, axis=-1, num_outputs=2)
        (cache,) = cache_names(self.config, layer)
        parted = node("GatherND", cache, self.newest, batch_dims=2)  # [B, H, K, d]
        merged = constant("merged", np.array([0, 0, self.config.d_model]))
        parent = node("Reshape", node("Transpose", parted, perm=[0, 2, 1, 3]), merged)
        cell = self.or_first(parent, constant("no_state", np.float32(0.0)))
        cell = node("Add", new, node("Mul", node("Sigmoid", forget), node("Sub", cell, new)))
        node("TensorScatter", cache, self.heads_apart(cell, 1), self.step.columns, name=f"{cache}_out", axis=2)
        self.graph.output(f"{cache}_out", self.dtype, self.head_shape("T"))
        return node("Relu", cell)


def draw_graphs(config: ModelConfig, state: State, products: Products) -> dict[str, GraphBuilder]:
    """Return the graphs that translate, by file name."""
    weights = WeightFile()
    if config.is_recurrent:
        return {
            ENCODER_NAME: RecurrentEncoderGraph(config, state, products, weights).graph,
            DECODER_STEP_NAME: RecurrentStepGraph(config, state, products, weights).graph,
        }
    step = SsruStepGraph if config.architecture is Architecture.SSRU else DecoderStepGraph
    return {
        ENCODER_NAME: EncoderGraph(config, state, products, weights).graph,
        DECODER_STEP_NAME: step(config, state, products, weights).graph,
    }
