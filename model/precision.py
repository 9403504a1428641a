"""Which precision a training computes in, on its device.  The weights stay fp32 in any of them."""

import torch

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FASTEST = "auto"
PRECISION_HELP = (
    f"{', '.join(PRECISIONS)} (autocast; weights stay fp32), or auto: fp32 on a CPU without AVX-512, else bf16."
)


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """That of `name`, a key of `PRECISIONS`; for "auto" the one that the device multiplies fastest.

    bf16 where the hardware has it.  A CPU without AVX-512 emulates it, tens of times slower than fp32; an old GPU is
    faster in fp16.

    Raises:
        ValueError: there is no such precision.
    """
    if name in PRECISIONS:
        return PRECISIONS[name]
    if name != FASTEST:
        raise ValueError(f"precision is {name!r}, accepted are {', '.join([*PRECISIONS, FASTEST])}")
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    return torch.bfloat16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else torch.float32
