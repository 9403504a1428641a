"""A model without arithmetic: it says the source again, one token a step, in any beam.

Chosen as `EngineSpec.runner_factory`, it runs inside a real engine process.  What it should do beside that is read from
the environment, which engine processes inherit:

    ECHO_STEP_S        seconds per decoder step
    ECHO_PACE_S        seconds from the end of one step to the end of the next, so that the engine's capacity is known:
                       with 0.01, 10 rows and texts of 10 steps at beam 1 it answers 100 texts a second
    ECHO_PACE_ROW_S    ... and more for each row
    ECHO_LOAD_S        seconds to load
    ECHO_GATE          a file: while there is none, loading waits
    ECHO_HELD          a file: while it is there, no decoder step ends
    ECHO_CRASH         a bundle in a directory of this name kills its process while it is loaded, as a bad graph could
    ECHO_NAN_LENGTH    sources of this many tokens give NaN
    ECHO_NO_MEMORY     ... raise MemoryError in the encoder, as NumPy does when the system gives none
    ECHO_DEVICE_FULL   ... are too many for a device's memory, as ONNX Runtime says it
    ECHO_DEVICE_LOST   ... find the device gone
"""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from model.config import EOS_ID, UNK_ID, USUAL_PROFILE, ModelConfig
from service.engine.beams import Candidates
from service.engine.cpu.runner import CpuCache, CpuEncoded
from service.engine.device_errors import explained
from service.engine.logits import Edits
from service.engine.wire import EngineSpec, HeadWeights, SchedulerConfig, TokenScores
from tests.fakes.plain_search import best_extensions

FACTORY = f"{__name__}:create"

BEST, WORSE = -0.25, -8.0  # log-probabilities of the source's token and of every other
IDLE_S = 0.03  # between two steps: longer than a loop takes, so the engine had nothing to do and has nothing to make up
DEVICE_FULL = "bfc_arena.cc:376 Failed to allocate memory for requested buffer of size 2830172160"
DEVICE_LOST = "CUDA failure 719: unspecified launch failure ; GPU=0 ; expr=cudaMemcpyAsync(dst, src, bytes);"


def create(spec: EngineSpec) -> "EchoRunner":
    """What `EngineSpec.runner_factory` names."""
    time.sleep(float(os.environ.get("ECHO_LOAD_S", "0")))
    while (gate := os.environ.get("ECHO_GATE")) and not Path(gate).exists():
        time.sleep(0.01)
    if spec.bundle_dir.name == os.environ.get("ECHO_CRASH"):
        os.kill(os.getpid(), signal.SIGSEGV)
    return EchoRunner.from_environment()


class PlainRunner:
    """A `Runner` without `encode` and `decode_step`: one layer, one head, one number for each position."""

    config = ModelConfig(num_decoder_layers=1, num_heads=1, head_width=1)
    profile = USUAL_PROFILE
    warm_up_source = (UNK_ID, EOS_ID)
    has_scorer = True

    def budgets(self, wanted: SchedulerConfig) -> SchedulerConfig:
        return wanted

    def new_state(self, beam_size: int, *, use_shortlist: bool) -> CpuCache:
        return CpuCache(self.config, beam_size)

    def head_weights(self, source: Sequence[int], translation: Sequence[int]) -> HeadWeights:
        """One head of one layer a side; every token attends to the last one of the source."""
        row = bytes([0] * (len(source) - 1) + [255])
        return HeadWeights(1, encoder=row * len(source), cross=row * (len(translation) + 1))


@dataclass
class EchoRunner(PlainRunner):
    """Keeps the source ids where a model would keep its keys."""

    step_s: float = 0.0
    pace_s: float = 0.0
    pace_row_s: float = 0.0
    nan_length: float = 0  # this and the following in tokens
    no_memory: float = 0
    device_full: float = 0
    device_lost: float = 0
    _ends_at: float = 0.0
    _left_at: float = 0.0

    @classmethod
    def from_environment(cls) -> Self:
        names = (name for name in cls.__dataclass_fields__ if not name.startswith("_"))
        return cls(**{name: float(os.environ.get(f"ECHO_{name.upper()}", "0")) for name in names})

    def encode(self, sources: Sequence[Sequence[int]]) -> CpuEncoded:
        """The ids themselves as cross-attention keys and values."""
        lengths = np.array([len(ids) for ids in sources], np.int32)
        if self.no_memory in lengths:
            raise MemoryError
        memory = np.zeros((len(sources), 1, int(lengths.max()), 1), np.float32)
        for row, ids in enumerate(sources):
            memory[row, 0, : len(ids), 0] = ids
        return CpuEncoded([memory, memory], lengths)

    def decode_step(
        self,
        tokens: npt.NDArray[np.int64],
        scores: npt.NDArray[np.float32],
        state: CpuCache,
        edits: Edits | None = None,
        *,
        num_candidates: int,
    ) -> Candidates:
        """The source's token at each sentence's position first, then other ones; edits change nothing."""
        began = time.monotonic()
        with explained():
            for length, message in ((self.device_full, DEVICE_FULL), (self.device_lost, DEVICE_LOST)):
                if length in state.source_lengths:
                    raise RuntimeError(message)
        state.prepare()
        time.sleep(self.step_s)
        while (held := os.environ.get("ECHO_HELD")) and Path(held).exists():
            time.sleep(0.01)
        num_sentences, beam = tokens.shape
        choices = np.tile(np.arange(EOS_ID + 1, EOS_ID + 1 + num_candidates), (num_sentences, 1))
        choices[:, 0] = self._echoed(state)
        log_probs = np.full((num_sentences, beam, num_candidates), WORSE, np.float32)
        log_probs[:, :, 0] = BEST
        log_probs[state.source_lengths == self.nan_length] = np.nan
        best = best_extensions(log_probs, scores, num_candidates)
        self._wait_for_the_end(began, tokens.size)
        return replace(best, tokens=np.take_along_axis(choices, best.tokens, axis=1))

    def score(
        self, encoded: Sequence[tuple[CpuEncoded, int]], translations: Sequence[Sequence[int]]
    ) -> list[TokenScores]:
        """The source's token is the likely one, and each token attends to that at its own position."""
        found = []
        for (batch, index), translation in zip(encoded, translations, strict=True):
            source = batch.arrays[0][index, 0, : batch.lengths[index], 0].astype(int).tolist()
            wanted = [*source, *[EOS_ID] * len(translation)]
            log_probs = [BEST if w == t else WORSE for w, t in zip(wanted, [*translation, EOS_ID], strict=False)]
            rows = np.minimum(np.arange(len(log_probs)), len(source) - 1)
            found.append(TokenScores(tuple(log_probs), np.eye(len(source), dtype=np.float16)[rows].tobytes()))
        return found

    def _wait_for_the_end(self, began: float, rows: int) -> None:
        """Steps end on a grid: what the loop around them needs, and a moment without a CPU, shortens the next one."""
        if began - self._left_at > IDLE_S:
            self._ends_at = began
        self._ends_at += self.pace_s + self.pace_row_s * rows
        time.sleep(max(0.0, self._ends_at - time.monotonic()))
        self._left_at = time.monotonic()

    def _echoed(self, cache: CpuCache) -> npt.NDArray[np.int64]:
        memory = cache.cross_arrays()[0][:, 0, :, 0]  # [B, S]
        positions = np.minimum(cache.past_lengths[:, 0], cache.source_lengths - 1)
        return memory[np.arange(len(memory)), positions].astype(np.int64)
