"""Label-smoothed cross-entropy (Szegedy et al. 2016; section 5.4 of the paper).  Knows neither layers nor optimiser."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from model.config import PAD_ID

CHUNK_ROWS = 256  # x 8,000 words: a few megabytes at a time instead of all logits (bench/bench_training.py)
GPU_CHUNK_ROWS = 8_192  # fewer and larger kernels


class Loss(NamedTuple):
    """Sums over the tokens that are not padding, so that batches of any size add up."""

    smoothed: Tensor  # scalar: what training minimises
    nll: Tensor  # scalar, no gradient: negative log-likelihood in nats, what perplexity is computed from
    num_tokens: Tensor  # scalar


def projected_cross_entropy(states: Tensor, projection: Tensor, targets: Tensor, smoothing: float) -> Loss:
    """Cross-entropy against (1 - smoothing) on the target and smoothing spread evenly over the vocabulary.

        -sum_v q(v) log p(v) = (1 - e) * -log p(y) + e * mean_v(-log p(v)),   log p(v) = z_v - logsumexp(z)

    Half of a training step on a CPU went into reading and writing [N, V] tensors.  Here the projection, the loss and,
    where gradients are on, theirs are computed chunk by chunk of rows, in the states' own precision with fp32 sums.

    Args:
        states: [..., D] decoder outputs.
        projection: [V, D]; the logits are states @ projection^T.
        targets: [...]; `PAD_ID` does not count.
        smoothing: e, 0.1 in the paper.
    """
    if not torch.is_grad_enabled():  # a Function cannot see it: its inputs still say that they require gradients
        states, projection = states.detach(), projection.detach()
    flat_states, flat_targets = states.flatten(0, -2), targets.flatten()
    is_token = flat_targets != PAD_ID
    smoothed, nll = _ProjectedCrossEntropy.apply(  # type: ignore[no-untyped-call]  # torch's Function is untyped
        flat_states[is_token], projection, flat_targets[is_token], smoothing
    )
    return Loss(smoothed, nll, is_token.sum())


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Gradient of the smoothed loss by the logits: softmax(z) - (1 - e) * onehot(y) - e / V."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, projection: Tensor, targets: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        weight = projection.to(states.dtype)
        smoothed = states.new_zeros((), dtype=torch.float32)
        nll = smoothed.clone()
        needs_grad = any(ctx.needs_input_grad)
        if needs_grad:
            states_grad = torch.empty_like(states)
            weight_grad = torch.zeros_like(projection, dtype=torch.float32)
        chunk = GPU_CHUNK_ROWS if states.is_cuda else CHUNK_ROWS
        for rows, words in zip(torch.split(states, chunk), torch.split(targets, chunk), strict=True):
            start = int(rows.storage_offset() // states.size(-1))
            logits = (rows @ weight.t()).float()  # [C, V]
            index = words.unsqueeze(-1)
            log_normalizer = logits.logsumexp(dim=-1, keepdim=True)
            chunk_nll = (log_normalizer - logits.gather(-1, index)).sum()
            uniform = (log_normalizer.squeeze(-1) - logits.mean(dim=-1)).sum()
            nll += chunk_nll
            smoothed += (1.0 - smoothing) * chunk_nll + smoothing * uniform
            if not needs_grad:
                continue
            logits_grad = logits.sub_(log_normalizer).exp_().sub_(smoothing / logits.size(-1))
            logits_grad.scatter_add_(-1, index, torch.full_like(index, smoothing - 1.0, dtype=torch.float32))
            logits_grad = logits_grad.to(states.dtype)
            torch.mm(logits_grad, weight, out=states_grad[start : start + rows.size(0)])
            weight_grad += logits_grad.t() @ rows
        ctx.mark_non_differentiable(nll)
        if needs_grad:
            ctx.save_for_backward(states_grad, weight_grad.to(projection.dtype))
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, smoothed_grad: Tensor, nll_grad: Tensor) -> tuple[Tensor, Tensor, None, None]:  # noqa: ARG004  # torch's signature
        states_grad, weight_grad = ctx.saved_tensors
        return states_grad * smoothed_grad.to(states_grad.dtype), weight_grad * smoothed_grad, None, None
