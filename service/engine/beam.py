"""Beam search over the live sentences' hypotheses, vectorised over sentences of one beam size.

Pure NumPy; knows neither the model nor the batch it runs in.  Tokens are those of CTranslate2's search: hypotheses are
ranked by their float32 sum of log-probabilities; each step looks at the 2K best extensions of a sentence, of which an
end-of-sentence among the first K finishes a hypothesis and the others refill the beam.  Length normalisation,
sum / length ** penalty, is applied when a hypothesis finishes and never steers the search, but with the stop rule `hf`.
A model's `StopRule` says when a sentence ends (`model/search.py` has their sources).

Chosen tokens are written once and never moved: a hypothesis is a walk back along the parents.

Options that change logits or candidates are the matter of `steering.py`; sentences without them never meet it.

Axes: B sentences, K beam, C candidates (2K, or more where tokens are drawn at random), T decoder inputs
(the one that starts included).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from model.config import USUAL_PROFILE, DecodingProfile, StopRule
from service.engine.job import FinishReason, Hypothesis, SearchParams
from service.engine.steering import Edits, Steering, edits_of, is_steered

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Scalar = TypeVar("Scalar", bound=np.generic)

_INITIAL_SENTENCES = 8
_INITIAL_COLUMNS = 64


def num_candidates(beam_size: int, sampling_top_k: int = 0) -> int:
    """Return how many candidates the search looks at per step: the beam can be refilled if every hypothesis ends.

    Where tokens are drawn, this is a power of two, so that many sentences decode together.
    """
    return max(2 * beam_size, 1 << (sampling_top_k - 1).bit_length() if sampling_top_k else 0)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best extensions of every live sentence, best first."""

    scores: Floats  # [B, C]: `BeamSearch.scores` of the parent plus the token's log-probability, descending
    tokens: Ints  # [B, C]
    parents: Ints  # [B, C]: the hypothesis that is extended, 0 <= parent < K
    check: Floats  # [B]: NaN or plus infinity where the log-probabilities are


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What one step did.  The caller removes finished and non-finite sentences before the next step."""

    parents: Ints  # [B, K]: which hypothesis each place of the beam goes on from
    finished: Sequence[int] = ()  # sentences whose stop rule holds
    non_finite: Sequence[int] = ()  # sentences for which the model produced NaN or infinity


class _Ending(NamedTuple):
    """A finished hypothesis: its last token, and where the walk back begins."""

    score: float  # normalised
    length: int  # tokens, the last included
    parent: int
    token: int


@dataclass(slots=True)
class _Sentence:
    """The state of a sentence beside the arrays."""

    params: SearchParams
    steering: Steering | None = None
    top_ended: bool = False
    num_live: int = 0  # hypotheses of a beam that shrinks: those in the first places
    worst_kept: float = -math.inf  # score of the last hypothesis that is kept, once there are enough
    endings: list[_Ending] = field(default_factory=list)


class BeamSearch:
    """Live hypotheses of sentences that share a beam size; sentences are numbered 0 .. num_sentences - 1."""

    def __init__(self, beam_size: int, profile: DecodingProfile = USUAL_PROFILE) -> None:
        self.beam_size = beam_size
        self._profile = profile
        self._rule = profile.stop_rule if beam_size > 1 else StopRule.CTRANSLATE2
        self._sentences: list[_Sentence] = []
        self._num_steered = 0  # of them
        places = (_INITIAL_SENTENCES, beam_size)
        self._scores = np.zeros(places, np.float32)  # sums; -inf for a hypothesis not yet born
        self._newest = np.zeros(places, np.int64)  # the newest token of each hypothesis
        history = (_INITIAL_SENTENCES, _INITIAL_COLUMNS, beam_size)
        self._tokens = np.zeros(history, np.int64)  # [B, T, K]: decoder inputs as they were chosen
        self._parents = np.zeros(history, np.int64)  # [B, T, K]: whose place in the column before each one extends
        self._num_steps = np.zeros(_INITIAL_SENTENCES, np.int64)  # the newest tokens stand in this column
        self._max_steps = np.zeros(_INITIAL_SENTENCES, np.int64)

    @property
    def num_sentences(self) -> int:
        """B."""
        return len(self._sentences)

    @property
    def tokens(self) -> Ints:
        """[B, K]: the next decoder input of every hypothesis."""
        return self._newest[: self.num_sentences]

    @property
    def scores(self) -> Floats:
        """[B, K]: what is added to a token's log-probability to rank it among a sentence's extensions.

        Nothing in greedy search: adding a sum to all could only make neighbours equal.
        """
        scores = self._scores[: self.num_sentences]
        return scores if self.beam_size > 1 else np.zeros_like(scores)

    def add(self, params: SearchParams, prefix_ids: tuple[int, ...] = (), alternative: int | None = None) -> int:
        """Start a sentence, or one of its alternatives (see `Steering`), and return its number."""
        index = self.num_sentences
        if index == len(self._scores):  # doubled, so that the copies cost little per sentence
            self._scores, self._newest = _doubled(self._scores), _doubled(self._newest)
            self._tokens, self._parents = _doubled(self._tokens), _doubled(self._parents)
            self._num_steps, self._max_steps = _doubled(self._num_steps), _doubled(self._max_steps)
        columns = self._tokens.shape[1]
        if params.max_target_tokens >= columns:
            added = ((0, 0), (0, max(params.max_target_tokens + 1, 2 * columns) - columns), (0, 0))
            self._tokens, self._parents = np.pad(self._tokens, added), np.pad(self._parents, added)
        steering = None
        if prefix_ids or alternative is not None or is_steered(params):
            steering = Steering(params, prefix_ids, alternative, end_id=self._profile.end)
            self._num_steered += 1
        self._sentences.append(_Sentence(params, steering, num_live=self.beam_size))
        # All K rows start as the same hypothesis; only the first may be extended, or the beam would hold K copies.
        self._scores[index] = -np.inf
        self._scores[index, 0] = 0.0
        self._newest[index] = self._profile.start
        self._num_steps[index] = 0
        self._max_steps[index] = params.max_target_tokens
        return index

    def remove(self, index: int) -> None:
        """Forget a sentence; the last one takes its number."""
        last = self.num_sentences - 1
        past = slice(int(self._num_steps[last]) + 1)
        self._tokens[index, past], self._parents[index, past] = self._tokens[last, past], self._parents[last, past]
        for array in (self._scores, self._newest, self._num_steps, self._max_steps):
            array[index] = array[last]
        self._num_steered -= self._sentences[index].steering is not None
        self._sentences[index] = self._sentences[last]
        self._sentences.pop()

    def hypotheses(self, index: int) -> tuple[Hypothesis, ...]:
        """Return a sentence's finished hypotheses, best first, at most as many as were asked for."""
        sentence = self._sentences[index]
        best_first = sorted(sentence.endings, key=lambda ending: -ending.score)
        return tuple(self._build(index, ending) for ending in best_first[: sentence.params.num_hypotheses])

    def num_steps(self, index: int) -> int:
        """Return the decoder steps behind a sentence."""
        return int(self._num_steps[index])

    def edits(self) -> Edits | None:
        """Return what options change in the next step's logits; None: nothing."""
        return edits_of(self._steered(), self.beam_size) if self._num_steered else None

    def advance(self, candidates: Candidates) -> StepOutcome:
        """Extend every sentence's hypotheses, whose last tokens `tokens` gives, by one token."""
        non_finite = find_non_finite(candidates)
        if self._num_steered:
            candidates = self._steer(candidates, non_finite)
        live, beam = slice(self.num_sentences), slice(self.beam_size)
        num_steps = self._num_steps[live]
        num_steps += 1
        sums = candidates.scores if self.beam_size > 1 else self._scores[live] + candidates.scores
        scores, tokens, parents = sums[:, beam], candidates.tokens[:, beam], candidates.parents[:, beam]
        is_last_step = num_steps == self._max_steps[live]
        may_end = ((tokens == self._profile.end).any(axis=1) | is_last_step) & ~non_finite
        scores, tokens, parents = scores.copy(), tokens.copy(), parents.copy()
        finished = []
        for index in may_end.nonzero()[0].tolist():
            is_last = bool(is_last_step[index])
            if is_last and self._profile.forced_end:
                ranked = self._forced_end(index)
            else:
                ranked = sums[index].tolist(), candidates.tokens[index].tolist(), candidates.parents[index].tolist()
            survivors = self._finish(index, *ranked, is_last_step=is_last)
            if is_last or self._has_enough(self._sentences[index]):
                finished.append(index)
            else:
                scores[index], tokens[index], parents[index] = (
                    ranks[survivors] for ranks in (sums[index], candidates.tokens[index], candidates.parents[index])
                )
        if self._rule is StopRule.MARIAN:
            for index, sentence in enumerate(self._sentences):
                scores[index, sentence.num_live :] = -np.inf
        elif self._rule is StopRule.HF:
            going_on = ~non_finite
            going_on[finished] = False
            finished += self._overtaken(scores.max(axis=1), going_on)
        places = np.arange(self.num_sentences), num_steps
        self._scores[live], self._newest[live] = scores, tokens
        self._tokens[places], self._parents[places] = tokens, parents
        for index, steering in self._steered() if self._num_steered else ():
            steering.advance(parents[index], tokens[index])
        return StepOutcome(parents, finished, non_finite.nonzero()[0].tolist())

    def _steered(self) -> Iterator[tuple[int, Steering]]:
        for index, sentence in enumerate(self._sentences):
            if sentence.steering is not None:
                yield index, sentence.steering

    def _steer(self, candidates: Candidates, non_finite: Booleans) -> Candidates:
        """Return the candidates that the sentences' options leave."""
        scores, tokens, parents = candidates.scores.copy(), candidates.tokens.copy(), candidates.parents.copy()
        for index, steering in self._steered():
            if not non_finite[index]:
                steering.choose(scores[index], tokens[index], parents[index])
        return Candidates(scores, tokens, parents, candidates.check)

    def _finish(
        self, index: int, scores: list[float], tokens: list[int], parents: list[int], *, is_last_step: bool
    ) -> list[int]:
        """Record the hypotheses of a sentence that end in this step, given its candidates, best first.

        Returns:
            For each place of the beam the rank of the candidate that goes on there: where one ended, the best behind
            the first K that is not an end-of-sentence and not taken yet.  K = 2, tokens [7 EOS 8 9] -> [0 2].
        """
        record, length = self._sentences[index], int(self._num_steps[index])
        substitutes = (rank for rank in range(self.beam_size, len(tokens)) if tokens[rank] != self._profile.end)
        survivors = list(range(self.beam_size))
        for place, token in enumerate(tokens[: record.num_live]):
            is_possible = scores[place] > -math.inf  # not of a hypothesis that was never born
            if not is_possible or (token != self._profile.end and not is_last_step):
                continue
            score = normalize(scores[place], length, record.params)
            record.endings.append(_Ending(score, length, parents[place], token))
            record.top_ended |= place == 0
            survivors[place] = next(substitutes, place)
        if self._rule is StopRule.CTRANSLATE2:
            return survivors
        if self._rule is StopRule.MARIAN:
            survivors = [place for place in range(record.num_live) if tokens[place] != self._profile.end]
            record.num_live = len(survivors)
            survivors += [0] * (self.beam_size - record.num_live)  # nothing goes on there
        elif len(record.endings) >= (wanted := num_wanted(record.params, self._rule)):
            record.worst_kept = sorted((ending.score for ending in record.endings), reverse=True)[wanted - 1]
        return survivors

    def _forced_end(self, index: int) -> tuple[list[float], list[int], list[int]]:
        """Return scores, tokens and parents of a sentence's hypotheses, best first, with an end that changes no sum."""
        parents = np.argsort(-self._scores[index], kind="stable")
        return self._scores[index][parents].tolist(), [self._profile.end] * self.beam_size, parents.tolist()

    def _has_enough(self, sentence: _Sentence) -> bool:
        """Return whether the hypotheses that have ended are enough, whatever the others would become."""
        if self._rule is StopRule.CTRANSLATE2:
            if len(sentence.endings) < num_wanted(sentence.params):
                return False
            return sentence.top_ended or not stops_at_top(sentence.params)
        return self._rule is StopRule.MARIAN and not sentence.num_live  # `_overtaken` decides for the third

    def _overtaken(self, sums: Floats, going_on: Booleans) -> list[int]:
        """Return the sentences whose best running hypothesis, with this sum [B], is no better than the worst kept one.

        Args:
            going_on: [B]; others do not count.
        """
        return [
            index
            for index, sentence in enumerate(self._sentences)
            if going_on[index]
            and sentence.worst_kept > -math.inf
            and normalize(sums[index], int(self._num_steps[index]), sentence.params) <= sentence.worst_kept
        ]

    def _build(self, index: int, ending: _Ending) -> Hypothesis:
        past = slice(ending.length)
        tokens, parents = self._tokens[index, past].tolist(), self._parents[index, past].tolist()
        is_ended, place = ending.token == self._profile.end, ending.parent
        backwards = [] if is_ended else [ending.token]
        is_forced = self._profile.forced_end and ending.length == self._max_steps[index]
        for column in range(ending.length - 1, 0, -1):
            backwards.append(tokens[column][place])
            place = parents[column][place]
        return Hypothesis(
            token_ids=tuple(reversed(backwards)),
            score=ending.score,
            finish_reason=FinishReason.END_OF_SENTENCE if is_ended and not is_forced else FinishReason.LENGTH,
        )


