"""What the options of a sentence change in its search: logits before a step, candidates after it.

Pure NumPy; knows one sentence at a time, and neither the model nor the batch.  Semantics are CTranslate2's, where it
has the option; the repetition penalty is that of Keskar et al. 2019, section 4.1.

Axes: K beam, T tokens so far (prefix included), C candidates, E edits.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from model.config import USUAL_PROFILE
from model.spelling import ANYWHERE, WORD_START
from service.engine.beams import Floats, Ints
from service.engine.wire import SearchParams

_ROW_SHIFT = 32  # a row and a token in one integer


class Edits(NamedTuple):
    """Changes of logits in one step; no row has a token twice."""

    rows: Ints  # [E]: sentence * K + hypothesis
    tokens: Ints  # [E]
    values: Floats  # [E]: added to the logits
    factors: Floats  # [E], 1 or more: before that, divide positive logits and multiply negative ones


_NO_PLACES = np.zeros(0, np.int64)
NO_EDITS = Edits(_NO_PLACES, _NO_PLACES, np.zeros(0, np.float32), np.ones(0, np.float32))


class LogitsProcessor:
    """The options of one sentence, and its live hypotheses' tokens."""

    def __init__(
        self,
        params: SearchParams,
        prefix_ids: tuple[int, ...] = (),
        alternative: int | None = None,
        *,
        end_id: int = USUAL_PROFILE.end,
    ) -> None:
        """Begin with hypotheses without tokens.

        Args:
            params: how to search.
            prefix_ids: what every hypothesis begins with.
            alternative: which of the best tokens behind the prefix to go on with, from 0; None: a search from there.
            end_id: the token that ends a hypothesis.
        """
        self._end_id = end_id
        self.params = params
        self._prefix_ids = prefix_ids
        self._alternative = alternative
        # An alternative is a token, so that none ends behind the prefix.
        self._min_tokens = max(params.min_target_tokens, 0 if alternative is None else len(prefix_ids) + 1)
        self._past = np.zeros((params.beam_size, 0), np.int64)  # [K, T]
        # Where each hypothesis is in the spellings of suppressed phrases, and what goes on from a node.
        self._nodes = [frozenset({ANYWHERE, WORD_START})] * params.beam_size
        self._edges: dict[int, _Edges] = {}

    @property
    def num_steps(self) -> int:
        """T."""
        return self._past.shape[1]

    def penalized(self) -> tuple[Ints, Ints]:
        """Return hypotheses and tokens whose logits the repetition penalty makes smaller; some may come twice."""
        if self.params.repetition_penalty == 1.0 or self._is_forced:
            return _NO_PLACES, _NO_PLACES
        beam_size, num_steps = self._past.shape
        return np.arange(beam_size).repeat(num_steps), self._past.ravel()

    def banned(self) -> tuple[Ints, Ints]:
        """Return hypotheses and tokens that they must not go on with; some may come twice."""
        if self._is_forced:
            return _NO_PLACES, _NO_PLACES
        parts = [self._repetitions(), self._completions()]
        if self.num_steps < self._min_tokens:
            beam_size = self.params.beam_size
            parts.append((np.arange(beam_size), np.full(beam_size, self._end_id)))
        hypotheses, tokens = zip(*parts, strict=True)
        return np.concatenate(hypotheses), np.concatenate(tokens)

    def choose(self, scores: Floats, tokens: Ints, parents: Ints) -> None:
        """Change a step's candidates, [C] each and best first, to those that the options leave.

        A forced token changes no sum: CTranslate2 counts a prefix in the length alone.
        """
        if self._is_forced:
            tokens[0], parents[0], scores[0] = self._prefix_ids[self.num_steps], 0, 0.0
        elif self.params.sampling_top_k:
            rank = draw(scores, self.params, self.num_steps)
            tokens[0], scores[0] = tokens[rank], scores[rank]
        elif self._alternative is not None and self.num_steps == len(self._prefix_ids):
            rank = self._alternative
            tokens[0], parents[0], scores[0] = tokens[rank], parents[rank], scores[rank]
        else:
            return
        scores[1:] = -np.inf

    def advance(self, parents: Ints, tokens: Ints) -> None:
        """Note with which token each hypothesis goes on, and from whose past; [K] each."""
        self._past = np.concatenate([self._past[parents], tokens[:, None]], axis=1)
        if self.params.suppressed:
            self._nodes = [
                frozenset({ANYWHERE}).union(
                    *(self._edges_of(node).behind.get(token, ()) for node in self._nodes[parent])
                )
                for parent, token in zip(parents.tolist(), tokens.tolist(), strict=True)
            ]

    @property
    def _is_forced(self) -> bool:
        return self.num_steps < len(self._prefix_ids)

    def _repetitions(self) -> tuple[Ints, Ints]:
        """Return what would complete a sequence of `no_repeat_ngram_size` tokens that a hypothesis has already."""
        size = self.params.no_repeat_ngram_size
        if not 0 < size <= self.num_steps:
            return _NO_PLACES, _NO_PLACES
        windows = np.lib.stride_tricks.sliding_window_view(self._past, size, axis=1)  # [K, T - size + 1, size]
        newest = self._past[:, None, self.num_steps - size + 1 :]  # [K, 1, size - 1]
        hypotheses, places = (windows[:, :, :-1] == newest).all(axis=2).nonzero()
        return hypotheses, windows[hypotheses, places, -1]

    def _completions(self) -> tuple[Ints, Ints]:
        """Return what would complete a suppressed phrase."""
        if not self.params.suppressed:
            return _NO_PLACES, _NO_PLACES
        found = [[token for node in nodes for token in self._edges_of(node).completing] for nodes in self._nodes]
        counts = [len(tokens) for tokens in found]
        return np.arange(len(found)).repeat(counts), np.array([token for tokens in found for token in tokens], np.int64)

    def _edges_of(self, node: int) -> "_Edges":
        edges = self._edges.get(node)
        if edges is None:
            edges = self._edges[node] = _Edges.of(self.params.suppressed[node])
        return edges


