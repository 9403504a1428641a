"""A runner on the counted GPU whose candidates come from a script: sentences end after 10 to 40 tokens.

For models that are too large to compute on the CPU what they would say (`twin.py`).
"""

from typing import Any

import numpy as np

from service.engine.beams import Candidates, Floats, Ints
from service.engine.cuda.kv_cache import CudaState
from service.engine.cuda.runner import CudaRunner
from service.engine.logits import Edits

SHORTEST, LONGEST = 10, 40


class ScriptedRunner(CudaRunner):
    """Runs everything, and makes up what it says."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.num_steps = 0
        self._random = np.random.default_rng(1)

    def decode_step(
        self, tokens: Ints, scores: Floats, state: CudaState, edits: Edits | None = None, *, num_candidates: int
    ) -> Candidates:
        super().decode_step(tokens, scores, state, edits, num_candidates=num_candidates)
        self.num_steps += 1
        (num_sentences, beam_size), random = tokens.shape, self._random
        shape = num_sentences, num_candidates
        found = random.integers(self.profile.end + 1, 1_000, shape)
        parents = random.integers(0, beam_size, shape)
        steps = state.slots.past_lengths[state.slot_numbers][
            :, None
        ]  # from the shortest length on, all lengths are as likely
        ends = random.random((num_sentences, 1)) * np.maximum(LONGEST - steps, 1) < (steps >= SHORTEST)
        found[:, :beam_size] = np.where(ends, self.profile.end, found[:, :beam_size])
        best = -np.sort(random.random(shape).astype(np.float32), axis=1)
        return Candidates(best, found, parents, np.zeros(num_sentences, np.float32))
