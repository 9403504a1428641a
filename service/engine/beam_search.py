"""Beam search over the live sentences' hypotheses, vectorised over sentences of one beam size.

Pure NumPy; knows neither the model nor the batch it runs in.  Tokens are those of CTranslate2's search: hypotheses are
ranked by their float32 sum of log-probabilities; each step looks at the 2K best extensions of a sentence, of which an
end-of-sentence among the first K finishes a hypothesis and the others refill the beam.  Length normalisation,
sum / length ** penalty, is applied when a hypothesis finishes and never steers the search, but with the stop rule `hf`.
A model's `StopRule` says when a sentence ends (`model/search.py` has their sources).

Options that change logits or candidates are the matter of `logits.py`; sentences without them never meet it.

Axes: B sentences, K beam, C candidates (2K, or more where tokens are drawn at random), T decoder inputs
(the one that starts included).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter

import numpy as np

from model.config import USUAL_PROFILE, DecodingProfile, StopRule
from service.engine.beams import (
    LOOP_STRIDE,
    LOOP_TOKENS,
    Beams,
    Candidates,
    Ending,
    Floats,
    Ints,
    StepOutcome,
    find_non_finite,
)
from service.engine.logits import Edits, LogitsProcessor, edits_of, needs_processor
from service.engine.wire import FinishReason, Hypothesis, SearchParams

# A hypothesis whose last `LOOP_TOKENS` tokens have such a period or a shorter one only repeats itself.  It takes a walk
# back to see, hence `LOOP_STRIDE`; translations without end are four times as long.
LOOP_PERIOD = 8
_ANY_STEPS = 1 << 30
_SOURCE_LOOP_TOKENS = 24  # a source with such a run may have a translation with a longer one


def num_candidates(beam_size: int, sampling_top_k: int = 0) -> int:
    """Return how many candidates the search looks at per step: the beam can be refilled if every hypothesis ends.

    Where tokens are drawn, this is a power of two, so that many sentences decode together.
    """
    return max(2 * beam_size, 1 << (sampling_top_k - 1).bit_length() if sampling_top_k else 0)


@dataclass(slots=True)
class _Sentence:
    """The state of a sentence beside the arrays."""

    params: SearchParams
    processor: LogitsProcessor | None
    num_wanted: int  # finished hypotheses
    num_live: int  # hypotheses of a beam that shrinks: those in the first places
    is_looping: bool = False
    worst_kept: float = -math.inf  # score of the last hypothesis that is kept, once there are enough
    endings: list[Ending] = field(default_factory=list)


class BeamSearch:
    """Live hypotheses of sentences that share a beam size; sentences are numbered 0 .. num_sentences - 1."""

    def __init__(self, beam_size: int, profile: DecodingProfile = USUAL_PROFILE) -> None:
        self.beam_size = beam_size
        self._profile = profile
        self._rule = profile.stop_rule if beam_size > 1 else StopRule.CTRANSLATE2
        self._sentences: list[_Sentence] = []
        self._num_processors = 0  # of them
        self.beams = Beams.of(beam_size)

    @property
    def num_sentences(self) -> int:
        """B."""
        return len(self._sentences)

    @property
    def end(self) -> int:
        """The token that ends a hypothesis."""
        return self._profile.end

    @property
    def tokens(self) -> Ints:
        """[B, K]: the next decoder input of every hypothesis."""
        return self.beams.newest[: self.num_sentences]

    @property
    def scores(self) -> Floats:
        """[B, K]: what is added to a token's log-probability to rank it among a sentence's extensions.

        Nothing in greedy search: adding a sum to all could only make neighbours equal.
        """
        scores = self.beams.scores[: self.num_sentences]
        return scores if self.beam_size > 1 else np.zeros_like(scores)

    def add(self, params: SearchParams, prefix_ids: tuple[int, ...] = (), alternative: int | None = None) -> int:
        """Start a sentence, or one of its alternatives (see `LogitsProcessor`), and return its number."""
        index, beams = self.num_sentences, self.beams
        beams.make_room(index + 1, params.max_target_tokens + 1)
        processor = None
        if prefix_ids or alternative is not None or needs_processor(params):
            processor = LogitsProcessor(params, prefix_ids, alternative, end_id=self._profile.end)
            self._num_processors += 1
        self._sentences.append(_Sentence(params, processor, num_wanted(params, self._rule), self.beam_size))
        # All K rows start as the same hypothesis; only the first may be extended, or the beam would hold K copies.
        beams.scores[index] = -np.inf
        beams.scores[index, 0] = 0.0
        beams.newest[index] = self._profile.start
        beams.num_steps[index] = 0
        beams.max_steps[index] = params.max_target_tokens
        beams.still_wanted[index] = self._sentences[index].num_wanted
        beams.waits_for_best[index] = stops_at_top(params)
        beams.penalties[index] = params.length_penalty
        return index

    def remove(self, *indices: int) -> None:
        """Forget sentences one after the other; each time, the last one takes the number."""
        moved: dict[int, int] = {}  # by its new number, the old number of a sentence
        for index in indices:
            self._num_processors -= self._sentences[index].processor is not None
            last = self.num_sentences - 1
            old = moved.pop(last, last)
            if index != last:
                moved[index] = old
            self._sentences[index] = self._sentences[-1]
            self._sentences.pop()
        if len(moved) == 1:  # NumPy takes three times as long for an array of one number
            ((new, old),) = moved.items()
            self.beams.move(old, new)
        elif moved:
            self.beams.move(np.array([*moved.values()]), np.array([*moved]))

    def hypotheses(self, index: int) -> tuple[Hypothesis, ...]:
        """Return a sentence's finished hypotheses, best first, at most as many as were asked for."""
        sentence = self._sentences[index]
        best_first = sorted(sentence.endings, reverse=True, key=attrgetter("score"))
        return tuple([self._build(index, ending) for ending in best_first[: sentence.params.num_hypotheses]])

    def num_steps(self, index: int) -> int:
        """Return the decoder steps behind a sentence."""
        return int(self.beams.num_steps[index])

    @property
    def num_plain_steps(self) -> int:
        """How many steps a runner may take without options or another stop rule that change something in one."""
        if self._num_processors or self._rule is not StopRule.CTRANSLATE2:
            return 0
        if not self._profile.forced_end:
            return _ANY_STEPS
        live = slice(self.num_sentences)
        return int((self.beams.max_steps[live] - self.beams.num_steps[live]).min()) - 1

    def edits(self) -> Edits | None:
        """Return what options change in the next step's logits; None: nothing."""
        return edits_of(self._processors(), self.beam_size) if self._num_processors else None

    def advance(self, candidates: Candidates) -> StepOutcome:
        """Extend every sentence's hypotheses, whose last tokens `tokens` gives, by one token."""
        if self._num_processors:
            candidates = self._process(candidates)
        if self._profile.forced_end:
            candidates = self._force_ends(candidates)
        ends_usually = self._rule is StopRule.CTRANSLATE2
        return self.settle(candidates.extend(self.beams, self._profile.end, ends_usually=ends_usually), candidates)

    def settle(self, step: StepOutcome, candidates: Candidates) -> StepOutcome:
        """Decide what is undecided behind a step, whose hypotheses have been extended by these candidates."""
        for index, ending in step.endings:
            self._sentences[index].endings.append(ending)
        if step.undecided:
            step.finished += self._end(step, candidates)
        if self._rule is StopRule.MARIAN:
            for index, sentence in enumerate(self._sentences):
                self.beams.scores[index, sentence.num_live :] = -np.inf
        elif self._rule is StopRule.HF:
            step.finished += self._overtaken({*range(self.num_sentences)} - {*step.finished, *step.non_finite})
        for index, processor in self._processors() if self._num_processors else ():
            processor.advance(step.parents[index], self.beams.newest[index].copy())
        return step

    def _processors(self) -> Iterator[tuple[int, LogitsProcessor]]:
        for index, sentence in enumerate(self._sentences):
            if sentence.processor is not None:
                yield index, sentence.processor

    def _process(self, candidates: Candidates) -> Candidates:
        """Return the candidates that the sentences' options leave."""
        scores, tokens, parents = candidates.scores.copy(), candidates.tokens.copy(), candidates.parents.copy()
        non_finite = find_non_finite(candidates)
        for index, processor in self._processors():
            if not non_finite[index]:
                processor.choose(scores[index], tokens[index], parents[index])
        return Candidates(scores, tokens, parents, candidates.check)

    def _force_ends(self, candidates: Candidates) -> Candidates:
        """Have all hypotheses end of sentences whose last step this is, which changes no sum."""
        live = slice(self.num_sentences)
        last = (self.beams.num_steps[live] + 1 == self.beams.max_steps[live]).nonzero()[0].tolist()
        if not last:
            return candidates
        scores, tokens, parents = candidates.scores.copy(), candidates.tokens.copy(), candidates.parents.copy()
        for index in last:
            order = np.argsort(-self.beams.scores[index], kind="stable")
            beam = index, slice(self.beam_size)
            scores[beam], tokens[beam], parents[beam] = self.scores[index, order], self._profile.end, order
        return Candidates(scores, tokens, parents, candidates.check)

    def _end(self, step: StepOutcome, candidates: Candidates) -> list[int]:
        """Record the hypotheses of undecided sentences that end, and return the sentences that do; the others go on."""
        beams, which = self.beams, step.undecided
        num_steps, most = beams.num_steps[which].tolist(), beams.max_steps[which].tolist()
        ranked = (array[which].tolist() for array in (candidates.scores, candidates.tokens, candidates.parents))
        finished, going_on, survivors = [], list[tuple[int, int]](), list[list[int]]()
        for index, length, limit, *best in zip(which, num_steps, most, *ranked, strict=True):
            ranks = self._finish(index, length, *best, is_last_step=length == limit)
            if length == limit or self._has_enough(index):
                finished.append(index)
            else:
                going_on.append((index, length))
                survivors.append(ranks)
        if not going_on:
            return finished
        places, (rows, lengths) = np.array(survivors), np.array(going_on).T
        kept = rows[:, None], places
        beams.scores[rows], step.parents[rows] = candidates.scores[kept], candidates.parents[kept]
        beams.newest[rows] = beams.tokens[rows, lengths] = candidates.tokens[kept]
        beams.parents[rows, lengths] = step.parents[rows]
        return finished + [index for index, length in going_on if self._end_loops(index, length)]

    def _finish(
        self, index: int, length: int, scores: list[float], tokens: list[int], parents: list[int], *, is_last_step: bool
    ) -> list[int]:
        """Record the hypotheses of a sentence that end in this step, given its candidates, best first.

        Returns:
            For each place of the beam the rank of the candidate that goes on there: where one ended, the best behind
            the first K that is not an end-of-sentence and not taken yet.  K = 2, tokens [7 EOS 8 9] -> [0 2].
        """
        record, end = self._sentences[index], self._profile.end
        substitutes = (rank for rank in range(self.beam_size, len(tokens)) if tokens[rank] != end)
        survivors = list(range(self.beam_size))
        for place, token in enumerate(tokens[: record.num_live]):
            if token != end and not is_last_step:
                continue
            if scores[place] == -math.inf:  # of a hypothesis that was never born
                continue
            score = normalize(scores[place], length, record.params)
            record.endings.append(Ending(score, length, parents[place], token))
            self.beams.still_wanted[index] -= 1
            if place == 0:
                self.beams.waits_for_best[index] = 0
            survivors[place] = next(substitutes, place)
        if self._rule is StopRule.CTRANSLATE2:
            return survivors
        if self._rule is StopRule.MARIAN:
            survivors = [place for place in range(record.num_live) if tokens[place] != self._profile.end]
            record.num_live = len(survivors)
            survivors += [0] * (self.beam_size - record.num_live)  # nothing goes on there
        elif len(record.endings) >= record.num_wanted:
            record.worst_kept = sorted((ending.score for ending in record.endings), reverse=True)[record.num_wanted - 1]
        return survivors

    def _end_loops(self, index: int, num_steps: int) -> bool:
        """End a sentence all of whose hypotheses only repeat themselves; return whether they do."""
        record, beams = self._sentences[index], self.beams
        if num_steps < LOOP_TOKENS or num_steps % LOOP_STRIDE or not record.params.stop_repetition:
            return False
        scores = beams.scores[index, : record.num_live].tolist()
        live = [place for place, score in enumerate(scores) if score > -math.inf]
        tokens, parents = beams.tokens[index], beams.parents[index]
        past, places = np.zeros((len(live), LOOP_TOKENS), np.int64), np.array(live, np.int64)
        for back in range(LOOP_TOKENS):
            past[:, -1 - back] = tokens[num_steps - back, places]
            places = parents[num_steps - back, places]
        if not all(any((row[p:] == row[:-p]).all() for p in range(1, LOOP_PERIOD + 1)) for row in past):
            return False
        for place in live:
            score = normalize(scores[place], num_steps, record.params)
            parent, token = int(parents[num_steps, place]), int(tokens[num_steps, place])
            record.endings.append(Ending(score, num_steps, parent, token))
        record.is_looping = True
        return True

    def _has_enough(self, index: int) -> bool:
        """Return whether the hypotheses that have ended are enough, whatever the others would become."""
        if self._rule is StopRule.CTRANSLATE2:
            return bool(self.beams.still_wanted[index] <= 0 and not self.beams.waits_for_best[index])
        return self._rule is StopRule.MARIAN and not self._sentences[index].num_live  # `_overtaken` decides otherwise

    def _overtaken(self, going_on: set[int]) -> list[int]:
        """Return those of some sentences whose best running hypothesis is no better than the worst kept one."""
        found = []
        for index in sorted(going_on):
            sentence, best = self._sentences[index], float(self.beams.scores[index].max())
            if sentence.worst_kept > -math.inf and (
                normalize(best, self.num_steps(index), sentence.params) <= sentence.worst_kept
            ):
                found.append(index)
        return found

    def _build(self, index: int, ending: Ending) -> Hypothesis:
        tokens, is_ended = self.beams.trace(index, ending.length, ending.parent), ending.token == self._profile.end
        is_forced = self._profile.forced_end and ending.length == self.beams.max_steps[index]
        cut = FinishReason.REPETITION if self._sentences[index].is_looping else FinishReason.LENGTH
        return Hypothesis(
            token_ids=tuple(tokens if is_ended else [*tokens, ending.token]),
            score=ending.score,
            finish_reason=FinishReason.END_OF_SENTENCE if is_ended and not is_forced else cut,
        )


