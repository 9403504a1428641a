"""The graphs of a bundle, drawn from a model's parameters: the encoder, and one step of the decoder.

The encoder graph ends in the cross-attention keys and values, so they are computed once a sentence.  The step graph
ends in log-softmax and top-k, so logits never leave it, and its self-attention cache is updated in place.

Knows neither files nor precisions (`linear.py`).  Section numbers are those of Vaswani et al. 2017.
Keys and values that are read again lie head by head: with the heads side by side, rows a power of two of bytes apart
evict each other from the CPU's cache, and attention took twice as long.

Axes: B sentences, K hypotheses of a sentence, S source, T cache columns, D width, H heads, d width of a head, V logits,
E edits, C candidates, L decoder layers.
"""

from dataclasses import dataclass

import numpy as np

from export.builder import CONTRIB_DOMAIN, WeightFile
from export.linear import Products, State
from export.transformer_graph import (
    FLOAT,
    INT32,
    INT64,
    TransformerGraph,
    cache_names,
    cross_names,
)
from model.config import VOCABULARY_MULTIPLE, ModelConfig

ENCODER_NAME = "encoder.onnx"
DECODER_STEP_NAME = "decoder_step.onnx"
BLOCK_WIDTH = VOCABULARY_MULTIPLE  # tokens that are ranked by their maximum first
AFTER_SOFTMAX = 3  # what the fourth output of Attention is


class EncoderGraph(TransformerGraph):
    """source_ids int64 [B, S], source_lengths int32 [B] -> cross_key_i, cross_value_i float32 [B, H, S, d].

    Further, of the first `num_shown` sentences, int64 [1], the weights of each encoder layer's heads: self_weights_i
    [num_shown, H, S, S].
    """

    def __init__(self, config: ModelConfig, state: State, products: Products, weights: WeightFile) -> None:
        super().__init__("encoder", config, state, products, weights)
        self.source = self.graph.input("source_ids", INT64, ["B", "S"])
        lengths = self.graph.input("source_lengths", INT32, ["B"])
        self.source_lengths = self.graph.node("Cast", lengths, to=INT64)
        states = self.embed("encoder", self.source, self.first_positions("encoder", self.source))
        self.bias = self.relative_bias_of_all("encoder", self.source)
        for layer in range(config.num_encoder_layers):
            states = self.layer(f"encoder.layers.{layer}", states)
        self.cross_keys_and_values(self.final_norm("encoder", states))

    def layer(self, name: str, states: str) -> str:
        """[B, S, D] -> [B, S, D]."""
        attention, feed_forward = f"{name}.self_attention", f"{name}.feed_forward"
        states = self.residual(f"{attention}_norm", states, lambda x: self.self_attention(attention, x))
        return self.residual(f"{feed_forward}_norm", states, lambda x: self.feed_forward(feed_forward, x))

    def self_attention(self, name: str, states: str) -> str:
        """Section 3.2.2 over the first `source_lengths` columns, so that padding changes nothing: [B, S, D]."""
        names = [f"{name}.{part}.states" for part in ("query", "key", "value")]
        parts = self.graph.nodes("Split", self.packed_projections(name, states), names=names, axis=-1, num_outputs=3)
        inputs, heads = [*parts, self.bias, "", "", self.source_lengths], self.config.num_heads
        layer = name.split(".")[2]
        outputs = [f"{name}.mixed", "", "", f"{name}.weights"]
        sizes = {"q_num_heads": heads, "kv_num_heads": heads}
        self.graph.nodes("Attention", *inputs, names=outputs, domain="", **sizes, qk_matmul_output_mode=AFTER_SOFTMAX)
        self.show(f"self_weights_{layer}", outputs[3], ["S", "S"])
        return self.linear(f"{name}.output", outputs[0])

    def cross_keys_and_values(self, memory: str) -> None:
        """Every decoder layer's keys and values of the memory [B, S, D], in one product; the graph's outputs."""
        layers = range(self.config.num_decoder_layers)
        parts = [f"decoder.layers.{layer}.cross_attention.{part}" for layer in layers for part in ("key", "value")]
        names = [name for layer in layers for name in cross_names(layer)]
        packed = self.linear("decoder.cross_attention.key_value", memory, parts)  # [B, S, 2L * D]
        heads = self.heads_apart(packed, len(parts))  # [B, 2L * H, S, d]
        self.graph.nodes("Split", heads, names=names, axis=1, num_outputs=len(names))
        for name in names:
            self.graph.output(name, self.dtype, self.head_shape("S"))


