"""What turns gradients into updates: Adam, Muon for the layers' matrices where a recipe asks for it, and the rate.

Also the device and the precision that a training computes in.
Muon is momentum whose matrix is made nearly orthogonal before it becomes the update.  Knows no data.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Adam, Optimizer

from model.recipe import OptimizerConfig

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FASTEST = "auto"
PRECISION_HELP = (
    f"{', '.join(PRECISIONS)} (autocast; weights stay fp32), or auto: bf16 where the hardware multiplies it, else fp32 "
    "on a CPU and fp16 on a GPU."
)
_BF16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")  # names of the instructions on x86-64 and on ARM
MOMENTUM = 0.95
# Of the quintic a x + b x^3 + c x^5: five steps bring every singular value near 1 (Jordan 2024).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NUM_STEPS = 5
_EPSILON = 1e-7


def choose_device(name: str) -> torch.device:
    """Return the device "cpu" or "cuda", with a number or without; for "auto" the GPU where there is one.

    Raises:
        ValueError: there is no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    unknown = f"device is {name!r}, accepted are cpu, cuda and auto"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(unknown) from error
    if device.type not in ("cpu", "cuda"):
        raise ValueError(unknown)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device is {name!r}, PyTorch sees {torch.cuda.device_count()} GPUs")
    if device.type == "cuda":  # cuDNN's attention makes a plan for each new shape: five times the time of an update
        torch.backends.cuda.enable_cudnn_sdp(False)
    return device


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the precision of that name; for "auto" bf16, or a faster one where the hardware has to emulate bf16.

    Raises:
        ValueError: there is no such precision.
    """
    if name in PRECISIONS:
        return PRECISIONS[name]
    if name != FASTEST:
        raise ValueError(f"precision is {name!r}, accepted are {', '.join([*PRECISIONS, FASTEST])}")
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    found: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # older PyTorch lacks the function
    return torch.bfloat16 if any(found.get(name) for name in _BF16_INSTRUCTIONS) else torch.float32


def build_optimizer(model: nn.Module, config: OptimizerConfig, precision: torch.dtype = torch.float32) -> Optimizer:
    """Return the recipe's optimiser: Adam, or Muon for the layers' matrices and Adam for the rest.

    Weights and states are fp32.  Muon multiplies in bf16 where the training does (`precision`), else in fp32: the range
    of fp16 is too small.
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
    """Adam in its fused form, which updates all parameters in one pass."""
    return Adam(parameters, lr=config.peak_learning_rate, betas=config.betas, eps=config.epsilon, fused=True)


class JoinedOptimizer(Optimizer):
    """Optimisers of different parameters of a model, used and saved as one."""

    def __init__(self, parts: Mapping[str, Optimizer]) -> None:
        self._parts = parts
        super().__init__(self._groups(), {})

    def _groups(self) -> list[dict[str, Any]]:
        return [group for part in self._parts.values() for group in part.param_groups]

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Do one step of each optimiser."""
        assert closure is None, "each optimiser would call it"
        for part in self._parts.values():
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each optimiser by name."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        for name, part in self._parts.items():
            part.load_state_dict(state_dict[name])
        self.param_groups = self._groups()  # loading made new ones


def learning_rate(update: float, config: OptimizerConfig, max_updates: int) -> float:
    """Return the rate of update 1, 2, ...: linear warm-up, peak * sqrt(warmup / update), linear cool-down to zero.

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


class Muon(Optimizer):
    """Muon with Nesterov momentum (Jordan 2024, kellerjordan.github.io/posts/muon).

    An update has the usual length of Adam's, so that one learning rate fits both (Liu et al. 2025, "Muon is Scalable
    for LLM Training", section 2.2).  `torch.optim.Muon` is the same with every step in bf16, which a CPU that has to
    emulate it computes about forty times slower than fp32; here the precision is the caller's.
    """

    def __init__(
        self, matrices: Iterable[torch.Tensor], *, lr: float, weight_decay: float, precision: torch.dtype
    ) -> None:
        """Take parameters of two dimensions; `precision` is the one that the orthogonalisation computes in."""
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})
        self._precision = precision
        shapes = [tuple(matrix.shape) for group in self.param_groups for matrix in group["params"]]
        if wrong := [shape for shape in shapes if len(shape) != 2]:
            raise ValueError(f"Muon updates matrices, given is a parameter of shape {wrong[0]}")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        assert closure is None, "Muon takes no closure"
        for group in self.param_groups:
            by_shape = defaultdict[torch.Size, dict[torch.Tensor, torch.Tensor]](dict)
            for matrix in group["params"]:
                if matrix.grad is not None:
                    by_shape[matrix.shape][matrix] = matrix.grad
            for shape, gradient_of in by_shape.items():  # a GPU would wait for the launches of one after the other
                matrices, gradients = list(gradient_of), torch.stack(list(gradient_of.values()))
                momenta = [
                    self.state[matrix].setdefault("momentum_buffer", torch.zeros_like(matrix)) for matrix in matrices
                ]
                torch._foreach_lerp_(momenta, list(gradients), 1 - MOMENTUM)
                directions = orthogonalized(gradients.lerp(torch.stack(momenta), MOMENTUM).to(self._precision))
                length = 0.2 * max(shape) ** 0.5  # its root mean square is Adam's usual 0.2
                torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(matrices, list(directions.to(matrices[0].dtype)), alpha=-group["lr"] * length)


def orthogonalized(matrices: torch.Tensor) -> torch.Tensor:
    """Return nearly U V^T of each matrix U S V^T, [N, rows, columns]: its singular values are brought near 1.

    Newton-Schulz: NUM_STEPS times X <- a X + (b X X^T + c (X X^T)^2) X, in the precision of `matrices`.
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    found = matrices.mT if is_tall else matrices
    found = found / found.norm(dim=(1, 2), keepdim=True).clamp(min=_EPSILON)
    a, b, c = COEFFICIENTS
    for _ in range(NUM_STEPS):
        gram = found @ found.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        found = torch.baddbmm(found, polynomial, found, beta=a)
    return found.mT if is_tall else found
