"""The search the slow and obvious way: one sentence, Python lists, every candidate looked at."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from model.config import BOS_ID, EOS_ID
from service.engine.beam import Candidates, num_candidates
from service.engine.job import FinishReason, Hypothesis, SearchParams

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


def plain_search(script: Script, params: SearchParams) -> Found:
    """What beam search finds, best first, and in how many steps."""
    beam: list[tuple[np.float32, tuple[int, ...]]] = [(np.float32(0), ())]
    finished: list[Hypothesis] = []
    top_finished, num_steps, is_enough = False, 0, False
    while not is_enough:
        num_steps += 1
        is_last = num_steps == params.max_target_tokens
        candidates = _candidates(script, beam)[: 2 * params.beam_size]
        spare = [candidate for candidate in candidates[params.beam_size :] if candidate[1][-1] != EOS_ID]
        beam = []
        for place, (score, tokens) in enumerate(candidates[: params.beam_size]):
            if tokens[-1] != EOS_ID and not is_last:
                beam.append((score, tokens))
                continue
            finished.append(_hypothesis(score, tokens, params.length_penalty))
            top_finished = top_finished or place == 0
            if not is_last:
                beam.append(spare.pop(0))
        is_enough = is_last or _is_enough(len(finished), params, top_finished=top_finished)
    best_first = sorted(finished, key=lambda hypothesis: -hypothesis.score)
    return Found(tuple(best_first[: params.num_hypotheses]), num_steps)


def _candidates(
    script: Script, beam: list[tuple[np.float32, tuple[int, ...]]]
) -> list[tuple[np.float32, tuple[int, ...]]]:
    flat = [
        (score + log_prob, (*tokens, token))
        for score, tokens in beam
        for token, log_prob in enumerate(script((BOS_ID, *tokens)))
    ]
    return sorted(flat, key=lambda candidate: -candidate[0])  # stable: of equals the lower flat index


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


def best_extensions(log_probs: npt.NDArray[np.float32], scores: npt.NDArray[np.float32]) -> Candidates:
    """The 2K best of log-probabilities [B, K, V] plus scores [B, K]; of equals the lower hypothesis, then token."""
    num_sentences, beam_size, vocabulary = log_probs.shape
    with np.errstate(invalid="ignore"):  # plus and minus infinity make NaN, as they should
        sums = (scores[:, :, None] + log_probs).reshape(num_sentences, -1)  # [B, K * V]
        check = log_probs.max(axis=2).sum(axis=1)
    order = np.argsort(-sums, axis=1, kind="stable")[:, : num_candidates(beam_size)]
    parents, tokens = np.divmod(order, vocabulary)
    return Candidates(np.take_along_axis(sums, order, axis=1), tokens, parents, check)


VOCABULARY = 13


def one_sentence(ranked: Sequence[tuple[float, int, int]], check: float = 0.0) -> Candidates:
    """(score, token, parent) of a sentence's candidates, best first."""
    scores, tokens, parents = zip(*ranked, strict=True)
    return Candidates(
        np.array([scores], np.float32), np.array([tokens]), np.array([parents]), np.array([check], np.float32)
    )
