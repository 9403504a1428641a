"""Label-smoothed cross-entropy in its plain form, the slow twin of `model.loss.projected_cross_entropy`."""

from torch import Tensor

from model.config import PAD_ID
from model.loss import Loss


def label_smoothed_cross_entropy(logits: Tensor, targets: Tensor, smoothing: float) -> Loss:
    """Cross-entropy against (1 - smoothing) on the target and smoothing spread evenly over the vocabulary.

        -sum_v q(v) log p(v) = (1 - e) * -log p(y) + e * mean_v(-log p(v)),   log p(v) = z_v - logsumexp(z)

    Args:
        logits: [..., V].
        targets: [...]; `PAD_ID` does not count.
        smoothing: e, 0.1 in the paper.
    """
    log_probs = logits.flatten(0, -2).float().log_softmax(dim=-1)  # [N, V]
    targets = targets.flatten()  # [N]
    is_token = (targets != PAD_ID).float()
    nll = -log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1) * is_token
    uniform = -log_probs.mean(dim=-1) * is_token
    smoothed = (1.0 - smoothing) * nll + smoothing * uniform
    return Loss(smoothed.sum(), nll.sum().detach(), is_token.sum())
