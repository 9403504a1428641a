"""Beam search over the live sentences' hypotheses, vectorised over sentences of one beam size.

Pure NumPy; knows neither the model nor the batch it runs in.  Tokens are those of CTranslate2's search: hypotheses are
ranked by their float32 sum of log-probabilities; each step looks at 2K candidates, of which an end-of-sentence among
the first K finishes a hypothesis and the others refill the beam.  Length normalisation, sum / length ** penalty, is
applied when a hypothesis finishes and never steers the search.

Axes: B sentences, K beam, C = 2K candidates, T decoder inputs (beginning-of-sentence included).
"""

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from model.config import BOS_ID, EOS_ID
from service.engine.job import FinishReason, Hypothesis, SearchParams

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_INITIAL_SENTENCES = 8
_INITIAL_COLUMNS = 64
_BEAM_STRIDE = 1 << 32  # larger than any token id, so that beam * stride + token orders as a flat [K * V] index does


def num_candidates(beam_size: int) -> int:
    """Candidates the search looks at per step: enough to refill the beam when every hypothesis ends at once."""
    return 2 * beam_size


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best next tokens of every live hypothesis."""

    log_probs: Floats  # [B, K, C] of the token alone, descending
    tokens: Ints  # [B, K, C]


@dataclass(frozen=True, slots=True)
class Ranked:
    """The best extensions of every sentence, best first."""

    scores: Floats  # [B, C] sum of log-probabilities, this token included
    tokens: Ints  # [B, C]
    parents: Ints  # [B, C] hypothesis that is extended, 0 <= parent < K


@dataclass(frozen=True, slots=True)
class Moves:
    """Rows that continue another row's hypothesis, and the columns in which the two differ.

    Row = sentence * K + hypothesis.  All fields are [N]; columns run from `starts` up to, not including, `stops`.
    Sources are meant as they were before any move.
    """

    rows: Ints
    sources: Ints
    starts: Ints
    stops: Ints


@dataclass(frozen=True, slots=True)
class Progress:
    """What one step did.  Finished and non-finite sentences do not move and are to be removed before the next step."""

    moves: Moves
    finished: Ints  # sentences whose stop rule holds
    non_finite: Ints  # sentences whose candidates held NaN or infinity


@dataclass(slots=True)
class _Sentence:
    """What is kept per sentence beside the arrays."""

    params: SearchParams
    hypotheses: list[Hypothesis] = field(default_factory=list)


class BeamSearch:
    """Live hypotheses of sentences that share a beam size; sentences are numbered 0 .. num_sentences - 1."""

    def __init__(self, beam_size: int) -> None:
        self.beam_size = beam_size
        self._sentences: list[_Sentence] = []
        self._scores = np.zeros((_INITIAL_SENTENCES, beam_size), np.float32)  # sums; -inf for a hypothesis not yet born
        # [B, K, T]; column 0 holds beginning-of-sentence, whoever has the place.
        self._inputs = np.full((_INITIAL_SENTENCES, beam_size, _INITIAL_COLUMNS), BOS_ID, np.int64)
        self._num_steps = np.zeros(_INITIAL_SENTENCES, np.int64)  # the newest input stands in this column of _inputs
        self._max_steps = np.zeros(_INITIAL_SENTENCES, np.int64)
        self._num_finished = np.zeros(_INITIAL_SENTENCES, np.int64)
        self._num_wanted = np.zeros(_INITIAL_SENTENCES, np.int64)
        self._needs_top = np.zeros(_INITIAL_SENTENCES, np.bool_)  # only stop after a hypothesis that ranked first ended
        self._top_finished = np.zeros(_INITIAL_SENTENCES, np.bool_)

    @property
    def num_sentences(self) -> int:
        """B."""
        return len(self._sentences)

    def tokens(self) -> Ints:
        """[B, K]: the next decoder input of every hypothesis."""
        sentences = np.arange(self.num_sentences)
        return self._inputs[sentences, :, self._num_steps[: self.num_sentences]]

    def add(self, params: SearchParams) -> int:
        """Start a sentence and say its number."""
        index = self.num_sentences
        self._reserve(index + 1, params.max_target_tokens + 1)
        self._sentences.append(_Sentence(params))
        # All K rows start as the same hypothesis; only the first may be extended, or the beam would hold K copies.
        self._scores[index] = -np.inf
        self._scores[index, 0] = 0.0
        self._num_steps[index] = 0
        self._max_steps[index] = params.max_target_tokens
        self._num_finished[index] = 0
        self._num_wanted[index] = num_wanted(params)
        self._needs_top[index] = stops_at_top(params)
        self._top_finished[index] = False
        return index

    def remove(self, index: int) -> None:
        """Forget a sentence; the last one takes its number."""
        last = self.num_sentences - 1
        for array in self._arrays():
            array[index] = array[last]
        self._sentences[index] = self._sentences[last]
        self._sentences.pop()

    def hypotheses(self, index: int) -> tuple[Hypothesis, ...]:
        """A sentence's finished hypotheses, best first, as many as were asked for at most."""
        sentence = self._sentences[index]
        best_first = sorted(sentence.hypotheses, key=lambda hypothesis: -hypothesis.score)
        return tuple(best_first[: sentence.params.num_hypotheses])

    def advance(self, candidates: Candidates) -> Progress:
        """Extend every sentence's hypotheses by one token.

        Args:
            candidates: of the hypotheses whose last tokens `tokens` gives.
        """
        live = slice(self.num_sentences)
        non_finite = find_non_finite(candidates.log_probs)
        ranked = rank(self._scores[live], candidates)
        is_last_step = self._num_steps[live] + 1 == self._max_steps[live]
        ends = find_ends(ranked, is_last_step) & ~non_finite[:, None]
        if ends.any():
            self._finish(ranked, ends)
        is_finished = (is_last_step | self._has_enough()) & ~non_finite
        moves = self._extend(ranked, choose_survivors(ranked.tokens, ends), ~(is_finished | non_finite))
        return Progress(moves, is_finished.nonzero()[0], non_finite.nonzero()[0])

    def _finish(self, ranked: Ranked, ends: Booleans) -> None:
        """Record the hypotheses that ended."""
        for sentence, rank_in_beam in zip(*np.nonzero(ends), strict=True):
            self._sentences[sentence].hypotheses.append(self._build(ranked, sentence, rank_in_beam))
        self._num_finished[: self.num_sentences] += ends.sum(axis=1)
        self._top_finished[: self.num_sentences] |= ends[:, 0]

    def _build(self, ranked: Ranked, sentence: int, rank_in_beam: int) -> Hypothesis:
        length = int(self._num_steps[sentence]) + 1
        token = int(ranked.tokens[sentence, rank_in_beam])
        inputs = self._inputs[sentence, ranked.parents[sentence, rank_in_beam], :length].tolist()
        produced = tuple(inputs[1:])
        is_ended = token == EOS_ID
        return Hypothesis(
            token_ids=produced if is_ended else (*produced, token),
            score=normalize(ranked.scores[sentence, rank_in_beam], length, self._sentences[sentence].params),
            finish_reason=FinishReason.END_OF_SENTENCE if is_ended else FinishReason.LENGTH,
        )

    def _has_enough(self) -> Booleans:
        live = slice(self.num_sentences)
        has_count: Booleans = self._num_finished[live] >= self._num_wanted[live]
        has_top: Booleans = self._top_finished[live] | ~self._needs_top[live]
        return has_count & has_top

    def _extend(self, ranked: Ranked, survivors: Ints, continues: Booleans) -> Moves:
        """Put the survivors into the beam.

        Args:
            survivors: [B, K] ranks.
            continues: [B] sentences with a next step.
        """
        live, sentences = slice(self.num_sentences), np.arange(self.num_sentences)
        chosen = sentences[:, None], survivors
        moves = self._move_inputs(ranked.parents[chosen], continues)
        self._num_steps[live] += 1
        self._scores[live] = ranked.scores[chosen]
        self._inputs[sentences, :, self._num_steps[live]] = ranked.tokens[chosen]
        return moves

    def _move_inputs(self, parents: Ints, continues: Booleans) -> Moves:
        """Give every row of a continuing sentence its parent's inputs, and say which rows that changed."""
        changed = (parents != np.arange(self.beam_size)) & continues[:, None]
        sentences, beams = np.nonzero(changed)
        source_beams = parents[sentences, beams]
        stops = self._num_steps[sentences] + 1
        width = int(stops.max(initial=1))
        wanted = self._inputs[sentences, source_beams, :width]  # [N, T], a copy
        differs = wanted != self._inputs[sentences, beams, :width]
        self._inputs[sentences, beams, :width] = wanted
        first = np.where(differs.any(axis=1), differs.argmax(axis=1), width)
        offsets = sentences * self.beam_size
        return Moves(offsets + beams, offsets + source_beams, np.minimum(first, stops), stops)

    def _arrays(self) -> list[npt.NDArray[np.generic]]:
        """The per-sentence state, sentence first."""
        return [
            self._scores,
            self._inputs,
            self._num_steps,
            self._max_steps,
            self._num_finished,
            self._num_wanted,
            self._needs_top,
            self._top_finished,
        ]

    def _reserve(self, num_sentences: int, num_columns: int) -> None:
        """Make room; doubles, so that the copies cost little per sentence."""
        capacity, _, columns = self._inputs.shape
        if num_sentences > capacity:
            (
                self._scores,
                self._inputs,
                self._num_steps,
                self._max_steps,
                self._num_finished,
                self._num_wanted,
                self._needs_top,
                self._top_finished,
            ) = (np.concatenate([array, array]) for array in self._arrays())
        if num_columns > columns:
            wider = max(num_columns, 2 * columns)
            self._inputs = np.pad(self._inputs, ((0, 0), (0, 0), (0, wider - columns)))


