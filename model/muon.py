"""Muon: momentum whose matrix is made nearly orthogonal before it becomes the update.  For matrices only."""

from collections.abc import Callable, Iterable

import torch
from torch.optim import Optimizer

MOMENTUM = 0.95
# Of the quintic a x + b x^3 + c x^5: five steps bring every singular value near 1 (Jordan 2024).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NUM_STEPS = 5
_EPSILON = 1e-7


class Muon(Optimizer):
    """Muon with Nesterov momentum (Jordan 2024, kellerjordan.github.io/posts/muon).

    The update is as long as Adam's usually is, so that one learning rate fits both (Liu et al. 2025, "Muon is Scalable
    for LLM Training", section 2.2).  `torch.optim.Muon` is the same with every step in bf16, which a CPU that has to
    emulate it computes about forty times slower than fp32; here the precision is the caller's.
    """

    def __init__(
        self, matrices: Iterable[torch.Tensor], *, lr: float, weight_decay: float, precision: torch.dtype
    ) -> None:
        """Over parameters of two dimensions; `precision` is what the orthogonalisation computes in."""
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})
        self._precision = precision
        shapes = [tuple(matrix.shape) for group in self.param_groups for matrix in group["params"]]
        if wrong := [shape for shape in shapes if len(shape) != 2]:
            raise ValueError(f"Muon updates matrices, given is a parameter of shape {wrong[0]}")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient.

        Raises:
            ValueError: there is a closure.
        """
        if closure is not None:
            raise ValueError("Muon takes no closure")
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self._update(matrix, group["lr"], group["weight_decay"])

    def _update(self, matrix: torch.Tensor, rate: float, weight_decay: float) -> None:
        assert matrix.grad is not None
        state = self.state[matrix]
        momentum = state.setdefault("momentum_buffer", torch.zeros_like(matrix.grad))
        momentum.lerp_(matrix.grad, 1 - MOMENTUM)
        direction = orthogonalized(matrix.grad.lerp(momentum, MOMENTUM).to(self._precision))
        length = 0.2 * max(matrix.shape) ** 0.5  # its root mean square is Adam's usual 0.2
        matrix.mul_(1 - rate * weight_decay)
        matrix.add_(direction, alpha=-rate * length)


def orthogonalized(matrix: torch.Tensor) -> torch.Tensor:
    """U V^T, nearly, of a matrix U S V^T (rows, columns): its singular values brought near 1.

    Newton-Schulz: NUM_STEPS times X <- a X + (b X X^T + c (X X^T)^2) X, in the precision of `matrix`.
    """
    is_tall = matrix.shape[0] > matrix.shape[1]
    found = matrix.T if is_tall else matrix
    found = found / found.norm().clamp(min=_EPSILON)
    a, b, c = COEFFICIENTS
    for _ in range(NUM_STEPS):
        gram = found @ found.T
        polynomial = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        found = torch.addmm(found, polynomial, found, beta=a)
    return found.T if is_tall else found
