"""The parts of the benchmarks that decide."""

import numpy as np
import pytest
import torch

from bench.race.regimes import climb
from bench.race.shapes import BIAS, base_shape, opus_shape
from export.linear import State
from export.verify import reference_model
from model.config import Activation, ModelConfig
from tests.fakes.tiny_model import padded, random_sentences, state_of, tiny_config, tiny_model


@pytest.mark.parametrize("guess", [-30, 12, 13, 14, 60])
def test_climbing_finds_the_limit_from_any_guess(guess):
    asked: list[int] = []

    def is_sustained(rung: int) -> bool:
        asked.append(rung)
        return rung <= 13

    assert climb(guess, is_sustained) == 13
    assert len(set(asked)) == len(asked)


def logits(config: ModelConfig, state: State) -> torch.Tensor:
    source, lengths = padded(random_sentences(tiny_config(), (9, 3, 14)))
    targets = np.random.default_rng(1).integers(4, tiny_config().vocab_size, (3, 7))
    with torch.inference_mode():
        found: torch.Tensor = reference_model(config, state)(*map(torch.from_numpy, (source, lengths, targets)))
    return found


def test_the_races_larger_model_computes_what_the_smaller_one_does():
    config = tiny_config()
    state = state_of(tiny_model(config))
    base = base_shape(config, state, layers=5, vocabulary=100)

    narrow = logits(config, state)
    wide = logits(base.config, base.state)

    torch.testing.assert_close(wide[..., : config.vocab_size], narrow, atol=1e-4, rtol=0)
    added = wide[..., config.vocab_size :]
    torch.testing.assert_close(added, torch.full_like(added, BIAS.logit), atol=1e-3, rtol=0)


def test_the_races_opus_shape_computes_nearly_what_the_smaller_model_does():
    config = tiny_config()
    state = state_of(tiny_model(config))
    opus = opus_shape(config, state, layers=2, vocabulary=100)

    narrow, wide = logits(config, state), logits(opus.config, opus.state)[..., : config.vocab_size]

    assert opus.config.activation is Activation.SWISH
    assert (wide - narrow).abs().mean() < 0.1 * narrow.std()
