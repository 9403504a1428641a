"""The reference search on a model whose next-token probabilities are scripted."""

import math

import pytest
import torch
from torch import Tensor

from model.config import BOS_ID, EOS_ID
from model.search import BeamConfig, beam_search

A, B, C = 4, 5, 6


class ScriptedModel:
    """Stands in for a Transformer: the "states" are the tokens so far, the "projection" looks the next row up."""

    def __init__(self, script: dict[tuple[int, ...], dict[int, float]]) -> None:
        self.script = script
        self.num_steps = 0

    def encode(self, source: Tensor, lengths: Tensor) -> Tensor:
        return torch.zeros(source.size(0), source.size(1), 1)

    def decode(self, tokens: Tensor, memory: Tensor, lengths: Tensor) -> Tensor:
        return tokens.unsqueeze(1)  # [B, 1, T]: the search takes [:, -1]

    def project(self, tokens: Tensor) -> Tensor:
        self.num_steps += 1
        rows = []
        for row in tokens.tolist():
            chances = self.script.get(tuple(token for token in row if token != BOS_ID), {EOS_ID: 1.0})
            rows.append([math.log(chances.get(token, 1e-9)) for token in range(12)])
        return torch.tensor(rows)


GARDEN_PATH = ScriptedModel(
    {
        (): {A: 0.6, B: 0.4},
        (A,): {C: 0.51, EOS_ID: 0.49},
        (A, C): {EOS_ID: 1.0},
        (B,): {C: 1.0},
        (B, C): {EOS_ID: 1.0},
    }
)


def test_beam_finds_the_likelier_whole():
    best = beam_search(GARDEN_PATH, [A, EOS_ID], BeamConfig(beam_size=2))[0]

    assert best.tokens == [B, C]
    assert best.score == pytest.approx(math.log(0.4) / 3, abs=1e-5)


def test_patience_waits_for_more_hypotheses():
    patient = beam_search(GARDEN_PATH, [A, EOS_ID], BeamConfig(beam_size=2, patience=1.5))
    hasty = beam_search(GARDEN_PATH, [A, EOS_ID], BeamConfig(beam_size=2, patience=0.5))

    assert [hypothesis.tokens for hypothesis in hasty] == [[B, C], [A, C]]  # both end at the same step
    assert [hypothesis.tokens for hypothesis in patient[:2]] == [[B, C], [A, C]]
    assert len(patient) > 2
