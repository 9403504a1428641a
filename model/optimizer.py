"""Adam and the inverse-square-root learning rate with warm-up (sections 5.3 of the paper).  Knows no data."""

import math

import torch
from torch import nn

from model.recipe import OptimizerConfig


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Adam:
    """Adam over all parameters, in the fused form that updates them in one pass."""
    return torch.optim.Adam(
        model.parameters(), lr=config.peak_learning_rate, betas=config.betas, eps=config.epsilon, fused=True
    )


def learning_rate(update: int, config: OptimizerConfig, max_updates: int) -> float:
    """Rate of update 1, 2, ...: linear warm-up, then peak * sqrt(warmup / update), then a linear cool-down to zero.

    Equation 3 of the paper with the peak named instead of derived from d_model:
        peak * min(update / warmup, sqrt(warmup / update))

    With `starts_at_peak` the rise is left out: peak * min(1, sqrt(warmup / update)).
    """
    rise = 1.0 if config.starts_at_peak else update / config.warmup_updates
    rate = config.peak_learning_rate * min(rise, math.sqrt(config.warmup_updates / update))
    updates_left = max_updates + 1 - update
    if config.cooldown_updates and updates_left < config.cooldown_updates:
        rate *= updates_left / config.cooldown_updates
    return rate
