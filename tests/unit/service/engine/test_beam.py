"""How a step extends hypotheses and chooses those that go on, in worked examples."""

import numpy as np
import pytest

from model.config import BOS_ID, EOS_ID
from service.engine.beam import BeamSearch, Candidates, num_candidates
from service.engine.job import SearchParams
from tests.fakes.candidates import candidates_of, one_sentence
from tests.fakes.extensions import best_extensions


def test_search_looks_at_twice_the_beam():
    assert [num_candidates(beam_size) for beam_size in (1, 4, 5)] == [2, 8, 10]


def test_first_step_extends_only_one_of_the_equal_hypotheses():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2))
    row = {7: -0.5, 8: -1.0, 9: -2.0, 10: -3.0}

    progress = search.advance(candidates_of(search, row, row))

    assert search.tokens.tolist() == [[7, 8]]
    assert progress.parents.tolist() == [[0, 0]]
    assert (progress.finished, progress.non_finite) == ((), ())


def test_scores_of_a_beam_are_the_sums_and_only_the_first_hypothesis_is_born():
    search = BeamSearch(3)
    search.add(SearchParams(beam_size=3))
    assert search.scores.tolist() == [[0.0, -np.inf, -np.inf]]

    search.advance(one_sentence([(-0.5, 7, 0), (-1.0, 8, 0), (-1.5, 9, 0), (-2.0, 4, 0), (-3.0, 5, 0), (-4.0, 6, 0)]))

    assert search.scores.tolist() == [[-0.5, -1.0, -1.5]]
    assert search.scores.dtype == np.float32


def test_greedy_search_ranks_by_log_probability_alone_and_adds_the_sums_itself():
    """With a large sum added, the better token and its neighbour would round to the same number."""
    search = BeamSearch(1)
    search.add(SearchParams(beam_size=1, length_penalty=0.0))
    search.advance(one_sentence([(-1e8, 7, 0), (-2e8, 8, 0)]))
    assert search.scores.tolist() == [[0.0]]

    search.advance(best_extensions(np.array([[[-9.0, -9.0, -9.0, -9.0, -1.1, -1.0]]], np.float32), search.scores))
    assert (search.tokens.tolist(), search.scores.tolist()) == ([[5]], [[0.0]])
    search.advance(one_sentence([(-64.0, EOS_ID, 0), (-65.0, 8, 0)]))

    (hypothesis,) = search.hypotheses(0)
    assert hypothesis.token_ids == (7, 5)
    assert hypothesis.score == np.float32(np.float32(-1e8) + np.float32(-1.0)) + np.float32(-64.0)


@pytest.mark.parametrize(
    ("tokens", "survivors"),
    [
        ([7, 8, 9, 10], [0, 1]),
        ([7, EOS_ID, 8, 9], [0, 2]),
        ([EOS_ID, 7, 8, 9], [2, 1]),
        ([EOS_ID, 7, EOS_ID, 9], [3, 1]),
        ([EOS_ID, EOS_ID, 8, 9], [2, 3]),
        ([7, 8, EOS_ID, EOS_ID], [0, 1]),
        ([EOS_ID, 5, EOS_ID, EOS_ID, 6, 7], [4, 1, 5]),
        ([EOS_ID, 5, 6, 7, EOS_ID, 8], [3, 1, 2]),
        ([4, EOS_ID, EOS_ID, 7, EOS_ID, 8], [0, 3, 5]),
    ],
)
def test_an_ended_place_goes_on_with_the_best_unused_candidate_that_is_no_end(tokens, survivors):
    beam_size = len(tokens) // 2
    search = BeamSearch(beam_size)
    search.add(SearchParams(beam_size=beam_size, patience=9.0))
    parents = [(7 * rank + 1) % beam_size for rank in range(len(tokens))]
    ranked = [(-1.0 - rank, token, parent) for rank, (token, parent) in enumerate(zip(tokens, parents, strict=True))]

    progress = search.advance(one_sentence(ranked))

    assert not progress.finished
    assert progress.parents.tolist() == [[parents[rank] for rank in survivors]]
    assert search.tokens.tolist() == [[tokens[rank] for rank in survivors]]
    assert search.scores.tolist() == [[-1.0 - rank for rank in survivors]]


