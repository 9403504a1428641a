"""Keeps the results of engines, because real traffic repeats its sentences and an engine gives the same result again.

An entry has the token ids of a job and of its hypotheses; texts, glossaries and formats never come here.  Results that
are drawn at random are not kept, nor those with suppressed phrases, which are large and rarely the same.

A caller with an API key, or one that a trusted proxy names, has entries of its own: a kept result comes sooner, so with
shared entries a caller could find out what another one has had translated.  All other callers share theirs.
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from service.call import Caller, Identity
from service.engine.wire import FinishReason, Hypothesis, Job, JobResult, SearchParams
from service.telemetry.metrics import Metrics

# What an entry takes beside its ids, and each of its hypotheses; a test holds the sum against what Python allocates.
_ENTRY_BYTES, _HYPOTHESIS_BYTES = 600, 200
_MAX_SHARE = 16  # an entry takes at most one of so many parts of the room


class Key(NamedTuple):
    """All that a result depends on, and the caller that it belongs to."""

    model: int  # the version of a model; its number, which none later gets
    caller: Identity | None  # None: anybody
    params: SearchParams
    source: bytes
    prefix: bytes

    @property
    def num_bytes(self) -> int:
        """Size of the ids."""
        return len(self.source) + len(self.prefix)


_Kept = tuple[tuple[bytes, float, FinishReason], ...]  # hypotheses


class TranslationCache:
    """Results of all models, as many as there is room for; the least recently used ones are dropped."""

    def __init__(self, max_bytes: int, metrics: Metrics) -> None:
        """Keep nothing yet; with `max_bytes` 0, never anything."""
        self.num_bytes = 0
        self.max_bytes = max_bytes
        self._metrics = metrics
        self._entries: OrderedDict[Key, _Kept] = OrderedDict()
        metrics.watch("translation_cache_bytes", lambda: self.num_bytes)

    def __len__(self) -> int:
        return len(self._entries)

    def key(self, model: int, caller: Caller, job: Job) -> Key | None:
        """Return the key of a sentence that this caller asks this version of a model for; None: it is never kept."""
        params, prefix_ids = job.params, job.prefix_ids
        if params.sampling_top_k or params.suppressed or job.scored_ids is not None:
            return None
        whose = None if caller.source == "peer" else caller.identity
        return Key(model, whose, params, _packed(job.source_ids), _packed(prefix_ids) if prefix_ids else b"")

    def find(self, key: Key) -> JobResult | None:
        """Return the kept result, without times and steps; None: there is none."""
        kept = self._entries.get(key)
        self._metrics.translation_cache_asked(is_hit=kept is not None)
        if kept is None:
            return None
        self._entries.move_to_end(key)
        hypotheses = tuple([Hypothesis(tuple(array("I", ids)), score, reason) for ids, score, reason in kept])
        return JobResult(-1, hypotheses, 0.0, 0.0, 0.0, num_steps=0, beam_size=key.params.beam_size)

    def keep(self, key: Key, result: JobResult) -> None:
        """Keep a result that was not there, if it is not too large."""
        kept = tuple([(_packed(one.token_ids), one.score, one.finish_reason) for one in result.hypotheses])
        num_bytes = _size(key, kept)
        if num_bytes * _MAX_SHARE > self.max_bytes or key in self._entries:
            return
        self._entries[key] = kept
        self.num_bytes += num_bytes
        while self.num_bytes > self.max_bytes:
            self.num_bytes -= _size(*self._entries.popitem(last=False))
            self._metrics.translation_cache_evicted()

    def forget(self, model: int) -> None:
        """Drop the results of a version that no longer serves."""
        for key in [key for key in self._entries if key.model == model]:
            self.num_bytes -= _size(key, self._entries.pop(key))


def _packed(ids: Sequence[int]) -> bytes:
    return array("I", ids).tobytes()


def _size(key: Key, kept: _Kept) -> int:
    return _ENTRY_BYTES + key.num_bytes + sum([_HYPOTHESIS_BYTES + len(ids) for ids, _, _ in kept])
