"""Adam, Muon for the matrices of the layers where a recipe asks for it, and the learning rate.  Knows no data."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Adam, Optimizer

from model.muon import Muon
from model.recipe import OptimizerConfig


def build_optimizer(model: nn.Module, config: OptimizerConfig, precision: torch.dtype = torch.float32) -> Optimizer:
    """What the recipe asks for: Adam over all parameters, or Muon over the layers' matrices and Adam over the rest.

    `precision` is the training's.  Muon multiplies in bf16 where the training does, else in fp32: the range of fp16 is
    too small.  The weights and both optimisers' states are fp32.
    """
    if config.matrices == "adam":
        return _adam(list(model.parameters()), config)
    matrices = [layer.weight for layer in model.modules() if isinstance(layer, nn.Linear)]
    taken = {id(weight) for weight in matrices}
    return JoinedOptimizer(
        {
            "muon": Muon(
                matrices,
                lr=config.peak_learning_rate,
                weight_decay=config.muon_weight_decay,
                precision=torch.bfloat16 if precision is torch.bfloat16 else torch.float32,
            ),
            "adam": _adam([weight for weight in model.parameters() if id(weight) not in taken], config),
        }
    )


def _adam(parameters: list[nn.Parameter], config: OptimizerConfig) -> Adam:
    """In the fused form, which updates all of them in one pass."""
    return Adam(parameters, lr=config.peak_learning_rate, betas=config.betas, eps=config.epsilon, fused=True)


class JoinedOptimizer(Optimizer):
    """Optimisers of different parameters of a model, used and saved as one."""

    def __init__(self, parts: Mapping[str, Optimizer]) -> None:
        self._parts = parts
        super().__init__(self._groups(), {})

    def _groups(self) -> list[dict[str, Any]]:
        return [group for part in self._parts.values() for group in part.param_groups]

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step of each.

        Raises:
            ValueError: there is a closure; each would call it.
        """
        if closure is not None:
            raise ValueError("several optimisers take no closure")
        for part in self._parts.values():
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """The state of each, under its name."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As `state_dict` gave it."""
        for name, part in self._parts.items():
            part.load_state_dict(state_dict[name])
        self.param_groups = self._groups()  # loading made new ones


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
