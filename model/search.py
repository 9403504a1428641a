"""Slow, obvious search: the reference that tests compare the service's fast search with.

It runs the whole decoder again at each step, one sentence at a time, in plain lists.  A step considers 2 x beam
candidates ranked by summed log-probability.  An end-of-sentence among the first `beam` finishes a hypothesis; the other
candidates refill the beam.  When the search ends is the model's `StopRule`; at the last step, the best `beam`
candidates finish as they stand.  A finished score is sum / length ** length_penalty, length with EOS.  The engine's
num_hypotheses, which can make a search wait for more, is always 1 here.

The rules are those of CTranslate2 4.8, of `_beam_search` in transformers 5.23 (generation/utils.py), and of Marian
(src/translator/beam_search.cpp and history.h of marian-dev, one sentence in a batch).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from model.config import USUAL_PROFILE, DecodingProfile, StopRule


class TranslationModel(Protocol):
    """Methods of a model that search calls; `Transformer` has them, and so do scripted models of tests."""

    def encode(self, source: Tensor, source_lengths: Tensor, /) -> Tensor:
        """[B, S] -> memory [B, S, D]."""

    def decode(self, target_inputs: Tensor, memory: Tensor, source_lengths: Tensor, /) -> Tensor:
        """[B, T] -> states [B, T, D]."""

    def project(self, states: Tensor, /) -> Tensor:
        """[..., D] -> logits [..., V]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamConfig:
    """Parameters of one search."""

    beam_size: int = 4
    length_penalty: float = 1.0
    patience: float = 1.0
    max_target_tokens: int = 256  # decoder steps
    prefix: tuple[int, ...] = ()  # what every hypothesis begins with; its log-probabilities count as 0
    repetition_penalty: float = 1.0  # Keskar et al. 2019, section 4.1
    no_repeat_ngram_size: int = 0
    min_target_tokens: int = 0
    suppressed: tuple[tuple[int, ...], ...] = ()  # sequences of tokens that no hypothesis contains
    never_written: tuple[int, ...] = ()  # tokens whose share of the probabilities nobody gets
    profile: DecodingProfile = USUAL_PROFILE

    @property
    def stop_rule(self) -> StopRule:
        """The model's rule; greedy search knows one only."""
        return self.profile.stop_rule if self.beam_size > 1 else StopRule.CTRANSLATE2


class Finished(NamedTuple):
    """A finished hypothesis."""

    tokens: list[int]  # without begin and end of sentence
    score: float


class _LiveHypothesis(NamedTuple):
    tokens: list[int]
    log_prob: float


@torch.inference_mode()
def beam_search(model: TranslationModel, source: Sequence[int], config: BeamConfig) -> list[Finished]:
    """Return the finished hypotheses of one source sentence, best first."""
    lengths = torch.tensor([len(source)])
    memory = model.encode(torch.tensor([list(source)]), lengths)
    live, finished, top_has_ended = [_LiveHypothesis(list(config.prefix), 0.0)], list[Finished](), False
    for step in range(len(config.prefix) + 1, config.max_target_tokens + 1):
        is_last = step == config.max_target_tokens
        if is_last and config.profile.forced_end:
            candidates = [_LiveHypothesis([*tokens, config.profile.end], log_prob) for tokens, log_prob in live]
        else:
            log_probs = _next_log_probs(model, memory, lengths, live, config)
            candidates = _best_candidates(live, log_probs, 2 * config.beam_size)
        if config.stop_rule is StopRule.MARIAN:
            candidates = candidates[: config.beam_size - len(finished)]
        ended = [
            hypothesis for hypothesis in candidates[: config.beam_size] if is_last or _has_ended(hypothesis, config)
        ]
        finished += [_finish(hypothesis, step, config) for hypothesis in ended]
        top_has_ended = top_has_ended or _has_ended(candidates[0], config)
        live = [hypothesis for hypothesis in candidates if not _has_ended(hypothesis, config)][: config.beam_size]
        if _is_enough(finished, live, step, config, top_has_ended=top_has_ended):
            break
    return sorted(finished, key=lambda hypothesis: -hypothesis.score)


def num_wanted(config: BeamConfig) -> int:
    """Return how many finished hypotheses end a search: round(beam_size * patience), half up, at least one.

    The product is a float32, as in the engine: 3 * 0.8333333 is 2.5 and rounds to 3.  Greedy search ignores patience.
    """
    if config.beam_size == 1:
        return 1
    product = np.float32(config.beam_size) * np.float32(config.patience)
    return max(1, math.floor(float(product) + 0.5))


