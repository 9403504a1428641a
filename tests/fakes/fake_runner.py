"""A model that is a script: next tokens follow from the source and the prefix, which it keeps in the given caches.

So a cache that is masked, squeezed, moved or bound wrongly changes the answer, as it would with a real model.
"""

import os
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from model.config import BOS_ID, EOS_ID
from service.engine.beams import Candidates
from service.engine.cpu.runner import CpuCache, CpuEncoded
from service.engine.logits import Edits
from service.engine.wire import EngineSpec, TokenScores
from tests.fakes.echo_runner import PlainRunner
from tests.fakes.plain_search import best_extensions, edited

VOCABULARY = 40
NAN_TOKEN = 31  # ... gets NaN
POISON_TOKEN = 32  # ... cannot be encoded
CRASH_TOKEN = 33  # ... kills the process at its first step
STUCK_TOKEN = 34  # ... never comes back
BROKEN_TOKEN = 35  # ... raises in the decoder

Script = Callable[[tuple[int, ...], tuple[int, ...]], np.ndarray]


def random_script(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
    """[V] log-probabilities, the same for the same source and prefix; end-of-sentence gets likelier."""
    logits = np.random.default_rng([*source, 0, *prefix]).normal(size=VOCABULARY)
    logits[EOS_ID] += len(prefix) - 0.7 * len(source)
    logits[:EOS_ID] = -10.0
    return np.asarray(logits - np.log(np.exp(logits).sum()), np.float32)


class FakeRunner(PlainRunner):
    """Keeps the token ids where a model would keep its keys."""

    def __init__(self, script: Script = random_script) -> None:
        self.script = script
        self.encoded: list[tuple[int, ...]] = []
        self.step_rows: list[int] = []
        self.scored: list[int] = []  # pairs of each run of the scorer

    def encode(self, sources: Sequence[Sequence[int]]) -> CpuEncoded:
        if any(source[0] == POISON_TOKEN for source in sources):
            raise RuntimeError("poison")
        self.encoded += [tuple(source) for source in sources]
        lengths = np.array([len(source) for source in sources], np.int32)
        ids = np.zeros((len(sources), 1, lengths.max(), 1), np.float32)
        for row, source in zip(ids, sources, strict=True):
            row[0, : len(source), 0] = source
        return CpuEncoded([ids, -ids], lengths)

    def score(
        self, encoded: Sequence[tuple[CpuEncoded, int]], translations: Sequence[Sequence[int]]
    ) -> list[TokenScores]:
        """The script's log-probabilities; each token attends to all of the source alike."""
        self.scored.append(len(translations))
        found = []
        for (batch, index), translation in zip(encoded, translations, strict=True):
            source = tuple(batch.arrays[0][index, 0, : batch.lengths[index], 0].astype(int).tolist())
            ids = (BOS_ID, *translation, EOS_ID)
            log_probs = tuple(float(self.script(source, ids[:end])[ids[end]]) for end in range(1, len(ids)))
            attention = np.full((len(log_probs), len(source)), 1 / len(source), np.float16)
            found.append(TokenScores(log_probs, attention.tobytes()))
        return found

    def decode_step(
        self,
        tokens: npt.NDArray[np.int64],
        scores: npt.NDArray[np.float32],
        state: CpuCache,
        edits: Edits | None = None,
        *,
        num_candidates: int,
    ) -> Candidates:
        state.prepare()
        write_tokens(tokens, state)
        log_probs = [
            [self.script(source_of(state, sentence), prefix_of(state, sentence, k)) for k in range(state.beam_size)]
            for sentence in range(state.num_sentences)
        ]
        self.step_rows.append(tokens.size)
        return best_extensions(edited(np.array(log_probs, np.float32), edits), scores, num_candidates)


def write_tokens(tokens: npt.NDArray[np.int64], cache: CpuCache) -> None:
    """One column for each hypothesis, as the step graph does."""
    (num_sentences, beam_size), (keys, *_) = tokens.shape, cache.self_arrays()
    assert num_sentences == cache.num_sentences == len(keys)
    for sentence, first in enumerate(cache.columns.tolist()):
        assert first + beam_size <= keys.shape[2], "the cache was not prepared"
        keys[sentence, 0, first : first + beam_size, 0] = tokens[sentence]


def source_of(cache: CpuCache, sentence: int) -> tuple[int, ...]:
    """The ids that `encode` was given."""
    ids = cache.cross_arrays()[0][sentence, 0, : cache.source_lengths[sentence], 0]
    return tuple(ids.astype(int).tolist())


def prefix_of(cache: CpuCache, sentence: int, hypothesis: int) -> tuple[int, ...]:
    """The tokens that a hypothesis attends to, in the order of their columns."""
    is_own = cache.mask[sentence, 0, hypothesis] == 0.0
    prefix = cache.self_arrays()[0][sentence, 0, is_own, 0]
    assert len(prefix) == cache.past_lengths[sentence, 0] + 1
    return tuple(prefix.astype(int).tolist())


def misbehaving_script(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
    if source[0] == CRASH_TOKEN:
        os._exit(7)
    if source[0] == STUCK_TOKEN:
        time.sleep(3600)
    if source[0] == BROKEN_TOKEN:
        raise RuntimeError("broken decoder")
    log_probs = random_script(source, prefix)
    return log_probs * np.float32(np.nan) if source[0] == NAN_TOKEN else log_probs


def create(spec: EngineSpec) -> FakeRunner:
    return FakeRunner(misbehaving_script)


def create_nothing(spec: EngineSpec) -> FakeRunner:
    raise ValueError(f"{spec.bundle_dir} has no graphs")
