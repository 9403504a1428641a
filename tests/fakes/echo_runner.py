"""A model without arithmetic: it says the source again, one token a step, in any beam.

Chosen as `EngineSpec.runner_factory`, it runs inside a real engine process.  What it should do beside that is read from
the environment, which engine processes inherit:

    ECHO_STEP_S      seconds per decoder step
    ECHO_LOAD_S      seconds to load
    ECHO_GATE        a file: while there is none, loading waits
    ECHO_FAIL        a message: loading fails with it
    ECHO_NAN_LENGTH  sources of this many tokens give NaN
    ECHO_CRASH       a bundle in a directory of this name kills its process while it is loaded, as a crafted graph could
"""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from model.config import EOS_ID
from service.engine.beam import Candidates, num_candidates
from service.engine.cpu.cache import CpuCache, CpuEncoded
from service.engine.spec import EngineSpec
from tests.fakes.extensions import best_extensions
from tests.fakes.plain_runner import PlainRunner

FACTORY = f"{__name__}:create"

BEST, WORSE = -0.25, -8.0  # log-probabilities of the source's token and of every other


def create(spec: EngineSpec) -> "EchoRunner":
    """What `EngineSpec.runner_factory` names."""
    time.sleep(float(os.environ.get("ECHO_LOAD_S", "0")))
    while (gate := os.environ.get("ECHO_GATE")) and not Path(gate).exists():
        time.sleep(0.01)
    if spec.bundle_dir.name == os.environ.get("ECHO_CRASH"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if message := os.environ.get("ECHO_FAIL"):
        raise ValueError(message)
    return EchoRunner(float(os.environ.get("ECHO_STEP_S", "0")), int(os.environ.get("ECHO_NAN_LENGTH", "0")))


class EchoRunner(PlainRunner):
    """Keeps the source ids where a model would keep its keys."""

    def __init__(self, step_s: float, nan_length: int) -> None:
        self._step_s = step_s
        self._nan_length = nan_length

    def encode(self, sources: Sequence[Sequence[int]]) -> CpuEncoded:
        """The ids themselves as cross-attention keys and values."""
        lengths = np.array([len(ids) for ids in sources], np.int32)
        memory = np.zeros((len(sources), 1, int(lengths.max()), 1), np.float32)
        for row, ids in enumerate(sources):
            memory[row, 0, : len(ids), 0] = ids
        return CpuEncoded([memory, memory], lengths)

    def decode_step(
        self, tokens: npt.NDArray[np.int64], scores: npt.NDArray[np.float32], state: CpuCache
    ) -> Candidates:
        """The source's token at each sentence's position first, then other ones."""
        state.prepare()
        time.sleep(self._step_s)
        num_sentences, beam = tokens.shape
        choices = np.tile(np.arange(EOS_ID + 1, EOS_ID + 1 + num_candidates(beam)), (num_sentences, 1))
        choices[:, 0] = self._echoed(state)
        log_probs = np.full((num_sentences, beam, num_candidates(beam)), WORSE, np.float32)
        log_probs[:, :, 0] = BEST
        log_probs[state.source_lengths == self._nan_length] = np.nan
        best = best_extensions(log_probs, scores)
        return replace(best, tokens=np.take_along_axis(choices, best.tokens, axis=1))

    def _echoed(self, cache: CpuCache) -> npt.NDArray[np.int64]:
        memory = cache.cross_arrays()[0][:, 0, :, 0]  # [B, S]
        positions = np.minimum(cache.past_lengths[:, 0], cache.source_lengths - 1)
        return memory[np.arange(len(memory)), positions].astype(np.int64)