def _is_enough(
    finished: Sequence[Finished], live: Sequence[_LiveHypothesis], step: int, config: BeamConfig, *, top_has_ended: bool
) -> bool:
    """Return whether the stop rule holds.

    With CTranslate2's, a search for the likeliest sum (length_penalty 0) ignores patience: nothing can overtake a sum
    that ended in first place.
    """
    if config.stop_rule is StopRule.MARIAN:
        return not live
    if config.stop_rule is StopRule.HF:
        scores = sorted((hypothesis.score for hypothesis in finished), reverse=True)
        best_running = max((hypothesis.log_prob for hypothesis in live), default=-math.inf)
        wanted = num_wanted(config)
        return len(scores) >= wanted and best_running / step**config.length_penalty <= scores[wanted - 1]
    if config.length_penalty == 0 and config.beam_size > 1:
        return top_has_ended
    return len(finished) >= num_wanted(config)


def _has_ended(hypothesis: _LiveHypothesis, config: BeamConfig) -> bool:
    return hypothesis.tokens[-1] == config.profile.end


def _next_log_probs(
    model: TranslationModel, memory: Tensor, lengths: Tensor, live: Sequence[_LiveHypothesis], config: BeamConfig
) -> Tensor:
    inputs = torch.tensor([[config.profile.start, *hypothesis.tokens] for hypothesis in live])  # [K, T]
    states = model.decode(inputs, memory.expand(len(live), -1, -1), lengths.expand(len(live)))
    logits = model.project(states[:, -1])
    for row, hypothesis in zip(logits, live, strict=True):
        for token in set(hypothesis.tokens):
            row[token] *= 1 / config.repetition_penalty if row[token] > 0 else config.repetition_penalty
        row[_banned_tokens(hypothesis.tokens, config)] = -math.inf
    log_probs = logits.log_softmax(dim=-1)
    log_probs[:, list(config.never_written)] = -math.inf
    return log_probs


def _banned_tokens(tokens: Sequence[int], config: BeamConfig) -> list[int]:
    """Return the tokens that a hypothesis must not go on with."""
    banned = [config.profile.end] if len(tokens) < config.min_target_tokens else []
    banned += [phrase[-1] for phrase in config.suppressed if _ends_with(tokens, phrase[:-1])]
    if size := config.no_repeat_ngram_size:
        newest = tokens[len(tokens) - size + 1 :]
        banned += [tokens[end] for end in range(size - 1, len(tokens)) if _ends_with(tokens[:end], newest)]
    return banned


def _ends_with(tokens: Sequence[int], end: Sequence[int]) -> bool:
    return len(tokens) >= len(end) and list(tokens[len(tokens) - len(end) :]) == list(end)


def _best_candidates(live: Sequence[_LiveHypothesis], log_probs: Tensor, count: int) -> list[_LiveHypothesis]:
    totals = torch.tensor([hypothesis.log_prob for hypothesis in live]).unsqueeze(1) + log_probs  # [K, V]
    best = totals.flatten().topk(count)
    return [
        _LiveHypothesis([*live[index // log_probs.size(1)].tokens, index % log_probs.size(1)], value)
        for value, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]


def _finish(hypothesis: _LiveHypothesis, num_steps: int, config: BeamConfig) -> Finished:
    tokens = hypothesis.tokens[:-1] if _has_ended(hypothesis, config) else hypothesis.tokens
    return Finished(tokens, hypothesis.log_prob / num_steps**config.length_penalty)


@torch.inference_mode()
def score(
    model: TranslationModel,
    source: Sequence[int],
    target: Sequence[int],
    length_penalty: float = 1.0,
    profile: DecodingProfile = USUAL_PROFILE,
) -> float:
    """Return the normalised log-probability of a target without end-of-sentence, by one teacher-forced pass."""
    lengths = torch.tensor([len(source)])
    memory = model.encode(torch.tensor([list(source)]), lengths)
    logits = model.project(model.decode(torch.tensor([[profile.start, *target]]), memory, lengths))
    outputs = torch.tensor([*target, profile.end])
    log_probs = logits[0].log_softmax(dim=-1).gather(-1, outputs.unsqueeze(-1))
    total = float(log_probs.sum())
    return total / float(len(outputs) ** length_penalty)


@torch.inference_mode()
def greedy_search(
    model: TranslationModel,
    source: Tensor,
    source_lengths: Tensor,
    max_target_tokens: int,
    profile: DecodingProfile = USUAL_PROFILE,
) -> list[list[int]]:
    """Return greedy translations of a padded batch [B, S], as tokens without end-of-sentence."""
    memory = model.encode(source, source_lengths)
    tokens = torch.full((source.size(0), 1), profile.start, device=source.device)  # [B, 1 + T]
    is_done = torch.zeros(source.size(0), dtype=torch.bool, device=source.device)
    for _ in range(max_target_tokens):
        logits = model.project(model.decode(tokens, memory, source_lengths)[:, -1])
        chosen = logits.argmax(dim=-1).masked_fill(is_done, profile.end)
        tokens = torch.cat([tokens, chosen.unsqueeze(1)], dim=1)
        is_done |= chosen == profile.end
        if is_done.all():
            break
    return [row[: row.index(profile.end)] if profile.end in row else row for row in tokens[:, 1:].tolist()]
