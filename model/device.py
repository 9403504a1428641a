"""What a training computes on, and in which precision.  The weights stay fp32 in any of them."""

from collections.abc import Mapping

import torch

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FASTEST = "auto"
PRECISION_HELP = (
    f"{', '.join(PRECISIONS)} (autocast; weights stay fp32), or auto: bf16 where the hardware multiplies it, else fp32 "
    "on a CPU and fp16 on a GPU."
)
# What instructions for bf16 products are called on x86-64 and on ARM.
_BF16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")


def choose_device(name: str) -> torch.device:
    """The device "cpu" or "cuda", with a number or without; for "auto" the GPU where there is one.

    Raises:
        ValueError: there is no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device is {name!r}, accepted are cpu, cuda and auto") from error
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device is {name!r}, accepted are cpu, cuda and auto")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device is {name!r}, PyTorch sees {torch.cuda.device_count()} GPUs")
    return device


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """That of `name`, a key of `PRECISIONS`; for "auto" bf16, or what is faster where the hardware has to emulate bf16.

    Raises:
        ValueError: there is no such precision.
    """
    if name in PRECISIONS:
        return PRECISIONS[name]
    if name != FASTEST:
        raise ValueError(f"precision is {name!r}, accepted are {', '.join([*PRECISIONS, FASTEST])}")
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    found: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # older PyTorch does not tell
    return torch.bfloat16 if any(found.get(name) for name in _BF16_INSTRUCTIONS) else torch.float32
