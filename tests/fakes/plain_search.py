"""The search the slow and obvious way: one sentence, Python lists, every candidate looked at."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from model.config import BOS_ID, EOS_ID
from model.spelling import ANYWHERE, WORD_START
from service.engine.beam_search import num_candidates
from service.engine.beams import Candidates
from service.engine.logits import Edits
from service.engine.wire import FinishReason, Hypothesis, SearchParams

Script = Callable[[tuple[int, ...]], np.ndarray]  # prefix with beginning-of-sentence -> log-probabilities [V]


def random_script(seed: int, *, with_ties: bool = False) -> Script:
    """Log-probabilities that depend on the whole prefix; quarters, which float32 adds exactly, if `with_ties`.

    Some scripts are unsure of every token, some are sure of most: then a worse hypothesis often ends first.
    """
    scale = 1.0 + seed % 5

    def script(prefix: tuple[int, ...]) -> np.ndarray:
        logits = np.random.default_rng([seed, *prefix]).normal(scale=scale, size=VOCABULARY)
        log_probs = logits - np.log(np.exp(logits).sum())
        return np.asarray(np.round(log_probs * 4) / 4 if with_ties else log_probs, np.float32)

    return script


def reluctant_script(seed: int, reluctance: float) -> Script:
    """Ends seldom, or never: then nothing but the last step makes the search look closely."""
    script = random_script(seed)

    def reluctant(prefix: tuple[int, ...]) -> np.ndarray:
        log_probs = script(prefix)
        log_probs[EOS_ID] -= np.float32(reluctance)
        return log_probs

    return reluctant


@dataclass(frozen=True)
class Found:
    hypotheses: tuple[Hypothesis, ...]
    num_steps: int


def plain_search(script: Script, params: SearchParams, prefix: tuple[int, ...] = ()) -> Found:
    """What beam search finds, best first, and in how many steps."""
    if not params.return_alternatives:
        return _search(script, params, prefix)
    one = params._replace(num_hypotheses=1, min_target_tokens=max(params.min_target_tokens, len(prefix) + 1))
    found = [_search(script, one, prefix, alternative) for alternative in range(params.num_hypotheses)]
    best_first = sorted((found.hypotheses[0] for found in found), key=lambda hypothesis: -hypothesis.score)
    return Found(tuple(best_first), max(found.num_steps for found in found))


def _search(script: Script, params: SearchParams, prefix: tuple[int, ...], alternative: int | None = None) -> Found:
    beam: list[tuple[np.float32, tuple[int, ...]]] = [(np.float32(0), prefix)]
    finished: list[Hypothesis] = []
    top_finished, num_steps, is_enough = False, len(prefix), False
    while not is_enough:
        num_steps += 1
        is_last = num_steps == params.max_target_tokens
        candidates = _candidates(script, beam, params)
        if params.sampling_top_k:
            candidates = [_drawn(candidates, beam[0][0], params, num_steps - 1)]
        if alternative is not None and num_steps == len(prefix) + 1:
            candidates = [candidates[alternative]]
        candidates = candidates[: 2 * params.beam_size]
        spare = [candidate for candidate in candidates[params.beam_size :] if candidate[1][-1] != EOS_ID]
        beam = []
        for place, (score, tokens) in enumerate(candidates[: params.beam_size]):
            if tokens[-1] != EOS_ID and not is_last:
                beam.append((score, tokens))
                continue
            finished.append(_hypothesis(score, tokens, params.length_penalty))
            top_finished = top_finished or place == 0
            if not is_last and spare:
                beam.append(spare.pop(0))
        is_enough = is_last or _is_enough(len(finished), params, top_finished=top_finished)
    best_first = sorted(finished, key=lambda hypothesis: -hypothesis.score)
    return Found(tuple(best_first[: params.num_hypotheses]), num_steps)


def _candidates(
    script: Script, beam: list[tuple[np.float32, tuple[int, ...]]], params: SearchParams
) -> list[tuple[np.float32, tuple[int, ...]]]:
    flat = [
        (score + log_prob, (*tokens, token))
        for score, tokens in beam
        for token, log_prob in enumerate(_next_log_probs(script, tokens, params))
    ]
    return sorted(flat, key=lambda candidate: -candidate[0])  # stable: of equals the lower flat index


def _next_log_probs(script: Script, tokens: tuple[int, ...], params: SearchParams) -> npt.NDArray[np.float32]:
    """What the model says of each token, and the options make of it; the script's numbers count as logits."""
    logits, penalty = script((BOS_ID, *tokens)).copy(), np.float32(params.repetition_penalty)
    repeated, banned = set(tokens) if penalty != 1.0 else set(), _banned(tokens, params)
    for token in repeated:
        logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    for token in banned:
        logits[token] = -np.inf
    return log_softmax(logits) if repeated or banned else logits


