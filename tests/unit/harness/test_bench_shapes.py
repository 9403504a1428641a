"""The race's larger model computes what the smaller one does."""

import numpy as np
import pytest
import torch

from export.linear import State
from export.verify import reference_model
from model.config import ModelConfig, NormPlacement
from tests.bench.race.shapes import BIAS, Shape, base_shape, positions_of
from tests.fakes.tiny_model import padded, random_sentences, state_of, tiny_config, tiny_model

SOURCES = (9, 3, 14)
STEPS = 7


@pytest.fixture(scope="module")
def tiny() -> tuple[ModelConfig, State]:
    config = tiny_config()
    return config, state_of(tiny_model(config))


@pytest.fixture(scope="module")
def base(tiny: tuple[ModelConfig, State]) -> Shape:
    return base_shape(*tiny, layers=5, vocabulary=100)


def logits(config: ModelConfig, state: State) -> torch.Tensor:
    source, lengths = padded(random_sentences(tiny_config(), SOURCES))
    targets = np.random.default_rng(1).integers(4, tiny_config().vocab_size, (len(SOURCES), STEPS))
    with torch.inference_mode():
        found: torch.Tensor = reference_model(config, state)(*map(torch.from_numpy, (source, lengths, targets)))
    return found


def test_the_widened_model_gives_the_same_logits(tiny: tuple[ModelConfig, State], base: Shape):
    with positions_of(base):
        wide = logits(base.config, base.state)

    narrow = logits(*tiny)
    torch.testing.assert_close(wide[..., : tiny[0].vocab_size], narrow, atol=1e-4, rtol=0)


def test_an_added_token_scores_the_same_low_logit_at_every_step(tiny: tuple[ModelConfig, State], base: Shape):
    with positions_of(base):
        wide = logits(base.config, base.state)

    added = wide[..., tiny[0].vocab_size :]
    torch.testing.assert_close(added, torch.full_like(added, BIAS.logit), atol=1e-3, rtol=0)


def test_every_parameter_has_the_shape_of_the_larger_model(base: Shape):
    with positions_of(base):
        reference = state_of(tiny_model(base.config))

    assert {name: array.shape for name, array in base.state.items()} == {
        name: array.shape for name, array in reference.items()
    }


def test_the_computed_position_table_is_back_afterwards(tiny: tuple[ModelConfig, State], base: Shape):
    before = logits(*tiny)
    with positions_of(base):
        pass

    assert torch.equal(logits(*tiny), before)


def test_a_post_norm_model_is_refused():
    config = tiny_config(NormPlacement.POST)

    with pytest.raises(ValueError, match="only a pre-norm model"):
        base_shape(config, state_of(tiny_model(config)))


def test_a_model_that_is_larger_already_is_refused(tiny: tuple[ModelConfig, State]):
    with pytest.raises(ValueError, match="more than 1 layers or 32000 tokens"):
        base_shape(*tiny, layers=1)
