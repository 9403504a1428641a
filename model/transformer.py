"""The encoder-decoder Transformer: embeddings, encoder stack, decoder stack, projection.

Sentences in, logits out; knows nothing of losses, data or search.  Axes as in `layers.py`, V source tokens, W target
tokens, F d_ff, P positions, H num_heads, A H * d_head.

A model's state has these parameters, float32; a linear layer is [outputs, inputs].  {i} counts layers from 0, {stack}
is encoder or decoder, {attention} is self_attention or, in the decoder, also cross_attention, {part} is query, key,
value or output.

| key | shape | there with | meaning |
| --- | --- | --- | --- |
| embedding.weight | V, D | always | source tokens, not scaled; with shared_embeddings target tokens too |
| target_embedding.weight | W, D | not shared_embeddings | target tokens, not scaled |
| projection.weight | W, D | not tied_projection | makes logits of the decoder's states; else the target's table does |
| projection_bias | W | projection_bias | added to the logits |
| positions | P, D | position_table | added to the scaled embeddings of step 0, 1, ... in either stack |
| target_positions | P, D | separate_positions | instead of these in the decoder |
| {stack}.embedding_norm.weight, .bias | D | embedding_norm | LayerNorm of that sum |
| {stack}.relative_bias | H, 2 R + 1 | relative_distance R | added to products of self-attention, by distance |
| {stack}.layers.{i}.{attention}.{part}.weight | A, D | always | all heads, A numbers together; of output D, A |
| {stack}.layers.{i}.{attention}.{part}.bias | A | always | zero where a model has none; of output D |
| decoder.layers.{i}.self_attention.{input, forget}.weight, .bias | D, D and D | SSRU | in place of the four |
| {stack}.layers.{i}.{attention}_norm.weight, .bias | D | always | before (pre) or behind (post) the sublayer |
| {stack}.layers.{i}.feed_forward.gate.weight, .bias | F, D and F | gated | before the activation, instead of inner |
| {stack}.layers.{i}.feed_forward.inner.weight, .bias | F, D and F | always | before the activation |
| {stack}.layers.{i}.feed_forward.outer.weight, .bias | D, F and D | always | behind it |
| {stack}.layers.{i}.feed_forward_norm.weight, .bias | D | always | as of the attention |
| {stack}.norm.weight, .bias | D | has_final_norm | LayerNorm after the stack |

With rms_norm, norms have no bias.

A model that starts from a zero embedding gets one more target token, whose row is zero: `start_id`, and one of
`suppressed_ids`.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import Architecture, ModelConfig
from model.layers import (
    Dropout,
    FeedForward,
    MultiHeadAttention,
    Residual,
    Ssru,
    causal_mask,
    padding_mask,
    sinusoidal_positions,
    with_relative_bias,
)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in its residual (figure 1, left)."""

    def __init__(self, config: ModelConfig, dropout: float) -> None:
        super().__init__()
        self.self_attention = _attention(config)
        self.self_attention_norm = _norm(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation, gated=config.gated)
        self.feed_forward_norm = _norm(config)
        self.residual = Residual(config.norm_placement, dropout)

    def forward(self, states: Tensor, source_mask: Tensor) -> Tensor:
        """[B, S, D] -> [B, S, D]."""
        states = self.residual(states, self.self_attention_norm, lambda x: self.self_attention(x, x, source_mask))
        return self.residual(states, self.feed_forward_norm, self.feed_forward)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Self-attention or an SSRU, encoder-decoder attention, feed-forward, each in its residual (figure 1, right)."""

    def __init__(self, config: ModelConfig, dropout: float) -> None:
        super().__init__()
        is_ssru = config.architecture is Architecture.SSRU
        self.self_attention = Ssru(config.d_model) if is_ssru else _attention(config)
        self.self_attention_norm = _norm(config)
        self.cross_attention = _attention(config)
        self.cross_attention_norm = _norm(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation, gated=config.gated)
        self.feed_forward_norm = _norm(config)
        self.residual = Residual(config.norm_placement, dropout)

    def forward(self, states: Tensor, memory: Tensor, target_mask: Tensor, source_mask: Tensor) -> Tensor:
        """[B, T, D], memory [B, S, D] -> [B, T, D]."""
        states = self.residual(states, self.self_attention_norm, lambda x: self.self_attention(x, x, target_mask))
        states = self.residual(
            states, self.cross_attention_norm, lambda x: self.cross_attention(x, memory, source_mask)
        )
        return self.residual(states, self.feed_forward_norm, self.feed_forward)  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """N encoder layers; pre-norm adds a norm on top, since the residual stream itself is never normalised."""

    def __init__(self, config: ModelConfig, dropout: float) -> None:
        super().__init__()
        self.embedding_norm = _norm(config, exists=config.embedding_norm)
        self.relative_bias = _relative_bias(config)
        self.layers = nn.ModuleList(EncoderLayer(config, dropout) for _ in range(config.num_encoder_layers))
        self.norm = _norm(config, exists=config.has_final_norm)

    def forward(self, states: Tensor, source_mask: Tensor) -> Tensor:
        """Embedded source [B, S, D] -> memory [B, S, D]."""
        source_mask = with_relative_bias(source_mask, self.relative_bias, states.size(1))
        for layer in self.layers:
            states = layer(states, source_mask)
        return self.norm(states)  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """M decoder layers; M may be smaller than N: a deep encoder is cheap at decoding time (Kasai et al. 2021)."""

    def __init__(self, config: ModelConfig, dropout: float) -> None:
        super().__init__()
        self.embedding_norm = _norm(config, exists=config.embedding_norm)
        self.relative_bias = _relative_bias(config)
        self.layers = nn.ModuleList(DecoderLayer(config, dropout) for _ in range(config.num_decoder_layers))
        self.norm = _norm(config, exists=config.has_final_norm)

    def forward(self, states: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """Embedded target [B, T, D], memory [B, S, D] -> [B, T, D]; a step sees itself and earlier steps only."""
        T = states.size(1)
        target_mask = with_relative_bias(causal_mask(T, states.device), self.relative_bias, T)
        for layer in self.layers:
            states = layer(states, memory, target_mask, source_mask)
        return self.norm(states)  # type: ignore[no-any-return]


def _attention(config: ModelConfig) -> MultiHeadAttention:
    return MultiHeadAttention(config.d_model, config.num_heads, config.d_head)


def _norm(config: ModelConfig, *, exists: bool = True) -> nn.Module:
    """Return a norm, or the identity where the model has none."""
    kind = nn.RMSNorm if config.rms_norm else nn.LayerNorm
    return kind(config.d_model, eps=config.norm_epsilon) if exists else nn.Identity()


def _relative_bias(config: ModelConfig) -> nn.Parameter | None:
    """Return the table of a stack, [H, 2 R + 1], or None where positions are added."""
    distance = config.relative_distance
    return nn.Parameter(torch.zeros(config.num_heads, 2 * distance + 1)) if distance else None


class Transformer(nn.Module):
    """Translation model.

    Those trained here have one matrix as source and target embedding and projection (section 3.4; Press & Wolf 2017).
    """

    positions: Tensor
    target_positions: Tensor

    def __init__(self, config: ModelConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        D, W = config.d_model, config.num_target_tokens
        padding = config.pad_id if config.pad_id < config.vocab_size else None
        self.embedding = nn.Embedding(config.vocab_size, D, padding_idx=padding)
        if not config.shared_embeddings:
            self.target_embedding = nn.Embedding(W, D)
        if not config.tied_projection:
            self.projection = nn.Linear(D, W, bias=False)
        self.projection_bias = nn.Parameter(torch.zeros(W)) if config.projection_bias else None
        self.encoder = Encoder(config, dropout)
        self.decoder = Decoder(config, dropout)
        self.dropout = Dropout(dropout)
        table = sinusoidal_positions(config.max_positions, D)
        self.register_buffer("positions", table, persistent=config.position_table)
        if config.separate_positions:
            self.register_buffer("target_positions", table.clone())

    def forward(self, source: Tensor, source_lengths: Tensor, target_inputs: Tensor) -> Tensor:
        """Return logits [B, T, W] of each next token, given source [B, S] and the target so far [B, T]."""
        return self.project(self.decode(target_inputs, self.encode(source, source_lengths), source_lengths))

    def encode(self, source: Tensor, source_lengths: Tensor) -> Tensor:
        """Return the memory [B, S, D] of source ids [B, S], padded on the right."""
        states = self.embed(source, self.embedding, self.encoder)
        memory: Tensor = self.encoder(states, padding_mask(source_lengths, source.size(1)))
        return memory

    def decode(self, target_inputs: Tensor, memory: Tensor, source_lengths: Tensor) -> Tensor:
        """Return decoder states [B, T, D] of target ids [B, T] that begin with `start_id`."""
        embedded = self.embed(target_inputs, self.get_submodule(self.config.target_table), self.decoder)
        states: Tensor = self.decoder(embedded, memory, padding_mask(source_lengths, memory.size(1)))
        return states

    def embed(self, tokens: Tensor, table: nn.Module, stack: Encoder | Decoder) -> Tensor:
        """Section 3.4 and 3.5: E[token] * sqrt(D) + PE[t], then dropout.  [B, T] -> [B, T, D]."""
        scale = math.sqrt(self.config.d_model) if self.config.scaled_embeddings else 1.0
        is_separate = stack is self.decoder and self.config.separate_positions
        positions = self.target_positions if is_separate else self.positions
        states = table(tokens) * scale
        if not self.config.relative_distance:
            states = states + positions[: tokens.size(1)]
        states = stack.embedding_norm(states)
        device = states.device.type
        if torch.is_autocast_enabled(device):  # so that the whole residual stream has its precision
            states = states.to(torch.get_autocast_dtype(device))
        return self.dropout(states)  # type: ignore[no-any-return]

    def project(self, states: Tensor) -> Tensor:
        """Decoder states [..., D] -> logits [..., W], with the embedding matrix itself where they are tied."""
        weight: Tensor = self.get_parameter(f"{self.config.projection_table}.weight")
        logits = functional.linear(states, weight, self.projection_bias)
        if self.config.suppressed_ids and not self.config.suppressed_keep_mass:
            logits[..., list(self.config.suppressed_ids)] = -math.inf
        return logits

    def log_probs(self, logits: Tensor) -> Tensor:
        """Logits [..., W] -> log-probabilities [..., W], minus infinity for what is never written."""
        log_probs = logits.log_softmax(dim=-1)
        log_probs[..., list(self.config.suppressed_ids)] = -math.inf
        return log_probs

    def initialize(self, seed: int) -> Self:
        """Xavier-uniform projections (Glorot & Bengio 2010); embeddings N(0, 1/D), of unit variance once scaled.

        The same seed gives the same weights on every machine.
        """
        generator = torch.Generator().manual_seed(seed)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5, generator=generator)
        if self.embedding.padding_idx is not None:
            with torch.no_grad():
                self.embedding.weight[self.embedding.padding_idx].zero_()
        return self

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters())


@contextmanager
def watched(attentions: Iterable[nn.Module]) -> Iterator[dict[nn.Module, Tensor]]:
    """Collect the weights [B, H, queries, memory] of each `MultiHeadAttention` that runs while this is open."""
    weights: dict[nn.Module, Tensor] = {}

    def watch(attention: MultiHeadAttention, inputs: tuple[Tensor, Tensor, Tensor | None]) -> None:
        weights[attention] = attention.attend(*inputs).weights

    hooks = [attention.register_forward_pre_hook(watch) for attention in attentions]
    try:
        yield weights
    finally:
        for hook in hooks:
            hook.remove()


@torch.inference_mode()
def forced_attention(
    model: Transformer, source: Tensor, source_lengths: Tensor, target_inputs: Tensor
) -> tuple[Tensor, Tensor]:
    """Return logits [B, T, W] and the cross-attention [layers, B, H, T, S] of one pass; arguments as of the model."""
    attentions = [layer.get_submodule("cross_attention") for layer in model.decoder.layers]
    with watched(attentions) as weights:
        logits = model(source, source_lengths, target_inputs)
    return logits, torch.stack([weights[attention] for attention in attentions])
