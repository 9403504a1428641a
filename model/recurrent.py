"""The encoder-decoder that the Transformer replaced: LSTMs that read and write one token after the other.

    encoder       h_s = [forward LSTM over x_1 .. x_s ; backward LSTM over x_S .. x_s]       the memory [S, D]
    bridge        s_0 = tanh(W_b [forward half of h_S ; backward half of h_1] + b_b)         the source as one vector
    decoder       s_t = LSTM(E y_{t-1}, s_{t-1})
    attention     a_t = softmax_s(s_t W_a h_s),   c_t = sum_s a_ts h_s
                  o_t = tanh(W_c [c_t ; s_t])                                                without attention: s_t
    projection    p(y_t) = softmax(E o_t)

Without attention this is the model of Sutskever et al. 2014 ("Sequence to Sequence Learning with Neural Networks"): the
decoder knows the source by s_0 alone, however long it is.  Bahdanau et al. 2014 ("Neural Machine Translation by Jointly
Learning to Align and Translate") let each step look at the source again; the score here is the "general" one of Luong
et al. 2015 ("Effective Approaches to Attention-based Neural Machine Translation", section 3.1), whose attention comes
after the LSTM.  An LSTM is that of Hochreiter & Schmidhuber 1997 with a forget gate (Gers et al. 2000):

    i, f, o = sigmoid(W x_t + U s_{t-1} + b),   g = tanh(W x_t + U s_{t-1} + b)
    c_t = f * c_{t-1} + i * g,                  s_t = o * tanh(c_t)

Unlike these papers, all tables of tokens are one matrix E, and the encoder reads the source in both directions in all
models, so that attention is the only difference.  Axes: B batch, S source, T target, D width, V tokens, L layers.
"""

import math
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from model.config import Architecture, ModelConfig
from model.layers import Dropout, padding_mask


class Attended(NamedTuple):
    """Result of attention."""

    context: Tensor  # c, [B, T, D]
    weights: Tensor  # a, [B, 1, T, S]: one head, its rows sum to 1


class LuongAttention(nn.Module):
    """Global attention with the "general" score: score(s, h) = s W_a h (Luong et al. 2015, equation 8)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.key = nn.Linear(d_model, d_model, bias=False)  # W_a, on the side of the source: once a sentence
        self.output = nn.Linear(2 * d_model, d_model, bias=False)  # W_c

    def forward(self, states: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Return o of states [B, T, D] over memory [B, S, D], where the mask [B, 1, S] is True: [B, T, D]."""
        context = self.attend(states, memory, mask).context
        return torch.tanh(self.output(torch.cat([context, states], dim=-1)))

    def attend(self, states: Tensor, memory: Tensor, mask: Tensor) -> Attended:
        """Return context and weights."""
        scores = states @ self.key(memory).transpose(1, 2)  # [B, T, S]
        weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
        return Attended(weights @ memory, weights.unsqueeze(1))


class Recurrent(nn.Module):
    """Translation model with the methods of `Transformer` that training and search call."""

    def __init__(self, config: ModelConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        D = config.d_model
        self.embedding = nn.Embedding(config.vocab_size, D, padding_idx=config.pad_id)
        self.encoder = nn.LSTM(
            D, D // 2, config.num_encoder_layers, bidirectional=True, batch_first=True, dropout=dropout
        )
        self.bridge = nn.Linear(D, 2 * config.num_decoder_layers * D)
        self.decoder = nn.LSTM(D, D, config.num_decoder_layers, batch_first=True, dropout=dropout)
        has_attention = config.architecture is Architecture.LSTM_ATTENTION
        self.attention = LuongAttention(D) if has_attention else None
        self.dropout = Dropout(dropout)

    def forward(self, source: Tensor, source_lengths: Tensor, target_inputs: Tensor) -> Tensor:
        """Return logits [B, T, V] of each next token, given source [B, S] and the target so far [B, T]."""
        return self.project(self.decode(target_inputs, self.encode(source, source_lengths), source_lengths))

    def encode(self, source: Tensor, source_lengths: Tensor) -> Tensor:
        """Return the memory [B, S, D] of source ids [B, S], padded on the right."""
        embedded = pack_padded_sequence(
            self.embed(source), source_lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        memory, _ = pad_packed_sequence(self.encoder(embedded)[0], batch_first=True, total_length=source.size(1))
        return self.dropout(memory)  # type: ignore[no-any-return]  # nn.Module is untyped

    def embed(self, tokens: Tensor) -> Tensor:
        """E[token] * sqrt(D), as in the Transformer: [B, T] -> [B, T, D]."""
        return self.dropout(self.embedding(tokens) * math.sqrt(self.config.d_model))  # type: ignore[no-any-return]

    def first_state(self, memory: Tensor, source_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return s_0 and its cells from the ends of the memory [B, S, D]: two of [L, B, D]."""
        half = self.config.d_model // 2
        last = source_lengths.to(memory.device).long() - 1
        forward = memory[torch.arange(len(memory), device=memory.device), last, :half]
        ends = torch.cat([forward, memory[:, 0, half:]], dim=-1)
        states = torch.tanh(self.bridge(ends)).view(len(memory), 2, self.config.num_decoder_layers, -1)  # [B, 2, L, D]
        hidden, cells = states.permute(1, 2, 0, 3).contiguous()
        return hidden, cells

    def decode(self, target_inputs: Tensor, memory: Tensor, source_lengths: Tensor) -> Tensor:
        """Return states o [B, T, D] of target ids [B, T] that begin with `start_id`."""
        states, _ = self.decoder(self.embed(target_inputs), self.first_state(memory, source_lengths))
        if self.attention is not None:
            states = self.attention(states, memory, padding_mask(source_lengths, memory.size(1))[:, 0])
        return self.dropout(states)  # type: ignore[no-any-return]

    def project(self, states: Tensor) -> Tensor:
        """O [..., D] -> logits [..., V]."""
        return functional.linear(states, self.embedding.weight)

    def log_probs(self, logits: Tensor) -> Tensor:
        """Logits [..., V] -> log-probabilities [..., V]."""
        return logits.log_softmax(dim=-1)

    def initialize(self, seed: int) -> Self:
        """Draw embeddings from N(0, 1/D), all else from U(-1/sqrt(D), 1/sqrt(D)).

        Gates that forget start open (Jozefowicz et al. 2015).  The same seed gives the same weights on every machine.
        """
        generator, bound = torch.Generator().manual_seed(seed), self.config.d_model**-0.5
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.uniform_(-bound, bound, generator=generator)
                if ".bias_ih" in name:
                    parameter.zero_()
                    parameter.view(4, -1)[1] = 1.0  # PyTorch's order of gates: i, f, g, o
                elif "bias" in name:
                    parameter.zero_()
            nn.init.normal_(self.embedding.weight, std=bound, generator=generator)
            self.embedding.weight[self.config.pad_id].zero_()
        return self

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters())
