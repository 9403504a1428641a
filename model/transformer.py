"""The encoder-decoder Transformer: embeddings, encoder stack, decoder stack, tied projection.

Sentences in, logits out; knows nothing of losses, data or search.  Axes as in `layers.py`, V vocabulary.
"""

import math
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import PAD_ID, ModelConfig, NormPlacement
from model.layers import (
    LAYER_NORM_EPS,
    Dropout,
    FeedForward,
    MultiHeadAttention,
    Residual,
    causal_mask,
    padding_mask,
    sinusoidal_positions,
)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in its residual (figure 1, left)."""

    def __init__(self, config: ModelConfig, dropout: float) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.self_attention_norm = nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.feed_forward_norm = nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS)
        self.residual = Residual(config.norm_placement, dropout)

    def forward(self, states: Tensor, source_mask: Tensor) -> Tensor:
        """[B, S, D] -> [B, S, D]."""
        states = self.residual(states, self.self_attention_norm, lambda x: self.self_attention(x, x, source_mask))
        return self.residual(states, self.feed_forward_norm, self.feed_forward)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Masked self-attention, encoder-decoder attention, feed-forward, each in its residual (figure 1, right)."""

    def __init__(self, config: ModelConfig, dropout: float) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.self_attention_norm = nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS)
        self.cross_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.cross_attention_norm = nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.feed_forward_norm = nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS)
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
        self.layers = nn.ModuleList(EncoderLayer(config, dropout) for _ in range(config.num_encoder_layers))
        self.norm = final_norm(config)

    def forward(self, states: Tensor, source_mask: Tensor) -> Tensor:
        """Embedded source [B, S, D] -> memory [B, S, D]."""
        for layer in self.layers:
            states = layer(states, source_mask)
        return self.norm(states)  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """M decoder layers; M may be smaller than N: a deep encoder is cheap at decoding time (Kasai et al. 2021)."""

    def __init__(self, config: ModelConfig, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config, dropout) for _ in range(config.num_decoder_layers))
        self.norm = final_norm(config)

    def forward(self, states: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """Embedded target [B, T, D], memory [B, S, D] -> [B, T, D]; a step sees itself and earlier steps only."""
        target_mask = causal_mask(states.size(1), states.device)
        for layer in self.layers:
            states = layer(states, memory, target_mask, source_mask)
        return self.norm(states)  # type: ignore[no-any-return]


def final_norm(config: ModelConfig) -> nn.Module:
    """Return the norm after a stack: a LayerNorm with pre-norm, the identity with post-norm."""
    if config.norm_placement is NormPlacement.PRE:
        return nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS)
    return nn.Identity()


class Transformer(nn.Module):
    """Translation model; one embedding matrix is source, target and projection (section 3.4; Press & Wolf 2017)."""

    positions: Tensor

    def __init__(self, config: ModelConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model, padding_idx=PAD_ID)
        self.encoder = Encoder(config, dropout)
        self.decoder = Decoder(config, dropout)
        self.dropout = Dropout(dropout)
        self.register_buffer("positions", sinusoidal_positions(config.max_positions, config.d_model), persistent=False)

    def forward(self, source: Tensor, source_lengths: Tensor, target_inputs: Tensor) -> Tensor:
        """Return logits [B, T, V] of each next token, given source [B, S] and the target so far [B, T]."""
        return self.project(self.decode(target_inputs, self.encode(source, source_lengths), source_lengths))

    def encode(self, source: Tensor, source_lengths: Tensor) -> Tensor:
        """Return the memory [B, S, D] of source ids [B, S], padded on the right."""
        memory: Tensor = self.encoder(self.embed(source), padding_mask(source_lengths, source.size(1)))
        return memory

    def decode(self, target_inputs: Tensor, memory: Tensor, source_lengths: Tensor) -> Tensor:
        """Return decoder states [B, T, D] of target ids [B, T] that start with begin-of-sentence."""
        states: Tensor = self.decoder(self.embed(target_inputs), memory, padding_mask(source_lengths, memory.size(1)))
        return states

    def embed(self, tokens: Tensor) -> Tensor:
        """Section 3.4 and 3.5: E[token] * sqrt(D) + PE[t], then dropout.  [B, T] -> [B, T, D]."""
        states = self.embedding(tokens) * math.sqrt(self.config.d_model) + self.positions[: tokens.size(1)]
        device = states.device.type
        if torch.is_autocast_enabled(device):  # so that the whole residual stream has its precision
            states = states.to(torch.get_autocast_dtype(device))
        return self.dropout(states)  # type: ignore[no-any-return]

    def project(self, states: Tensor) -> Tensor:
        """Decoder states [..., D] -> logits [..., V], with the embedding matrix itself."""
        return functional.linear(states, self.embedding.weight)

    def initialize(self, seed: int) -> Self:
        """Xavier-uniform projections (Glorot & Bengio 2010); embeddings N(0, 1/D), of unit variance once scaled.

        The same seed gives the same weights on every machine.
        """
        generator = torch.Generator().manual_seed(seed)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=generator)
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.embedding.weight, std=self.config.d_model**-0.5, generator=generator)
        with torch.no_grad():
            self.embedding.weight[PAD_ID].zero_()
        return self

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters())
