"""The parts of a Transformer, each as its own module with its equation: attention, feed-forward, norms, positions.

"The paper" is Vaswani et al. 2017, "Attention Is All You Need".  Knows nothing of stacks, vocabularies or search.
Axes: B batch, S source, T target, Q queries, M memory (keys), D d_model, H heads, d d_head.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import Activation, NormPlacement

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.RELU: functional.relu,
    Activation.SWISH: functional.silu,
    Activation.GELU: functional.gelu,
    Activation.GELU_TANH: partial(functional.gelu, approximate="tanh"),
}


def sinusoidal_positions(num_positions: int, d_model: int) -> Tensor:
    """Return the paper's position table (section 3.5): sin on even, cos on odd features.

        PE(t, 2i) = sin(t / 10000^(2i/D)),   PE(t, 2i+1) = cos(t / 10000^(2i/D))

    Returns:
        [num_positions, d_model] float32.
    """
    steps = torch.arange(num_positions, dtype=torch.float64).unsqueeze(1)  # [T, 1]
    rates = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10_000.0) / d_model))  # [D / 2]
    table = torch.zeros(num_positions, d_model, dtype=torch.float64)
    table[:, 0::2] = torch.sin(steps * rates)
    table[:, 1::2] = torch.cos(steps * rates[: d_model // 2])
    return table.float()


def padding_mask(lengths: Tensor, num_columns: int) -> Tensor:
    """Return which of M memory columns hold a token, given lengths [B]: [B, 1, 1, M] bool, True shows."""
    columns = torch.arange(num_columns, device=lengths.device)
    return (columns < lengths.unsqueeze(1))[:, None, None, :]


def causal_mask(num_steps: int, device: torch.device | None = None) -> Tensor:
    """Return which steps a step may see: [1, 1, T, T] bool, lower triangle True (section 3.2.3)."""
    return torch.ones(num_steps, num_steps, dtype=torch.bool, device=device).tril()[None, None]


def with_relative_bias(mask: Tensor, table: Tensor | None, num_columns: int) -> Tensor:
    """Add what self-attention knows of distances (Shaw et al. 2018; Raffel et al. 2020) to a mask of S columns.

    Args:
        mask: bool, broadcastable to [B, H, S, S].
        table: [H, 2 R + 1]: number i is added to the product of a query and the key i - R columns before it; those
            farther away have the first or the last number.  None: the mask is returned as it is.
        num_columns: S.

    Returns:
        float [B or 1, H, S, S], minus infinity where the mask hides.
    """
    if table is None:
        return mask
    farthest, columns = table.size(1) // 2, torch.arange(num_columns, device=mask.device)
    distances = (columns[:, None] - columns).clamp(-farthest, farthest) + farthest  # [S, S]
    return torch.where(mask, table[:, distances], -math.inf)


class Attended(NamedTuple):
    """Result of attention: the mixed values and, for pictures, the weights that mixed them."""

    values: Tensor  # [B, H, Q, d]
    weights: Tensor  # [B, H, Q, M], rows sum to 1


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Attended:
    """Equation 1 of the paper: softmax(Q K^T / sqrt(d)) V.

    Args:
        query: [B, H, Q, d].
        key, value: [B, H, M, d].
        mask: broadcastable to [B, H, Q, M]; False hides, and floats are added to Q K^T / sqrt(d).
    """
    scores = (query / math.sqrt(query.size(-1))) @ key.transpose(-2, -1)  # [B, H, Q, M]
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype is torch.bool else scores + mask
    weights = scores.softmax(dim=-1)
    return Attended(weights @ value, weights)


class MultiHeadAttention(nn.Module):
    """Section 3.2.2: H heads attend side by side, each in its own projection of width d, usually D / H.

    MultiHead(Q, K, V) = Concat(head_1 .. head_H) W^O,   head_h = Attention(Q W_h^Q, K W_h^K, V W_h^V)
    """

    def __init__(self, d_model: int, num_heads: int, d_head: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(d_model, num_heads * d_head)
        self.key = nn.Linear(d_model, num_heads * d_head)
        self.value = nn.Linear(d_model, num_heads * d_head)
        self.output = nn.Linear(num_heads * d_head, d_model)

    def forward(self, queries: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """Mix `memory` for each query.

        Args:
            queries: [B, Q, D].
            memory: [B, M, D]; the queries themselves in self-attention.
            mask: as of `scaled_dot_product_attention`.

        Returns:
            [B, Q, D].
        """
        return self.mix(queries, *self.keys_and_values(memory), mask)

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """[B, M, D] -> keys and values, [B, H, M, d]."""
        return self._split(self.key(memory)), self._split(self.value(memory))

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Return what `forward` does, of keys and values that are known: [B, Q, D]."""
        heads = self._split(self.query(queries))
        if queries.is_cuda:  # the same in one kernel
            return self.merge(functional.scaled_dot_product_attention(heads, keys, values, attn_mask=mask))
        return self.merge(scaled_dot_product_attention(heads, keys, values, mask).values)

    def attend(self, queries: Tensor, memory: Tensor, mask: Tensor | None) -> Attended:
        """Return what `forward` computes before the heads are merged, with the attention weights."""
        return scaled_dot_product_attention(self._split(self.query(queries)), *self.keys_and_values(memory), mask)

    def merge(self, heads: Tensor) -> Tensor:
        """[B, H, Q, d] -> [B, Q, D], through W^O."""
        return self.output(heads.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]  # nn.Module is untyped

    def _split(self, tensor: Tensor) -> Tensor:
        """[B, M, D] -> [B, H, M, d]."""
        return tensor.view(*tensor.shape[:-1], self.num_heads, -1).transpose(1, 2)


