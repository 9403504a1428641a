"""Heads are judged by links that co-occurrence shows, and those that agree with them are chosen."""

import numpy as np
import pytest

from export import heads
from export.heads import TokenPair, choose_heads, intersections, usual_heads
from model.config import ModelConfig
from model.transformer import Transformer
from tests.fakes.tiny_model import tiny_config, tiny_model

OFFSET = 20  # a word's translation has this much higher a number


def swapped(num_words: int) -> list[int]:
    """Words in pairs, each the other way round: 1, 0, 3, 2, 4."""
    return [
        index + (1 if index % 2 == 0 else -1) if index < num_words // 2 * 2 else index for index in range(num_words)
    ]


def swapped_pairs(number: int = 300, seed: int = 0) -> list[TokenPair]:
    """Sentences with translations in another order of words."""
    random = np.random.default_rng(seed)
    sources = [random.choice(range(10, 30), random.integers(3, 7), replace=False).tolist() for _ in range(number)]
    return [TokenPair(source, [source[index] + OFFSET for index in swapped(len(source))]) for source in sources]


def test_co_occurrence_finds_translations_in_any_order():
    pairs = swapped_pairs()

    links = intersections(pairs, range(20))

    for pair, found in zip(pairs, links, strict=False):
        assert found.tolist() == np.eye(len(pair.source), dtype=bool)[swapped(len(pair.source))].tolist()


@pytest.mark.parametrize("is_shifted", [False, True])
def test_the_head_that_aligns_is_chosen_alone_and_with_its_shift(monkeypatch, is_shifted):
    def weights(model: Transformer, pair: TokenPair) -> np.ndarray:
        S = len(pair.source) + 1
        found = np.random.default_rng(S).dirichlet(np.ones(S), (2, 4, S)).astype(np.float32)
        aligned = np.eye(S, dtype=np.float32)[[*swapped(S - 1), S - 1]]
        found[1, 2] = np.roll(aligned, 1, axis=0) if is_shifted else aligned
        return found

    monkeypatch.setattr(heads, "_weights", weights)

    found = choose_heads(tiny_model(tiny_config()), swapped_pairs())

    assert (found.heads, found.is_shifted, found.pairs) == (((1, 2),), is_shifted, 300)
    assert found.agreement == 1.0


@pytest.mark.parametrize(("num_layers", "layer"), [(1, 0), (2, 0), (6, 4)])
def test_where_nothing_was_measured_all_heads_of_the_layer_before_the_last_count(num_layers, layer):
    config = ModelConfig(vocab_size=60, num_decoder_layers=num_layers, num_heads=2, d_model=32)

    assert usual_heads(config).heads == ((layer, 0), (layer, 1))