def num_wanted(params: SearchParams) -> int:
    """Finished hypotheses that end a sentence: round(beam_size * patience), half away from zero; one if greedy."""
    if params.beam_size == 1:
        return 1
    if stops_at_top(params):
        return params.num_hypotheses
    rounded = math.floor(float(np.float32(params.beam_size) * np.float32(params.patience)) + 0.5)
    return max(rounded, params.num_hypotheses)


def stops_at_top(params: SearchParams) -> bool:
    """Whether a sentence ends as soon as its best hypothesis has.

    So it is without length normalisation: sums only fall, so nothing can overtake a hypothesis that ended in first
    place.  CTranslate2 does the same, and ignores patience then.
    """
    return params.length_penalty == 0 and params.beam_size > 1


def find_non_finite(log_probs: Floats) -> Booleans:
    """[B]: sentences with a candidate that is NaN or +inf, or a hypothesis without any that is possible.

    Minus infinity behind the first place is no fault: it is how a token is forbidden.
    """
    if np.isfinite(log_probs).all():
        return np.zeros(len(log_probs), np.bool_)
    not_a_score = ~(log_probs < np.inf)  # [B, K, C]
    is_impossible = np.isneginf(log_probs[:, :, 0])  # [B, K]
    return np.asarray(not_a_score.any(axis=(1, 2)) | is_impossible.any(axis=1))