def may_repeat(source_ids: Sequence[int]) -> bool:
    """Return whether a source has so many tokens in a row that are those of at most eight places before."""
    places = range(_SOURCE_LOOP_TOKENS, len(source_ids), _SOURCE_LOOP_TOKENS)  # such a row has one of them
    if not any(source_ids[place] in source_ids[max(0, place - LOOP_PERIOD) : place] for place in places):
        return False  # at once: nearly all sources
    tokens = np.array(source_ids)
    for period in range(1, min(LOOP_PERIOD, len(tokens) - _SOURCE_LOOP_TOKENS) + 1):
        breaks = np.flatnonzero(tokens[period:] != tokens[:-period])
        if np.diff(breaks, prepend=-1, append=len(tokens) - period).max() > _SOURCE_LOOP_TOKENS:
            return True
    return False


def num_wanted(params: SearchParams, rule: StopRule = StopRule.CTRANSLATE2) -> int:
    """Return how many finished hypotheses end a sentence: round(beam_size * patience), half up; one if greedy."""
    if params.beam_size == 1:
        return 1
    if stops_at_top(params) and rule is StopRule.CTRANSLATE2:
        return params.num_hypotheses
    if params.patience == 1.0:
        return max(params.beam_size, params.num_hypotheses)
    rounded = math.floor(float(np.float32(params.beam_size) * np.float32(params.patience)) + 0.5)
    return max(rounded, params.num_hypotheses)


def stops_at_top(params: SearchParams) -> bool:
    """Return whether a sentence ends as soon as its best hypothesis has.

    Without length normalisation sums only fall, so nothing can overtake a hypothesis that ended in first place.
    CTranslate2 does the same, and ignores patience then.
    """
    return params.length_penalty == 0 and params.beam_size > 1


def normalize(score: float, length: int, params: SearchParams) -> float:
    """Return sum / length ** length_penalty in float32; `length` counts the end-of-sentence."""
    return float(np.float32(score) / _length_factor(length, params.length_penalty))


@lru_cache(maxsize=4_096)
def _length_factor(length: int, penalty: float) -> np.float32:
    return np.float32(length) ** np.float32(penalty)