class Ssru(nn.Module):
    """Simpler simple recurrent unit (Kim et al. 2019, "From Research to Production and Back").

        x_t = W x,   f_t = sigmoid(W_f x + b_f),   c_t = f_t * c_{t-1} + (1 - f_t) * x_t,   h_t = relu(c_t)

    c is zero before the first step.  As in marian-dev's src/rnn/cells.h, whose W has no bias.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.input = nn.Linear(d_model, d_model)
        self.forget = nn.Linear(d_model, d_model)

    def forward(self, states: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]; memory and mask are those of self-attention, in whose place it stands."""
        del memory, mask
        inputs, forget = self.input(states), torch.sigmoid(self.forget(states))
        cell, cells = torch.zeros_like(inputs[:, 0]), []
        for step in range(states.size(1)):
            cell = forget[:, step] * cell + (1.0 - forget[:, step]) * inputs[:, step]
            cells.append(cell)
        return functional.relu(torch.stack(cells, dim=1))


class FeedForward(nn.Module):
    """Equation 2, at each position separately: FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, or another activation.

    With a gate (Shazeer 2020): FFN(x) = (f(x G + g) * (x W_1 + b_1)) W_2 + b_2, f the activation.
    """

    def __init__(
        self, d_model: int, d_ff: int, activation: Activation = Activation.RELU, *, gated: bool = False
    ) -> None:
        super().__init__()
        self._activate = _ACTIVATIONS[activation]
        self.gate = nn.Linear(d_model, d_ff) if gated else None
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)

    def forward(self, inputs: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        if self.gate is None:
            return self.outer(self._activate(self.inner(inputs)))  # type: ignore[no-any-return]
        return self.outer(self._activate(self.gate(inputs)) * self.inner(inputs))  # type: ignore[no-any-return]


class Dropout(nn.Module):
    """Zero each number with probability p and scale the others by 1 / (1 - p) (Srivastava et al. 2014).

    On the CPU the mask comes from random bytes, so p is rounded to 1/256: `torch.bernoulli_` draws on one core and took
    a fifth of a training step.  `Dropout.seed` makes the masks repeatable.
    """

    _bytes = np.random.Generator(np.random.SFC64(0))

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self._dropped = min(255, round(probability * 256))  # byte values that mean zero; at least one keeps

    def forward(self, inputs: Tensor) -> Tensor:
        """Any shape -> the same shape; identity outside training."""
        if not self.training or self._dropped == 0:
            return inputs
        if inputs.is_cuda:
            return functional.dropout(inputs, self.probability)
        random = torch.from_numpy(np.frombuffer(bytearray(self._bytes.bytes(inputs.numel())), dtype=np.uint8))
        kept = (random >= self._dropped).view_as(inputs).to(inputs.dtype)
        return (inputs * kept).mul_(256 / (256 - self._dropped))  # bf16 would round a scale inside the mask 0.3 % down

    @classmethod
    def seed(cls, seed: int, update: int) -> None:
        """Make the masks of an update depend on `seed` and `update` alone, so that a resumed run repeats them."""
        cls._bytes = np.random.Generator(np.random.SFC64([seed, update]))
        torch.manual_seed(seed * 1_000_003 + update)


class Residual(nn.Module):
    """Residual sum, dropout and layer normalisation around a sub-layer f (section 3.1, 5.4).

    Post-norm, the paper's:                LayerNorm(x + Dropout(f(x)))
    Pre-norm, stable without warm-up:      x + Dropout(f(LayerNorm(x)))      (Xiong et al. 2020)
    """

    def __init__(self, placement: NormPlacement, dropout: float) -> None:
        super().__init__()
        self.placement = placement
        self.dropout = Dropout(dropout)

    def forward(self, inputs: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        if self.placement is NormPlacement.PRE:
            return inputs + self.dropout(sublayer(norm(inputs)))  # type: ignore[no-any-return]  # nn.Module is untyped
        return norm(inputs + self.dropout(sublayer(inputs)))  # type: ignore[no-any-return]
