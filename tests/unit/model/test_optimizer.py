"""The learning-rate schedule at its corners, and who updates which parameters."""

import math
from dataclasses import replace

import pytest
import torch

import model.optimizer
from model.config import ModelConfig
from model.optimizer import build_optimizer, learning_rate
from model.recipe import OptimizerConfig
from model.transformer import Transformer

CONFIG = OptimizerConfig(peak_learning_rate=2.0, warmup_updates=100, cooldown_updates=50)


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (1, 0.02),  # linear warm-up
        (50, 1.0),
        (100, 2.0),  # peak
        (400, 1.0),  # falls with the square root
        (951, 2.0 * math.sqrt(100 / 951)),  # 50 updates left: cool-down begins
        (1_000, 2.0 * math.sqrt(100 / 1_000) / 50),  # the last update
    ],
)
def test_rate(update, expected):
    assert learning_rate(update, CONFIG, max_updates=1_000) == pytest.approx(expected)


def test_equation_3_of_the_paper_for_its_base_model():
    """d_model 512, 4,000 warm-up updates: d^-0.5 * min(step^-0.5, step * warmup^-1.5)."""
    peak = (512 * 4_000) ** -0.5
    config = OptimizerConfig(peak_learning_rate=peak, warmup_updates=4_000)

    for step in (1, 1_000, 4_000, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4_000**-1.5)
        assert learning_rate(step, config, max_updates=100_000) == pytest.approx(expected)


def test_a_schedule_may_start_at_its_peak_and_falls_as_before():
    at_peak = replace(CONFIG, starts_at_peak=True)

    assert learning_rate(1, at_peak, max_updates=1_000) == 2.0
    assert learning_rate(100, at_peak, max_updates=1_000) == 2.0
    assert learning_rate(400, at_peak, max_updates=1_000) == learning_rate(400, CONFIG, max_updates=1_000)


def one_update(config: OptimizerConfig) -> tuple[Transformer, dict[str, torch.Tensor]]:
    """A small model with gradients of all kinds, and by how much each parameter changed in one update."""
    shape = ModelConfig(vocab_size=30, d_model=32, d_ff=64, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    model = Transformer(shape, 0.0).initialize(1)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    build_optimizer(model, config).step()
    return model, {name: parameter.detach() - before[name] for name, parameter in model.named_parameters()}


def test_muon_updates_the_layers_matrices_along_all_directions_and_adam_the_rest():
    config = OptimizerConfig(peak_learning_rate=1e-2, muon_weight_decay=0.0)
    _, by_adam = one_update(config)
    model, by_both = one_update(replace(config, matrices="muon"))

    matrices = {name for name, parameter in model.named_parameters() if parameter.ndim == 2 and "embedding" not in name}
    assert len(matrices) == 3 * 4 + 2 * 2
    for name, change in by_both.items():
        if name in matrices:
            singular, of_gradient = torch.linalg.svdvals(change), torch.linalg.svdvals(model.get_parameter(name).grad)
            assert singular.quantile(0.1) > 0.5 * singular.max()
            assert of_gradient.quantile(0.1) < 0.5 * of_gradient.max()
            rms = change.square().mean().sqrt()
            assert 0.1e-2 < rms < 0.3e-2  # 0.2 of the rate, as Adam's usually are
        else:
            assert torch.equal(change, by_adam[name])


@pytest.mark.parametrize(
    ("training", "expected"),
    [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.float16, torch.float32)],
)
def test_muon_multiplies_in_bf16_only_where_the_training_does(monkeypatch, training, expected):
    seen = set()

    def remember(matrix: torch.Tensor) -> torch.Tensor:
        seen.add(matrix.dtype)
        return matrix

    monkeypatch.setattr(model.optimizer, "orthogonalized", remember)
    layer = torch.nn.Linear(4, 3)
    layer(torch.ones(4)).sum().backward()

    build_optimizer(layer, OptimizerConfig(matrices="muon"), training).step()

    assert seen == {expected}


def test_weight_decay_shrinks_the_matrices_of_muon():
    config = OptimizerConfig(peak_learning_rate=1e-2, matrices="muon", muon_weight_decay=0.0)
    _, without = one_update(config)
    model, with_decay = one_update(replace(config, muon_weight_decay=0.5))

    name = "encoder.layers.0.feed_forward.inner.weight"
    start = model.get_parameter(name).detach() - with_decay[name]
    assert torch.allclose(with_decay[name] - without[name], -1e-2 * 0.5 * start, atol=1e-6)


def test_joined_optimizers_take_no_closure():
    model, _ = one_update(OptimizerConfig())

    with pytest.raises(ValueError, match="closure"):
        build_optimizer(model, OptimizerConfig(matrices="muon")).step(lambda: 0.0)
