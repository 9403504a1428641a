"""The learning rate, which optimiser updates what, Muon against its definition and PyTorch's, device and precision."""

import math
from dataclasses import replace

import pytest
import torch

from model.optimizer import Muon, choose_device, learning_rate
from model.recipe import OptimizerConfig

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
