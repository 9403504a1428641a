"""The whole model: what may influence what, and the pre- and post-norm forms."""

import math
from typing import Any

import pytest
import torch

from model.config import BOS_ID, EOS_ID, PAD_ID, ModelConfig, NormPlacement
from model.layers import Dropout, scaled_dot_product_attention
from model.loss import CHUNK_ROWS, projected_cross_entropy
from model.transformer import Transformer
from tests.fakes.plain_loss import label_smoothed_cross_entropy


def test_attention_is_equation_1_row_by_row():
    torch.manual_seed(1)
    query, key, value = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 3, 4), torch.randn(1, 1, 3, 4)
    mask = torch.tensor([[True, True, False], [True, True, True]])

    values, weights = scaled_dot_product_attention(query, key, value, mask)

    for row, visible in ((0, 2), (1, 3)):
        scores = [float(query[0, 0, row] @ key[0, 0, column]) / math.sqrt(4) for column in range(visible)]
        exponentials = [math.exp(score) for score in scores]
        expected = [exponential / sum(exponentials) for exponential in exponentials] + [0.0] * (3 - visible)
        assert weights[0, 0, row].tolist() == pytest.approx(expected, abs=1e-6)
        assert torch.allclose(
            values[0, 0, row], sum(w * v for w, v in zip(expected, value[0, 0], strict=True)), atol=1e-6
        )


def test_dropout_masks_depend_on_the_update_alone():
    layer, x = Dropout(0.5).train(), torch.ones(64)

    Dropout.seed(7, 3)
    first = layer(x)
    layer(x)
    Dropout.seed(7, 3)
    again = layer(x)
    Dropout.seed(7, 4)

    assert torch.equal(first, again)
    assert not torch.equal(first, layer(x))


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


SMALL: dict[str, Any] = {
    "vocab_size": 40,
    "d_model": 16,
    "d_ff": 32,
    "num_heads": 4,
    "num_encoder_layers": 2,
    "num_decoder_layers": 1,
}


@pytest.fixture(params=list(NormPlacement))
def model(request: pytest.FixtureRequest) -> Transformer:
    return Transformer(ModelConfig(**SMALL, norm_placement=request.param), dropout=0.5).initialize(1).eval()


SOURCE = torch.tensor([[5, 6, 7, EOS_ID]])
LENGTHS = torch.tensor([4])
TARGET = torch.tensor([[BOS_ID, 8, 9, 10]])


def test_a_step_does_not_see_later_steps(model):
    changed = TARGET.clone()
    changed[0, 3] = 11

    before, after = model(SOURCE, LENGTHS, TARGET), model(SOURCE, LENGTHS, changed)

    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3], after[:, 3])


def test_every_step_sees_the_whole_source(model):
    changed = SOURCE.clone()
    changed[0, 2] = 12

    difference = (model(SOURCE, LENGTHS, TARGET) - model(changed, LENGTHS, TARGET)).abs().amax(-1)

    assert (difference > 1e-5).all()


def test_padding_does_not_change_a_sentence(model):
    padded = torch.cat([SOURCE, torch.zeros(1, 5, dtype=torch.long)], dim=1)

    assert torch.allclose(model(SOURCE, LENGTHS, TARGET), model(padded, LENGTHS, TARGET), atol=1e-5)