@dataclass(frozen=True, slots=True)
class StepInputs:
    """Names of the inputs that the layers of the step graph read beside their states and caches."""

    tokens: str  # int64 [B, K]: the last token of each hypothesis
    scores: str  # float32 [B, K, 1]: added to the log-probabilities of each hypothesis' next tokens
    past_lengths: str  # int64 [B, 1]: decoder steps before this one, and so the position of `tokens`
    columns: str  # int64 [B]: the first of the K cache columns that this step writes
    self_mask: str  # float32 [B, 1, K, T]: 0 where a hypothesis attends to a column, this step's included
    source_lengths: str  # int32 [B]
    edit_places: str  # int64 [E]: (sentence * K + hypothesis) * V + token
    edit_values: str  # float32 [E]: added to the logits there
    edit_factors: str  # float32 [E], 1 or more: before that, divide positive logits there and multiply negative ones
    num_candidates: str  # int64 [1]: C
    column_steps: str  # int64 [B, T]: the decoder step that wrote each column; only with relative positions, else empty


class DecoderStepGraph(TransformerGraph):
    """The next candidates of every sentence.

    The hypotheses of a sentence share one set of self-attention columns: each step adds K columns, one of each
    hypothesis, and `self_mask` says which columns are a hypothesis' own past.  So a beam that changes its order
    moves no keys, and what hypotheses have in common is read once.

    Inputs: those of `StepInputs`, then for each decoder layer i
        cross_key_i, cross_value_i [B, H, S, d] and
        self_key_i, self_value_i [B, H, T, d].
    Outputs: self_key_i_out, self_value_i_out, to be bound to the memory of the inputs;
        candidate_scores float32 [B, C]: the best sums of a hypothesis' score and a token's log-probability, descending,
        candidate_ids int64 [B, C]: hypothesis * V + token of each, and
        check float32 [B]: NaN or plus infinity where the log-probabilities are.  In an int8 graph it never is: what
            enters a product becomes an integer, a NaN too, so such an engine cannot report `NON_FINITE` for it.
    """

    def __init__(self, config: ModelConfig, state: State, products: Products, weights: WeightFile) -> None:
        super().__init__("decoder_step", config, state, products, weights)
        self.step = self.declare_inputs()
        log_probs = self.graph.node("LogSoftmax", self.edit(self.logits(self.decode())), axis=-1)
        if config.suppressed_keep_mass:
            is_banned = np.isin(np.arange(config.num_logits), config.suppressed_ids)
            bans = self.graph.constant("suppressed", np.where(is_banned, np.float32(-np.inf), np.float32(0.0)))
            log_probs = self.graph.node("Add", log_probs, bans)
        self.best(log_probs)

    def decode(self) -> str:
        """The decoder's states of each hypothesis: [B, K, D]."""
        positions, self.self_mask = "", self.step.self_mask
        if self.config.relative_distance:
            distances = self.graph.node("Sub", self.step.past_lengths, self.step.column_steps)
            bias = self.graph.node("Transpose", self.relative_bias("decoder", distances), perm=[1, 0, 2])  # [B, H, T]
            queries = self.graph.node("Unsqueeze", bias, self.graph.constant("queries_axis", np.array([2])))
            self.self_mask = self.graph.node("Add", self.self_mask, queries)  # [B, H, K, T]
        else:
            positions = self.graph.node("Gather", self.position_table("decoder"), self.step.past_lengths)  # [B, 1, D]
        states = self.embed("decoder", self.step.tokens, positions)
        for layer in range(self.config.num_decoder_layers):
            states = self.layer(layer, states)
        return self.final_norm("decoder", states)

    def declare_inputs(self) -> StepInputs:
        """The graph's inputs, in the order of the class's description."""
        declare = self.graph.input
        step = StepInputs(
            tokens=declare("tokens", INT64, ["B", "K"]),
            scores=declare("scores", FLOAT, ["B", "K", 1]),
            past_lengths=declare("past_lengths", INT64, ["B", 1]),
            columns=self.declare_columns(),
            self_mask=declare("self_mask", self.dtype, ["B", 1, "K", "T"]),
            source_lengths=declare("source_lengths", INT32, ["B"]),
            edit_places=declare("edit_places", INT64, ["E"]),
            edit_values=declare("edit_values", FLOAT, ["E"]),
            edit_factors=declare("edit_factors", FLOAT, ["E"]),
            num_candidates=declare("num_candidates", INT64, [1]),
            column_steps=declare("column_steps", INT64, ["B", "T"]) if self.config.relative_distance else "",
        )
        for layer in range(self.config.num_decoder_layers):
            for name in cross_names(layer):
                declare(name, self.dtype, self.head_shape("S"))
            for name in cache_names(self.config, layer):
                declare(name, self.dtype, self.cache_shape())
        return step

    def cache_shape(self) -> list[str | int]:
        """Shape of the keys or values of all tokens so far."""
        return self.head_shape("T")

    def declare_columns(self) -> str:
        """The input that says where this step's keys and values go."""
        return self.graph.input("columns", INT64, ["B"])

    def layer(self, layer: int, states: str) -> str:
        """[B, K, D] -> [B, K, D]."""
        name = f"decoder.layers.{layer}"
        own, cross, feed_forward = (f"{name}.{part}" for part in ("self_attention", "cross_attention", "feed_forward"))
        states = self.residual(f"{own}_norm", states, lambda x: self.self_attention(own, layer, x))
        states = self.residual(f"{cross}_norm", states, lambda x: self.cross_attention(cross, layer, x))
        return self.residual(f"{feed_forward}_norm", states, lambda x: self.feed_forward(feed_forward, x))

    def self_attention(self, name: str, layer: int, states: str) -> str:
        """Masked self-attention: K new keys and values go into the cache, then each hypothesis attends to its own."""
        widths = self.graph.constant("query_and_rest", np.array([1, 2]) * self.config.attention_width)
        names = [f"{name}.{part}.states" for part in ("query", "key_value", "key", "value")]
        query, rest = self.graph.nodes("Split", self.packed_projections(name, states), widths, names=names[:2], axis=-1)
        new = self.graph.nodes(
            "Split", self.heads_apart(rest, 2), names=names[2:], axis=1, num_outputs=2
        )  # [B, H, K, d]
        caches = [f"{cache}_out" for cache in cache_names(self.config, layer)]
        for cache, update, written in zip(cache_names(self.config, layer), new, caches, strict=True):
            self.graph.node("TensorScatter", cache, update, self.step.columns, name=written, axis=2)  # in place
            self.graph.output(written, self.dtype, self.head_shape("T"))
        return self.attention(name, query, *caches, mask=self.self_mask)

    def cross_attention(self, name: str, layer: int, states: str) -> str:
        """Encoder-decoder attention: the K hypotheses of a sentence are the queries over its one set of keys."""
        query = self.linear(f"{name}.query", states)
        return self.attention(name, query, *cross_names(layer), lengths=self.step.source_lengths)

    def attention(self, name: str, query: str, key: str, value: str, *, mask: str = "", lengths: str = "") -> str:
        """Section 3.2.2 with its output projection: [B, K, D] over [B, H, T, d] -> [B, K, D].

        Args:
            mask: float32 [B, 1 or H, K, T], added to the products of queries and keys.
            lengths: int32 [B]; keys beyond do not count.
        """
        inputs = [query, key, value, "", lengths, mask]
        heads = self.config.num_heads
        mixed = self.graph.node("MultiHeadAttention", *inputs, domain=CONTRIB_DOMAIN, num_heads=heads)
        return self.linear(f"{name}.output", mixed)

    def logits(self, states: str) -> str:
        """[B, K, D] -> [B, K, V]."""
        return self.all_logits(states)

    def best(self, log_probs: str) -> None:
        """The C best extensions of a sentence's K hypotheses, without sorting K * V of them.

        Of blocks of W tokens only the maxima are ranked; the C best extensions lie in the C best blocks.
        """
        node, constant = self.graph.node, self.graph.constant
        in_blocks = node("Reshape", log_probs, constant("in_blocks", np.array([0, 0, -1, BLOCK_WIDTH])))
        maxima = node("ReduceMax", in_blocks, constant("last_axis", np.array([-1])), keepdims=0)  # [B, K, V / W]
        self.graph.nodes("ReduceSum", maxima, constant("but_first", np.array([1, 2])), names=["check"], keepdims=0)
        column = constant("column", np.array([0, -1, 1]))
        ranked = node("Reshape", node("Add", maxima, self.step.scores), column)  # [B, K * V / W, 1]
        count = node("Min", self.step.num_candidates, node("Shape", ranked, start=1, end=2))  # C, or all blocks
        _, blocks = self.graph.nodes("TopK", ranked, count, names=["best_maxima", "best_blocks"], axis=1)  # [B, C, 1]
        of_sentence = node("Reshape", log_probs, constant("blocks_of_sentence", np.array([0, -1, BLOCK_WIDTH])))
        tokens = node("GatherND", of_sentence, blocks, batch_dims=1)  # [B, C, W]
        parents = node("Div", blocks, constant("num_blocks", np.array(self.config.num_logits // BLOCK_WIDTH)))
        scores = node("GatherND", self.step.scores, parents, batch_dims=1)  # [B, C, 1]
        sums = node("Reshape", node("Add", tokens, scores), column)
        names = ["best_sums", "places"]
        best, places = self.graph.nodes("TopK", sums, self.step.num_candidates, names=names, axis=1)  # [B, C, 1]
        # The place of block i's token j is i * W + j, and its flat index among [K, V] is block * W + j.
        tokens_each = constant("block_width", np.array(BLOCK_WIDTH))
        rank = node("Div", places, tokens_each)
        behind = node("Sub", node("GatherElements", blocks, rank, axis=1), rank)
        ids = node("Add", node("Mul", behind, tokens_each), places)
        flat = constant("flat", np.array([0, -1]))
        for value, name, dtype in ((best, "candidate_scores", FLOAT), (ids, "candidate_ids", INT64)):
            self.graph.output(node("Reshape", value, flat, name=name), dtype, ["B", "C"])
        self.graph.output("check", FLOAT, ["B"])

    def edit(self, logits: str) -> str:
        """Change the logits at `edit_places`, all different: [B, K, V] -> [B, K, V], without a copy of all logits.

        ScatterElements on one flat axis works in place, given that both shapes are known to be equal; ScatterND would
        take what 1.5 layers' norms take (0.25 ms at 112 rows of 8,000), edits or not.
        """
        node, places, factors = self.graph.node, self.step.edit_places, self.step.edit_factors
        flat = node("Reshape", logits, self.graph.constant("one_axis", np.array([-1])))
        found = node("Gather", flat, places)
        # The smaller of x / f and x * f divides what is positive and multiplies what is negative, as f is at least 1.
        scaled = node("Min", node("Div", found, factors), node("Mul", found, factors))
        edited = self.put(flat, places, node("Add", scaled, self.step.edit_values))
        for name in (flat, edited):
            self.graph.hint_shape(name, FLOAT, ["B * K * V"])
        return node("Reshape", edited, self.shape_of_logits(logits))

    def put(self, logits: str, places: str, values: str) -> str:
        """Values [E] at places of all logits [B * K * V], in place."""
        return self.graph.node("ScatterElements", logits, places, values, axis=0)

    def shape_of_logits(self, logits: str) -> str:
        """[3]: B, K and the vocabulary; not from `logits`, which could not be edited in place then."""
        beams = self.graph.node("Shape", self.step.tokens)  # B, K
        return self.graph.node("Concat", beams, self.graph.constant("vocabulary", np.array([-1])), axis=0)
