"""The learning-rate schedule at its corners."""

import math
from dataclasses import replace

import pytest

from model.optimizer import learning_rate
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
