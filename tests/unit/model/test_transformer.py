"""The whole model: what may influence what, and the pre- and post-norm forms."""

from typing import Any

import pytest
import torch

from model.config import BOS_ID, EOS_ID, ModelConfig, NormPlacement
from model.transformer import Transformer

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