def rank(scores: Floats, candidates: Candidates) -> Ranked:
    """The 2K best extensions of each sentence, by sum in float32; of equals the lower flat index [K * V] is first.

    Args:
        scores: [B, K] sums so far.
    """
    num_sentences, beam_size, width = candidates.tokens.shape
    with np.errstate(invalid="ignore"):  # -inf + inf, in a sentence that is failed anyway
        sums = scores[:, :, None] + candidates.log_probs  # [B, K, C]
    if beam_size == 1:  # greedy search: already in order, and adding the sum must not merge neighbours
        return Ranked(sums[:, 0], candidates.tokens[:, 0], np.zeros((num_sentences, width), np.int64))
    sums = sums.reshape(num_sentences, -1)  # [B, K * C]
    tokens = candidates.tokens.reshape(num_sentences, -1)
    parents = np.repeat(np.arange(beam_size), width)  # K = 2, C = 4: [0 0 0 0 1 1 1 1]
    order = np.lexsort((parents * _BEAM_STRIDE + tokens, -sums))[:, : num_candidates(beam_size)]
    sentences = np.arange(num_sentences)[:, None]
    return Ranked(sums[sentences, order], tokens[sentences, order], parents[order])


def find_ends(ranked: Ranked, is_last_step: Booleans) -> Booleans:
    """[B, K]: which of the first K extensions finish: end-of-sentence, and all of them at the last step."""
    beam_size = ranked.tokens.shape[1] // 2
    is_end_of_sentence: Booleans = ranked.tokens[:, :beam_size] == EOS_ID
    return is_end_of_sentence | is_last_step[:, None]


def choose_survivors(tokens: Ints, ends: Booleans) -> Ints:
    """[B, K]: the rank that each place of the beam goes on with.

    A place whose extension ended takes the best extension behind the first K that is not an end-of-sentence and not
    taken yet.  K = 2, tokens [7 EOS 8 9] -> [0 2].

    Args:
        tokens: [B, 2K], best first.
        ends: [B, K].
    """
    num_sentences, beam_size = ends.shape
    places = np.arange(beam_size)
    if not ends.any():
        return np.broadcast_to(places, ends.shape)
    # Ranks K .. 2K - 1 with the end-of-sentences moved behind: the substitutes in their order.
    substitutes = np.argsort(tokens[:, beam_size:] == EOS_ID, axis=1, kind="stable") + beam_size
    nth_end = np.maximum(ends.cumsum(axis=1) - 1, 0)
    return np.where(ends, substitutes[np.arange(num_sentences)[:, None], nth_end], places)


def normalize(score: np.float32, length: int, params: SearchParams) -> float:
    """The sum / length ** length_penalty in float32; `length` counts the end-of-sentence."""
    return float(score / np.float32(length) ** np.float32(params.length_penalty))
