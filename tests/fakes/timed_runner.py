"""The echo runner with a clock: its decoder steps take exactly as long as they are told, so that capacity is known.

Chosen as `EngineSpec.runner_factory`; told through the environment:

    PACE_STEP_S     seconds of one step, whatever the rows
    PACE_ROW_S      seconds more for each row

With PACE_STEP_S=0.01, 10 rows and texts of 10 steps at beam 1, an engine answers 100 texts a second.
"""

import os
import time

import numpy as np
import numpy.typing as npt

from service.engine.beam import Candidates
from service.engine.cpu.cache import CpuCache
from service.engine.spec import EngineSpec
from tests.fakes.echo_runner import EchoRunner

FACTORY = f"{__name__}:create"
IDLE_S = (
    0.03  # between two steps: longer than a loop takes, so the engine had nothing to do and has nothing to catch up
)


def create(spec: EngineSpec) -> "PacedRunner":
    """What `EngineSpec.runner_factory` names."""
    return PacedRunner(float(os.environ.get("PACE_STEP_S", "0.01")), float(os.environ.get("PACE_ROW_S", "0")))


class PacedRunner(EchoRunner):
    """Steps end on a grid: what the loop around them needs, and a moment without a CPU, is taken from the next one."""

    def __init__(self, step_s: float, row_s: float) -> None:
        super().__init__(0.0, 0)
        self._pace_s, self._row_s = step_s, row_s
        self._ends_at = self._left_at = 0.0

    def decode_step(
        self, tokens: npt.NDArray[np.int64], scores: npt.NDArray[np.float32], state: CpuCache
    ) -> Candidates:
        """As the echo runner's, when the time of a step has passed."""
        began = time.monotonic()
        candidates = super().decode_step(tokens, scores, state)
        if began - self._left_at > IDLE_S:
            self._ends_at = began
        self._ends_at += self._pace_s + self._row_s * tokens.size
        time.sleep(max(0.0, self._ends_at - time.monotonic()))
        self._left_at = time.monotonic()
        return candidates
