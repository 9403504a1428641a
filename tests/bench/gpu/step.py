"""What a step consists of: its operators and kernels by ONNX Runtime's profiler, and the bytes it cannot but read."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch

from model.bundle import Bundle

NO_KERNEL = frozenset({"Reshape", "Shape", "Identity", "Squeeze", "Unsqueeze"})  # they only say how memory is read
COPIED_BYTES = 512 << 20
COPIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """Of one step."""

    operators: dict[str, float]  # that launch at least one kernel
    microseconds: dict[str, float]  # by operator; on a GPU that of launching
    kernels: float | None  # as the profiler saw them on the device; None where it cannot

    def record(self) -> dict[str, object]:
        """As JSON."""
        return {
            "operators_a_step": round(sum(self.operators.values()), 1),
            "kernels_a_step": self.kernels and round(self.kernels, 1),
            "by_operator": {name: round(count, 2) for name, count in self.operators.items()},
            "us_by_operator": {name: round(spent, 1) for name, spent in self.microseconds.items()},
        }


def launches(profile: Path, num_steps: int) -> Launches:
    """From the profile of the decoder's session, which ran so many steps."""
    events = json.loads(profile.read_text(encoding="utf-8"))
    counts, times, kernels = Counter[str](), Counter[str](), 0
    for event in events:
        if event.get("cat") == "Kernel":
            kernels += 1
        elif event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            operator = event["args"]["op_name"]
            times[operator] += event["dur"]
            counts[operator] += operator not in NO_KERNEL
    return Launches(
        operators={name: count / num_steps for name, count in counts.most_common() if count},
        microseconds={name: spent / num_steps for name, spent in times.most_common()},
        kernels=kernels / num_steps if kernels else None,
    )


def floor_bytes(bundle: Bundle, rows: int, beam_size: int, source_tokens: float, target_tokens: float) -> int:
    """Bytes that a step must read: the decoder's weights once, and keys and values of the live sentences.

    Hypotheses are counted as if nothing of their past were in common, and halfway through their translation.
    """
    config = bundle.manifest.config
    d, ff, layers = config.d_model, config.d_ff, config.num_decoder_layers
    weights = layers * (6 * d * d + 2 * d * ff) + config.vocab_size * d  # cross keys and values are the encoder's
    column = 2 * layers * d
    caches = rows * column * target_tokens / 2 + rows / beam_size * column * source_tokens
    return int(2 * (weights + caches))  # half precision


def bandwidth(device: str) -> float:
    """Bytes a second that the device's memory moves, read and written together: the best of some copies by PyTorch."""
    source = torch.ones(COPIED_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds: list[float] = []
    for _ in range(COPIES):
        _wait(device)
        began = perf_counter()
        target.copy_(source)
        _wait(device)
        seconds.append(perf_counter() - began)
    return 2 * COPIED_BYTES / min(seconds)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def mean(values: Sequence[float]) -> float:
    """Of at least one."""
    return sum(values) / len(values)
