"""The learning rate, which optimiser updates what, Muon against its definition and PyTorch's, device and precision."""

import math
from dataclasses import replace

import pytest
import torch

from model.config import ModelConfig
from model.optimizer import Muon, build_optimizer, choose_device, learning_rate
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
def test_rate_rises_and_falls_and_may_start_at_its_peak(update, expected):
    at_peak = replace(CONFIG, starts_at_peak=True)

    assert learning_rate(update, CONFIG, max_updates=1_000) == pytest.approx(expected)
    assert learning_rate(update, at_peak, max_updates=1_000) == pytest.approx(expected if update > 100 else 2.0)


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


SHAPES = [(24, 96), (96, 24), (32, 32)]


def seeded(shape: tuple[int, ...], seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def updated(optimizer_of, shape: tuple[int, int]) -> torch.Tensor:
    """A matrix after three updates with seeded gradients."""
    matrix = torch.nn.Parameter(seeded(shape))
    optimizer = optimizer_of([matrix])
    for seed in range(2, 5):
        matrix.grad = seeded(shape, seed)
        optimizer.step()
    return matrix.detach()


@pytest.mark.parametrize("shape", SHAPES)
def test_in_bf16_it_is_pytorchs(shape):
    ours = updated(lambda matrices: Muon(matrices, lr=0.01, weight_decay=0.1, precision=torch.bfloat16), shape)
    theirs = updated(
        lambda matrices: torch.optim.Muon(matrices, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"), shape
    )

    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "device is 'gpu', accepted are cpu, cuda and auto"),
        ("meta", "device is 'meta', accepted are cpu, cuda and auto"),
        ("cuda:2", "device is 'cuda:2', PyTorch sees 2 GPUs"),
    ],
)
def test_a_device_that_is_not_there_is_refused(monkeypatch, name, message):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    with pytest.raises(ValueError, match=message):
        choose_device(name)
