"""A model's parameters as NumPy arrays, and the layers cut out of them.

Knows the parameter names of `model/transformer.py`; knows neither torch nor ONNX.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from export.builder import Array

State = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class LinearWeights:
    """One linear layer, or several with the same input side by side: y = x @ weight^T + bias."""

    name: str
    weight: Array  # [O, I]
    bias: Array  # [O]


def linear_weights(state: State, name: str) -> LinearWeights:
    """The linear layer `name`."""
    return LinearWeights(name, state[f"{name}.weight"], state[f"{name}.bias"])


def packed_weights(state: State, name: str, parts: list[str]) -> LinearWeights:
    """Linear layers that read the same input as one: their outputs side by side, in the order of `parts`."""
    layers = [linear_weights(state, part) for part in parts]
    weight = np.concatenate([layer.weight for layer in layers])
    return LinearWeights(name, weight, np.concatenate([layer.bias for layer in layers]))


def sinusoidal_positions(num_positions: int, d_model: int) -> Array:
    """Position table of Vaswani et al. 2017, section 3.5: sin on even features, cos on odd ones; [P, D] float32."""
    steps = np.arange(num_positions, dtype=np.float64)[:, None]
    rates = np.exp(np.arange(0, d_model, 2) * (-np.log(10_000.0) / d_model))  # [D / 2]
    table = np.zeros((num_positions, d_model))
    table[:, 0::2] = np.sin(steps * rates)
    table[:, 1::2] = np.cos(steps * rates[: d_model // 2])
    return table.astype(np.float32)
