"""Sentences for which the model gave no numbers are found, and no other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import EOS_ID
from service.engine.beam import BeamSearch, Candidates, find_non_finite, has_non_finite
from service.engine.job import SearchParams
from tests.fakes.candidates import VOCABULARY
from tests.fakes.extensions import best_extensions


@pytest.mark.parametrize(
    ("check", "first", "is_fault"),
    [
        (0.0, -1.0, False),
        (-np.inf, -1.0, False),
        (0.0, np.inf, False),  # cannot be without an infinite check
        (np.nan, -1.0, True),
        (np.inf, -1.0, True),
        (0.0, -np.inf, True),
        (0.0, np.nan, True),
    ],
)
def test_a_sentence_is_non_finite_where_the_model_produced_nan_or_infinity_or_nothing_possible(check, first, is_fault):
    scores = np.full((3, 4), -1.0, np.float32)
    scores[1, 0] = first
    scores[2, 1:] = -np.inf  # forbidden tokens are no fault
    checks = np.array([0.0, check, -3.0], np.float32)
    candidates = Candidates(scores, np.full((3, 4), 5), np.zeros((3, 4), np.int64), checks)

    assert find_non_finite(candidates).tolist() == [False, is_fault, False]
    assert has_non_finite(candidates) is is_fault


@settings(max_examples=100)
@given(
    checks=st.lists(st.sampled_from([0.0, -5.0, -np.inf, np.inf, np.nan]), min_size=1, max_size=6),
    seed=st.integers(0, 10**6),
)
def test_the_quick_look_finds_a_fault_exactly_where_the_close_one_does(checks, seed):
    shape = (len(checks), 4)
    scores = np.random.default_rng(seed).choice([-1.0, -1.0, -np.inf, np.nan], size=shape).astype(np.float32)
    candidates = Candidates(scores, np.zeros(shape, int), np.zeros(shape, int), np.array(checks, np.float32))

    assert has_non_finite(candidates) == find_non_finite(candidates).any()


@pytest.mark.parametrize("max_target_tokens", [1, 5])
def test_non_finite_sentence_is_reported_and_its_neighbours_go_on(max_target_tokens):
    search = BeamSearch(2)
    for _ in range(3):
        search.add(SearchParams(beam_size=2, patience=0.5, max_target_tokens=max_target_tokens))
    log_probs = np.full((3, 2, VOCABULARY), -9.0, np.float32)
    log_probs[:, :, EOS_ID] = -1.0
    log_probs[1] = np.nan

    progress = search.advance(best_extensions(log_probs, search.scores))

    assert progress.finished == [0, 2]
    assert progress.non_finite == [1]
    assert search.hypotheses(1) == ()
    assert search.hypotheses(2)[0].token_ids == ()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_hypothesis_with_nan_makes_its_sentence_non_finite(bad):
    search = BeamSearch(2)
    for _ in range(2):
        search.add(SearchParams(beam_size=2))
    log_probs = np.full((2, 2, VOCABULARY), -3.0, np.float32)
    log_probs[1, 1] = bad  # a hypothesis that is not even born

    progress = search.advance(best_extensions(log_probs, search.scores))

    assert (progress.finished, progress.non_finite) == ([], [1])
