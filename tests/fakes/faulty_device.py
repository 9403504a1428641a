"""An echo runner on a device that fails, with what ONNX Runtime says then, as soon as a text has certain tokens.

FAULTY_OUT_OF_MEMORY   sources of so many tokens are too many for the device's memory
FAULTY_LOST            the device is gone when a source of so many tokens is decoded
"""

import os
from typing import Any

from service.engine.beam import Candidates
from service.engine.cpu.cache import CpuCache
from service.engine.faults import explained
from service.engine.spec import EngineSpec
from tests.fakes.echo_runner import EchoRunner

FACTORY = f"{__name__}:create"
OUT_OF_MEMORY = "bfc_arena.cc:376 Failed to allocate memory for requested buffer of size 2830172160"
LOST = "CUDA failure 719: unspecified launch failure ; GPU=0 ; expr=cudaMemcpyAsync(dst, src, bytes);"


class FaultyDevice(EchoRunner):
    """Fails in steps."""

    def decode_step(self, tokens: Any, scores: Any, state: CpuCache) -> Candidates:
        lengths = state.source_lengths.tolist()
        with explained():
            for name, message in (("FAULTY_OUT_OF_MEMORY", OUT_OF_MEMORY), ("FAULTY_LOST", LOST)):
                if int(os.environ.get(name, "0")) in lengths:
                    raise RuntimeError(message)
        return super().decode_step(tokens, scores, state)


def create(spec: EngineSpec) -> FaultyDevice:
    """With no time for steps."""
    return FaultyDevice(step_s=0.0, nan_length=-1)
