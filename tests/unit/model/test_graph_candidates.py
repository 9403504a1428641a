"""A step gives the best extensions of each sentence, and tells whose numbers are none.

It ranks in two stages: blocks by their maxima, then what is in the best of them.
Axes: B sentences, K hypotheses of a sentence, V vocabulary.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import BOS_ID
from tests.fakes.graph_inputs import driver, graphs_of, memory_of, random_targets
from tests.fakes.step_driver import Edit, full_log_probs
from tests.fakes.tiny_model import random_sentences


@pytest.mark.parametrize("vocab_size", [60, 61, 64, 128, 192], ids=lambda size: f"V={size}")  # blocks of 4, 1, 64
@pytest.mark.parametrize("beam", [1, 3, 8])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_candidates_are_those_that_sorting_all_extensions_finds(vocab_size: int, beam: int, seed: int) -> None:
    """Also where the best lie together in one block, all with one hypothesis, and with hypotheses not yet born."""
    graphs, rng = graphs_of("fp32", vocab_size=vocab_size), np.random.default_rng(seed)
    memory, tokens = (
        memory_of(graphs, random_sentences(graphs.config, lengths=(6, 3))),
        random_targets(graphs, 2, beam, 1),
    )
    scores = rng.normal(scale=rng.choice([0.01, 1.0, 30.0]), size=(2, beam)).astype(np.float32)
    scores[1, 1:] = -np.inf
    first = int(rng.integers(vocab_size))
    edits: dict[Edit, float] = {
        (sentence, int(rng.integers(beam)), token): float(rng.normal(3.0, 3.0))
        for sentence in range(2)
        for token in range(first, min(first + 2 * beam, vocab_size))
    }
    everything = full_log_probs(driver(graphs, 2, beam).step(tokens[0], memory, edits=edits), beam)
    extensions = (everything + scores[:, :, None]).reshape(2, -1)  # [B, K * V]
    for count in (1, 2 * beam):
        best = driver(graphs, 2, beam).step(tokens[0], memory, scores=scores, candidates=count, edits=edits)
        for sums, found, ids in zip(extensions, best["candidate_scores"], best["candidate_ids"], strict=True):
            np.testing.assert_array_equal(found, -np.sort(-sums)[:count])
            np.testing.assert_array_equal(sums[ids], found)
            assert len(set(ids.tolist())) == count


@pytest.mark.parametrize("vocab_size", [61, 64])
def test_equal_extensions_are_told_apart_and_none_is_given_twice(vocab_size: int) -> None:
    """Hypotheses with the same past have the same log-probabilities."""
    graphs, beam = graphs_of("fp32", vocab_size=vocab_size), 4
    memory = memory_of(graphs, random_sentences(graphs.config, lengths=(6,)))
    tokens = np.full((1, beam), BOS_ID)
    everything = full_log_probs(driver(graphs, 1, beam).step(tokens, memory), beam)
    best = driver(graphs, 1, beam).step(tokens, memory, candidates=2 * beam)

    (ids,), (sums,) = best["candidate_ids"], best["candidate_scores"]
    np.testing.assert_array_equal(sums, -np.sort(-everything.ravel())[: 2 * beam])
    np.testing.assert_array_equal(everything.ravel()[ids], sums)
    assert len(set(ids.tolist())) == 2 * beam
    assert sorted((ids // vocab_size).tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("vocab_size", [60, 61, 64])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("token", [0, 7, 59])
@pytest.mark.parametrize("is_born", [True, False])
def test_nan_or_infinity_in_one_hypothesis_shows_in_the_check_of_its_sentence_alone(
    vocab_size: int, bad: float, token: int, *, is_born: bool
) -> None:
    graphs, beam = graphs_of("fp32", vocab_size=vocab_size), 3
    memory = memory_of(graphs, random_sentences(graphs.config, lengths=(6, 3, 4)))
    tokens = random_targets(graphs, 3, beam, 1)[0]
    scores = np.zeros((3, beam), np.float32)
    scores[1, 2] = 0.0 if is_born else -np.inf
    plain = driver(graphs, 3, beam).step(tokens, memory, scores=scores, candidates=6)
    faulty = driver(graphs, 3, beam).step(tokens, memory, scores=scores, candidates=6, edits={(1, 2, token): bad})

    assert (plain["check"] < 0).all()
    assert (faulty["check"] < np.inf).tolist() == [True, False, True]
    for name in plain:
        np.testing.assert_array_equal(faulty[name][[0, 2]], plain[name][[0, 2]])
    assert set(faulty["candidate_ids"].ravel().tolist()) <= set(range(beam * vocab_size))


@pytest.mark.parametrize("where", ["cross_key_0", "cross_value_1"])
def test_nan_in_the_memory_of_one_sentence_shows_in_its_check_alone(where: str) -> None:
    graphs, beam = graphs_of("fp32"), 2
    memory = memory_of(graphs, random_sentences(graphs.config, lengths=(6, 3, 4)))
    memory[where] = memory[where].copy()
    memory[where][1, 0, 0] = np.nan
    found = driver(graphs, 3, beam).step(random_targets(graphs, 3, beam, 1)[0], memory, candidates=4)

    assert (found["check"] < np.inf).tolist() == [True, False, True]


def test_forbidden_tokens_are_no_fault() -> None:
    graphs = graphs_of("fp32", vocab_size=64)
    memory = memory_of(graphs, random_sentences(graphs.config, lengths=(6,)))
    edits = {(0, 0, token): -np.inf for token in range(64) if token not in (5, 9, 11)}
    found = driver(graphs, 1, 1).step(np.array([[BOS_ID]]), memory, candidates=2, edits=edits)

    assert (found["check"] < np.inf).all()
    assert set(found["candidate_ids"][0].tolist()) <= {5, 9, 11}