def _banned(tokens: tuple[int, ...], params: SearchParams) -> set[int]:
    banned = {EOS_ID} if len(tokens) < params.min_target_tokens else set()
    if size := params.no_repeat_ngram_size:
        for begin in range(len(tokens) - size + 1):
            if tokens[begin : begin + size - 1] == tokens[len(tokens) - size + 1 :]:
                banned.add(tokens[begin + size - 1])
    for begin in range(len(tokens) + 1) if params.suppressed else ():
        nodes = {ANYWHERE, WORD_START} if begin == 0 else {ANYWHERE}
        for token in tokens[begin:]:
            edges = {edge for node in nodes for edge in params.suppressed[node]}
            nodes = {behind for edge, behind in edges if edge == token and behind != ANYWHERE}
        banned |= {token for node in nodes for token, behind in params.suppressed[node] if behind == ANYWHERE}
    return banned


def _drawn(
    candidates: list[tuple[np.float32, tuple[int, ...]]], behind: np.float32, params: SearchParams, step: int
) -> tuple[np.float32, tuple[int, ...]]:
    """One candidate at random; `behind` is the sum of log-probabilities before this step."""
    kept = candidates[: params.sampling_top_k]
    weights = [math.exp((float(score) - float(kept[0][0])) / params.sampling_temperature) for score, _ in kept]
    while len(kept) > 1 and sum(weights[: len(kept) - 1]) >= params.sampling_top_p * sum(weights):
        kept.pop()
    generator = np.random.Generator(np.random.Philox(key=params.sampling_seed, counter=step))
    point = generator.random() * sum(weights[: len(kept)])
    for candidate, weight in zip(kept, weights, strict=False):
        point -= weight
        if point < 0:
            return candidate
    return kept[-1]


def log_softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), np.float32)


def edited(log_probs: npt.NDArray[np.float32], edits: Edits | None) -> npt.NDArray[np.float32]:
    """Log-probabilities [B, K, V] after edits of the logits, which are the log-probabilities before them."""
    if edits is None:
        return log_probs
    rows = log_probs.reshape(-1, log_probs.shape[2]).copy()
    for row, token, value, factor in zip(*edits, strict=True):
        scaled = rows[row, token] / factor if rows[row, token] > 0 else rows[row, token] * factor
        rows[row, token] = scaled + value
    for row in set(edits.rows.tolist()):
        rows[row] = log_softmax(rows[row])
    return rows.reshape(log_probs.shape)


def _hypothesis(score: np.float32, tokens: tuple[int, ...], length_penalty: float) -> Hypothesis:
    normalized = score / np.float32(len(tokens)) ** np.float32(length_penalty)
    if tokens[-1] == EOS_ID:
        return Hypothesis(token_ids=tokens[:-1], score=float(normalized), finish_reason=FinishReason.END_OF_SENTENCE)
    return Hypothesis(token_ids=tokens, score=float(normalized), finish_reason=FinishReason.LENGTH)


def _is_enough(num_finished: int, params: SearchParams, *, top_finished: bool) -> bool:
    if params.beam_size == 1:
        return num_finished == 1
    if params.length_penalty == 0:
        return top_finished and num_finished >= params.num_hypotheses
    return num_finished >= max(int(params.beam_size * params.patience + 0.5), params.num_hypotheses)


def plain_greedy(script: Script, params: SearchParams) -> tuple[int, ...]:
    """The likeliest token of each step, without the end of sentence."""
    tokens: tuple[int, ...] = ()
    while len(tokens) < params.max_target_tokens:
        token = int(np.argmax(script((BOS_ID, *tokens))))
        if token == EOS_ID:
            break
        tokens += (token,)
    return tokens


def best_extensions(
    log_probs: npt.NDArray[np.float32], scores: npt.NDArray[np.float32], count: int | None = None
) -> Candidates:
    """The 2K best of log-probabilities [B, K, V] plus scores [B, K]; of equals the lower hypothesis, then token.

    Args:
        count: how many, if not 2K.
    """
    num_sentences, beam_size, vocabulary = log_probs.shape
    with np.errstate(invalid="ignore"):  # plus and minus infinity make NaN, as they should
        sums = (scores[:, :, None] + log_probs).reshape(num_sentences, -1)  # [B, K * V]
        check = log_probs.max(axis=2).sum(axis=1)
    order = np.argsort(-sums, axis=1, kind="stable")[:, : count or num_candidates(beam_size)]
    parents, tokens = np.divmod(order, vocabulary)
    return Candidates(np.take_along_axis(sums, order, axis=1), tokens, parents, check)


VOCABULARY = 13


def one_sentence(ranked: Sequence[tuple[float, int, int]], check: float = 0.0) -> Candidates:
    """(score, token, parent) of a sentence's candidates, best first."""
    scores, tokens, parents = zip(*ranked, strict=True)
    return Candidates(
        np.array([scores], np.float32), np.array([tokens]), np.array([parents]), np.array([check], np.float32)
    )