def test_survivors_are_chosen_for_each_sentence_alone():
    search = BeamSearch(2)
    for _ in range(3):
        search.add(SearchParams(beam_size=2, patience=9.0))
    tokens = np.array([[7, 8, 9, 10], [EOS_ID, 5, EOS_ID, 6], [4, EOS_ID, 9, 7]])
    parents = np.array([[0, 1, 0, 1], [1, 0, 0, 1], [0, 0, 1, 0]])
    scores = np.tile(np.array([-1.0, -2.0, -3.0, -4.0], np.float32), (3, 1))

    progress = search.advance(Candidates(scores, tokens, parents, np.zeros(3, np.float32)))

    assert search.tokens.tolist() == [[7, 8], [6, 5], [4, 9]]
    assert progress.parents.tolist() == [[0, 1], [1, 0], [0, 1]]
    assert search.scores.tolist() == [[-1.0, -2.0], [-4.0, -2.0], [-1.0, -3.0]]


def test_a_hypothesis_is_the_walk_back_along_its_own_parents_whatever_became_of_the_beam_since():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2, num_hypotheses=2, length_penalty=0.0, patience=1.0))
    search.advance(one_sentence([(-1.0, 4, 0), (-1.0, 5, 0), (-9.0, 6, 0), (-9.0, 7, 0)]))
    search.advance(one_sentence([(-2.0, 8, 1), (-2.0, 9, 0), (-9.0, 6, 0), (-9.0, 7, 0)]))  # 5 8 | 4 9
    search.advance(one_sentence([(-3.0, 10, 1), (-3.5, EOS_ID, 1), (-4.0, 11, 0), (-9.0, 7, 0)]))  # 4 9 10 | 5 8 11
    progress = search.advance(one_sentence([(-5.0, EOS_ID, 1), (-6.0, 4, 1), (-7.0, 5, 1), (-8.0, 6, 1)]))

    assert progress.finished == [0]
    assert [hypothesis.token_ids for hypothesis in search.hypotheses(0)] == [(4, 9), (5, 8, 11)]


def test_removing_a_sentence_gives_its_number_to_the_last_with_all_it_has():
    search = BeamSearch(2)
    for limit in (9, 8, 3):
        search.add(SearchParams(beam_size=2, max_target_tokens=limit, length_penalty=0.0))
    tokens = np.array([[4, 5, 6, 7], [5, 6, 7, 8], [6, 7, 8, 9]])
    scores, parents = np.tile(np.array([-1, -2, -3, -4], np.float32), (3, 1)), np.zeros((3, 4), np.int64)
    scores[2] -= 1
    search.advance(Candidates(scores, tokens, parents, np.zeros(3, np.float32)))

    search.remove(0)

    assert search.num_sentences == 2
    assert search.tokens.tolist() == [[6, 7], [5, 6]]
    assert search.scores.tolist() == [[-2.0, -3.0], [-1.0, -2.0]]
    rest = Candidates(scores[:2] - 9, tokens[:2], parents[:2], np.zeros(2, np.float32))
    assert search.advance(rest).finished == ()
    assert search.advance(rest).finished == [0]  # the one with a limit of three steps
    assert search.hypotheses(0)[0].token_ids == (6, 4, 4)


def test_new_sentence_starts_from_beginning_of_sentence_also_in_a_used_place():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2))
    row = {7: -0.5, 8: -1.0, 9: -2.0, 10: -3.0}
    search.advance(candidates_of(search, row, row))
    search.remove(0)

    search.add(SearchParams(beam_size=2))

    assert search.num_sentences == 1
    assert search.num_steps(0) == 0
    assert search.tokens.tolist() == [[BOS_ID, BOS_ID]]
    search.advance(candidates_of(search, row, row))
    assert search.tokens.tolist() == [[7, 8]]


def test_the_sentence_that_stays_is_extended_while_its_neighbour_ends():
    search = BeamSearch(2)
    for limit in (1, 3):
        search.add(SearchParams(beam_size=2, max_target_tokens=limit))
    tokens = np.array([[7, 8, 9, 10], [4, EOS_ID, 6, 5]])
    scores = np.tile(np.array([-1, -2, -3, -4], np.float32), (2, 1))

    progress = search.advance(Candidates(scores, tokens, np.zeros((2, 4), np.int64), np.zeros(2, np.float32)))
    search.remove(0)

    assert progress.finished == [0]
    assert search.tokens.tolist() == [[4, 6]]
    assert search.scores.tolist() == [[-1.0, -3.0]]
