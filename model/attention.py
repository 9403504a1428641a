"""Attention weights of a model that runs over given sentences; the model stays as it is.

Axes: L decoder layers, B sentences, H heads, Q queries, M memory, S source, T target.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from model.layers import MultiHeadAttention
from model.transformer import Transformer


@contextmanager
def watched(attentions: Iterable[nn.Module]) -> Iterator[dict[nn.Module, Tensor]]:
    """Collect the weights [B, H, Q, M] of each `MultiHeadAttention` that runs while this is open."""
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
    """Return logits [B, T, V] and the cross-attention [L, B, H, T, S] of one pass, arguments as of `Transformer`."""
    attentions = [layer.get_submodule("cross_attention") for layer in model.decoder.layers]
    with watched(attentions) as weights:
        logits = model(source, source_lengths, target_inputs)
    return logits, torch.stack([weights[attention] for attention in attentions])