def num_wanted(params: SearchParams, rule: StopRule = StopRule.CTRANSLATE2) -> int:
    """Return how many finished hypotheses end a sentence: round(beam_size * patience), half up; one if greedy."""
    if params.beam_size == 1:
        return 1
    if stops_at_top(params) and rule is StopRule.CTRANSLATE2:
        return params.num_hypotheses
    rounded = math.floor(float(np.float32(params.beam_size) * np.float32(params.patience)) + 0.5)
    return max(rounded, params.num_hypotheses)


def stops_at_top(params: SearchParams) -> bool:
    """Return whether a sentence ends as soon as its best hypothesis has.

    Without length normalisation sums only fall, so nothing can overtake a hypothesis that ended in first place.
    CTranslate2 does the same, and ignores patience then.
    """
    return params.length_penalty == 0 and params.beam_size > 1


def find_non_finite(candidates: Candidates) -> Booleans:
    """Return [B], true for sentences for which the model produced NaN or +inf, or nothing that is possible.

    Minus infinity behind the first place is no fault: it forbids a token.
    """
    is_number: Booleans = candidates.check < np.inf
    is_possible: Booleans = candidates.scores[:, 0] > -np.inf  # also false of NaN
    return ~(is_number & is_possible)


def normalize(score: float, length: int, params: SearchParams) -> float:
    """Return sum / length ** length_penalty in float32; `length` counts the end-of-sentence."""
    return float(np.float32(score) / np.float32(length) ** np.float32(params.length_penalty))


def _doubled(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    return np.concatenate([array, array])
