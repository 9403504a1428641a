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


def test_logits_have_one_row_per_target_position(model):
    assert model(SOURCE, LENGTHS, TARGET).shape == (1, 4, 40)


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


def test_projection_is_the_embedding(model):
    states = model.decode(TARGET, model.encode(SOURCE, LENGTHS), LENGTHS)

    assert torch.allclose(model.project(states), states @ model.embedding.weight.T, atol=1e-6)


def test_order_of_words_matters(model):
    swapped = torch.tensor([[6, 5, 7, EOS_ID]])

    assert not torch.allclose(model(SOURCE, LENGTHS, TARGET), model(swapped, LENGTHS, TARGET), atol=1e-4)


def test_same_seed_gives_same_weights():
    one, two = (Transformer(ModelConfig(**SMALL)).initialize(9).state_dict() for _ in range(2))

    assert all(torch.equal(one[name], two[name]) for name in one)


def test_post_norm_has_no_final_norm():
    names = Transformer(ModelConfig(**SMALL, norm_placement=NormPlacement.POST)).state_dict()

    assert not any(name.startswith(("encoder.norm", "decoder.norm")) for name in names)


def test_config_refuses_heads_that_do_not_divide_the_width():
    with pytest.raises(ValueError, match=r"d_model is 16, it must be a multiple of num_heads \(5\)"):
        ModelConfig(**{**SMALL, "num_heads": 5})


def test_config_refuses_an_empty_stack():
    with pytest.raises(ValueError, match="num_decoder_layers is 0, at least 1 is needed"):
        ModelConfig(**{**SMALL, "num_decoder_layers": 0})


@pytest.mark.parametrize("value", [512.5, 512.0, True, "512", None])
def test_config_refuses_dimensions_that_are_no_integers(value):
    with pytest.raises(ValueError, match=f"max_positions is {value!r}, it must be an integer"):
        ModelConfig(**{**SMALL, "max_positions": value})


def test_config_survives_its_dict():
    config = ModelConfig(**SMALL, norm_placement=NormPlacement.POST)

    assert ModelConfig.from_dict(config.to_dict()) == config