class _Edges(NamedTuple):
    """What goes on from a node of spellings."""

    behind: dict[int, tuple[int, ...]]  # by token, the nodes behind it
    completing: tuple[int, ...]  # tokens that complete a phrase

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> "_Edges":
        behind: dict[int, tuple[int, ...]] = {}
        for token, node in pairs:
            behind[token] = (*behind.get(token, ()), node)
        return cls(behind, tuple(token for token, nodes in behind.items() if ANYWHERE in nodes))


def needs_processor(params: SearchParams) -> bool:
    """Return whether options change logits or candidates."""
    return (
        params.repetition_penalty != 1.0
        or params.no_repeat_ngram_size > 0
        or params.min_target_tokens > 0
        or bool(params.suppressed)
        or params.sampling_top_k > 0
    )


def edits_of(processors: Iterable[tuple[int, LogitsProcessor]], beam_size: int) -> Edits | None:
    """Return the edits of the next step for sentences with these numbers, or None if there are none."""
    banned, penalized, penalties = [], [], []
    for index, processor in processors:
        hypotheses, tokens = processor.banned()
        banned.append(((index * beam_size + hypotheses) << _ROW_SHIFT) + tokens)
        hypotheses, tokens = processor.penalized()
        penalized.append(((index * beam_size + hypotheses) << _ROW_SHIFT) + tokens)
        penalties.append(np.full(tokens.size, processor.params.repetition_penalty, np.float32))
    num_banned = sum(part.size for part in banned)
    places, first = np.unique(np.concatenate([*banned, *penalized]), return_index=True)
    if not places.size:
        return None
    factors = np.concatenate([np.ones(num_banned, np.float32), *penalties])
    values = np.where(first < num_banned, -np.inf, 0.0).astype(np.float32)  # a token that is both is banned
    return Edits(places >> _ROW_SHIFT, places & ((1 << _ROW_SHIFT) - 1), values, factors[first])


def draw(log_probs: Floats, params: SearchParams, step: int) -> int:
    """Return the rank of the candidate that a step takes at random; depends on nothing but the arguments.

    Of the `sampling_top_k` best candidates the smallest set is kept whose probabilities, with temperature and relative
    to all of these candidates, sum up to at least `sampling_top_p`.

    Args:
        log_probs: [C] of the candidates, descending.
        params: its seed is the key of the random numbers (Philox, Salmon et al. 2011).
        step: their counter.
    """
    kept = log_probs[: params.sampling_top_k].astype(np.float64)
    sums = np.exp((kept - kept[0]) / params.sampling_temperature).cumsum()
    last = int(np.searchsorted(sums, params.sampling_top_p * sums[-1]))
    uniform = (int(np.random.Philox(key=params.sampling_seed, counter=step).random_raw()) >> 11) / 2**53
    return min(int(np.searchsorted(sums, uniform * sums[last], side="right")), last)
