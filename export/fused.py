"""What the graphs for a GPU do in fewer kernels than those for a CPU: sums, biases, norms and activations.

A kernel of a small step takes 2 to 3 microseconds, whatever it computes.  So the bias of a sub-layer's last product,
the residual sum and the norm behind it are one operator, and other biases go where they cost nothing:

* of keys: nowhere, since what is added to all keys of a query changes none of its weights;
* of values, and of what enters ReLU: into the bias behind them, as weights sum up to 1 and max(x + b, 0) is
  max(x, -b) + b.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from export.builder import CONTRIB_DOMAIN, Array
from export.linear import FloatProducts
from export.transformer_graph import Sublayer, TransformerGraph
from model.config import Activation, NormPlacement

_LAST = (".output", ".outer")  # products that end a sub-layer


class FusedGraph(TransformerGraph):
    """Parts of the graphs for a GPU."""

    products: FloatProducts

    def __init__(self, *args: Any) -> None:
        self.biases: dict[str, tuple[str, Array]] = {}  # of products that end a sub-layer: a name, [D]
        self.sums: dict[str, list[str]] = {}  # that are drawn with the norm behind them: product, states, bias
        super().__init__(*args)

    def residual(self, name: str, states: str, sublayer: Sublayer) -> str:
        """As in `TransformerGraph`."""
        if self.config.norm_placement is NormPlacement.PRE:
            return self.sum(name, states, sublayer(self.norm(name, states)))
        return self.norm(name, self.sum(name, states, sublayer(states)))

    def sum(self, name: str, states: str, product: str) -> str:
        """Name the sum of states, a product and its bias, which is drawn with the norm behind it."""
        total = f"{name}.sum"
        self.sums[total] = [product, states, self.parameter(*self.biases.pop(product))]
        return total

    def norm(self, name: str, states: str) -> str:
        """As in `TransformerGraph`, with the sum before it, if there is one."""
        if states not in self.sums:
            return super().norm(name, states)
        op = f"Skip{'Simplified' if self.config.rms_norm else ''}LayerNormalization"
        kinds = ("weight",) if self.config.rms_norm else ("weight", "bias")
        product, skipped, bias = self.sums.pop(states)
        inputs = [product, skipped, *(self.parameter(f"{name}.{kind}", self.state[f"{name}.{kind}"]) for kind in kinds)]
        names = [f"{name}.states"]
        if self.config.norm_placement is NormPlacement.PRE:
            names += ["", "", states]
        epsilon = self.config.norm_epsilon
        return self.graph.nodes(op, *inputs, bias, names=names, domain=CONTRIB_DOMAIN, epsilon=epsilon)[0]

    def final_norm(self, stack: str, states: str) -> str:
        """As in `TransformerGraph`."""
        if not self.config.has_final_norm and states in self.sums:
            product, skipped, bias = self.sums.pop(states)
            return self.graph.node("Add", self.graph.node("Add", product, bias), skipped)
        return super().final_norm(stack, states)

    def linear(self, name: str, states: str, parts: Sequence[str] = ()) -> str:
        """As in `TransformerGraph`; the bias of what ends a sub-layer is added with the sum."""
        return self.last_product(name, states) if name.endswith(_LAST) else super().linear(name, states, parts)

    def product(self, name: str, states: str, parts: Sequence[str] = ()) -> str:
        """A linear layer without its bias, or several side by side."""
        weights = [self.state[f"{layer}.weight"] for layer in parts or [name]]
        return self.products.product(self.graph, states, name, weights)

    def last_product(self, name: str, states: str, shift: Array | None = None) -> str:
        """The product that ends a sub-layer; with `shift` [I], the one of states that are so much larger."""
        product, bias = self.product(name, states), self.state[f"{name}.bias"]
        self.biases[product] = f"{name}.bias", bias
        if shift is not None:
            weight, added = (self.products.as_stored(array) for array in (self.state[f"{name}.weight"], shift))
            moved = weight.astype(np.float32) @ added.astype(np.float32)
            self.biases[product] = f"{name}.shifted_bias", bias + moved
        return product

    def feed_forward(self, name: str, states: str) -> str:
        """As in `TransformerGraph`."""
        if self.config.gated or self.config.activation is not Activation.RELU:
            return super().feed_forward(name, states)
        bias = self.state[f"{name}.inner.bias"]
        floor = self.parameter(f"{name}.inner.floor", -bias)
        inner = self.graph.node("Max", self.product(f"{name}.inner", states), floor)
        return self.last_product(f"{name}.outer", inner, bias)
