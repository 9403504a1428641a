"""Label-smoothed cross-entropy: the plain form against the definition, the chunked form against the plain one."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

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


@pytest.mark.parametrize("without_gradients", [torch.no_grad, torch.inference_mode])
def test_a_loss_that_nobody_differentiates_is_one_product_instead_of_three(without_gradients):
    torch.manual_seed(3)
    rows = CHUNK_ROWS + 17
    states, projection = torch.randn(rows, 8, requires_grad=True), torch.randn(30, 8, requires_grad=True)
    targets = torch.randint(1, 30, (rows,))  # none is padding
    product = 2 * rows * 8 * 30

    with FlopCounterMode(display=False) as trained:
        expected = projected_cross_entropy(states, projection, targets, 0.1)
    with FlopCounterMode(display=False) as measured, without_gradients():
        loss = projected_cross_entropy(states, projection, targets, 0.1)

    assert trained.get_total_flops() == 3 * product
    assert measured.get_total_flops() == product
    assert loss.smoothed.item() == expected.smoothed.item()
    assert float(loss.nll) == float(expected.nll)
