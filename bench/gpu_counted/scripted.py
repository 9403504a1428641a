"""A runner on the counted GPU whose candidates come from a script: sentences end after 10 to 40 tokens.

For models that are too large to compute on the CPU what they would say (`twin.py`).
"""

from typing import Any

import numpy as np

from service.engine.beams import Candidates
from service.engine.cuda.runner import CudaRunner, Launched

SHORTEST, LONGEST = 10, 40


class ScriptedRunner(CudaRunner):
    """Runs everything, and makes up what it says."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.num_steps = 0
        self._random = np.random.default_rng(1)

    def collect(self, launched: Launched) -> Candidates:
        found, slots = super().collect(launched), launched.state.slots
        self.num_steps += 1
        (num_sentences, width), beam_size, random = found.tokens.shape, launched.state.beam_size, self._random
        tokens = random.integers(self.profile.end + 1, 1_000, (num_sentences, width))
        # From the shortest length on, all lengths are as likely.
        steps = slots.past_lengths[launched.state.slot_numbers][:, None]
        ends = random.random((num_sentences, 1)) * np.maximum(LONGEST - steps, 1) < (steps >= SHORTEST)
        tokens[:, :beam_size] = np.where(ends, self.profile.end, tokens[:, :beam_size])
        found.tokens[:], found.parents[:] = tokens, random.integers(0, beam_size, tokens.shape)
        found.scores[:] = -np.sort(random.random(tokens.shape).astype(np.float32), axis=1)
        found.check[:] = 0
        return found
