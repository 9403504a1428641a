"""A model that is a script: next tokens follow from the source and the prefix, which it keeps in the given caches.

So a cache that is reordered, moved or bound wrongly changes the answer, as it would with a real model.
"""

import os
import time
from collections.abc import Callable, Sequence

import numpy as np

from model.config import EOS_ID
from service.engine.beam import Candidates
from service.engine.kv_cache import CacheShape, Encoded, KeyValueCache
from service.engine.spec import EngineSpec

VOCABULARY = 40
SLOW_TOKEN = 30  # a source that starts with it takes SLOW_STEP_S per step
NAN_TOKEN = 31  # ... gets NaN
POISON_TOKEN = 32  # ... cannot be encoded
CRASH_TOKEN = 33  # ... kills the process at its first step
STUCK_TOKEN = 34  # ... never comes back
BROKEN_TOKEN = 35  # ... raises in the decoder
SLOW_STEP_S = 0.02

Script = Callable[[tuple[int, ...], tuple[int, ...]], np.ndarray]


def random_script(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
    """[V] log-probabilities, the same for the same source and prefix; end-of-sentence gets likelier."""
    logits = np.random.default_rng([*source, 0, *prefix]).normal(size=VOCABULARY)
    logits[EOS_ID] += len(prefix) - 0.7 * len(source)
    logits[:EOS_ID] = -10.0
    return np.asarray(logits - np.log(np.exp(logits).sum()), np.float32)


class FakeRunner:
    """One layer, one head, one number per position: the token id itself."""

    cache_shape = CacheShape(num_layers=1, num_heads=1, d_head=1)

    def __init__(self, script: Script = random_script) -> None:
        self.script = script
        self.encoded: list[tuple[int, ...]] = []
        self.step_rows: list[int] = []

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        if any(source[0] == POISON_TOKEN for source in sources):
            raise RuntimeError("poison")
        self.encoded += [tuple(source) for source in sources]
        lengths = np.array([len(source) for source in sources], np.int32)
        ids = np.zeros((len(sources), 1, lengths.max(), 1), np.float32)
        for row, source in zip(ids, sources, strict=True):
            row[0, : len(source), 0] = source
        return Encoded([ids, -ids], lengths)

    def decode_step(self, tokens: np.ndarray, cache: KeyValueCache) -> Candidates:
        keys = cache.self_arrays()[0]
        rows = [self._row(cache, keys, tokens, row) for row in range(tokens.size)]
        self.step_rows.append(len(rows))
        log_probs = np.stack(rows).reshape(*tokens.shape, VOCABULARY)
        order = np.argsort(-log_probs, axis=-1, kind="stable")[:, :, : 2 * cache.beam_size]
        return Candidates(np.take_along_axis(log_probs, order, axis=-1), order)

    def _row(self, cache: KeyValueCache, keys: np.ndarray, tokens: np.ndarray, row: int) -> np.ndarray:
        sentence = row // cache.beam_size
        length = cache.lengths[sentence]
        keys[row, 0, length, 0] = tokens.ravel()[row]
        source = cache.cross_arrays()[0][sentence, 0, : cache.source_lengths[sentence], 0]
        prefix = keys[row, 0, : length + 1, 0]
        return self.script(tuple(source.astype(int).tolist()), tuple(prefix.astype(int).tolist()))


def misbehaving_script(source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
    if source[0] == SLOW_TOKEN:
        time.sleep(SLOW_STEP_S)
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


def create_if_there(spec: EngineSpec) -> FakeRunner:
    """A runner as long as the spec's bundle exists."""
    return create(spec) if spec.bundle_dir.exists() else create_nothing(spec)
