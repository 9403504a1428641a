"""The Transformer's parts against the paper's equations, written out with loops."""

import math

import pytest
import torch

from model.layers import Dropout, scaled_dot_product_attention


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
