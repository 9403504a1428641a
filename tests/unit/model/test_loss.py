"""Label-smoothed cross-entropy: the plain form against the definition, the chunked form against the plain one."""

import pytest
import torch

from model.config import PAD_ID
from model.loss import CHUNK_ROWS, projected_cross_entropy
from tests.fakes.plain_loss import label_smoothed_cross_entropy


def test_loss_is_cross_entropy_against_the_smoothed_target():
    torch.manual_seed(1)
    logits, targets = torch.randn(1, 3, 5), torch.tensor([[3, 4, PAD_ID]])
    log_probs = logits.log_softmax(-1)[0]

    loss = label_smoothed_cross_entropy(logits, targets, 0.1)

    expected = 0.0
    for row, target in enumerate((3, 4)):
        q = [0.9 * (word == target) + 0.1 / 5 for word in range(5)]
        expected -= sum(share * float(log_probs[row, word]) for word, share in enumerate(q))
    assert loss.smoothed.item() == pytest.approx(expected, rel=1e-5)
    assert float(loss.nll) == pytest.approx(-float(log_probs[0, 3] + log_probs[1, 4]), rel=1e-5)


def test_chunked_loss_and_gradients_equal_the_plain_ones():
    torch.manual_seed(2)
    rows = 2 * CHUNK_ROWS + 17  # two full chunks and a rest
    states, projection = torch.randn(1, rows, 8), torch.randn(30, 8)
    targets = torch.randint(0, 30, (1, rows))  # some are padding
    plain_in = states.clone().requires_grad_(), projection.clone().requires_grad_()
    chunked_in = states.clone().requires_grad_(), projection.clone().requires_grad_()

    plain = label_smoothed_cross_entropy(plain_in[0] @ plain_in[1].T, targets, 0.1)
    chunked = projected_cross_entropy(*chunked_in, targets, 0.1)
    plain_grads = torch.autograd.grad(plain.smoothed / 7, plain_in)
    chunked_grads = torch.autograd.grad(chunked.smoothed / 7, chunked_in)

    assert chunked.smoothed.item() == pytest.approx(plain.smoothed.item(), rel=1e-5)
    assert float(chunked.nll) == pytest.approx(float(plain.nll), rel=1e-5)
    assert int(chunked.num_tokens) == int(plain.num_tokens) < rows
    for ours, expected in zip(chunked_grads, plain_grads, strict=True):
        assert torch.allclose(ours, expected, atol=1e-5)
