"""When a sentence has hypotheses enough, and what they score, in worked examples."""

from dataclasses import replace

import pytest

from model.config import EOS_ID
from service.engine.beam import BeamSearch, normalize, num_wanted, stops_at_top
from service.engine.job import FinishReason, Hypothesis, SearchParams
from tests.fakes.candidates import candidates_of, one_sentence


def test_an_end_behind_the_first_k_finishes_nothing():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2, patience=0.5))

    progress = search.advance(one_sentence([(-1.0, 7, 0), (-2.0, 8, 0), (-3.0, EOS_ID, 0), (-4.0, 9, 0)]))

    assert not progress.finished
    assert search.hypotheses(0) == ()


def test_at_the_last_step_the_first_k_finish_as_they_stand():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2, num_hypotheses=2, max_target_tokens=2, length_penalty=0.0, patience=3.0))
    search.advance(one_sentence([(-1.0, 7, 0), (-2.0, 8, 0), (-3.0, 9, 0), (-4.0, 4, 0)]))

    progress = search.advance(one_sentence([(-2.0, 5, 1), (-3.0, EOS_ID, 0), (-4.0, EOS_ID, 1), (-5.0, 6, 0)]))

    assert progress.finished == [0]
    assert search.num_steps(0) == 2
    assert search.hypotheses(0) == (
        Hypothesis(token_ids=(8, 5), score=-2.0, finish_reason=FinishReason.LENGTH),
        Hypothesis(token_ids=(7,), score=-3.0, finish_reason=FinishReason.END_OF_SENTENCE),
    )


@pytest.mark.parametrize(
    ("beam_size", "patience", "num_hypotheses", "wanted"),
    [
        (4, 1.0, 1, 4),
        (4, 2.0, 1, 8),
        (4, 0.5, 1, 2),
        (4, 0.5, 3, 3),
        (4, 0.1, 1, 1),  # rounds to none, but one is asked for
        (5, 0.5, 1, 3),  # 2.5: half away from zero
        (3, 0.8, 1, 2),  # 2.4
        (3, 0.9, 1, 3),  # 2.7
        (1, 4.0, 1, 1),  # greedy
        (2, 1.0, 1, 2),
    ],
)
def test_number_of_finished_hypotheses_that_end_a_sentence(beam_size, patience, num_hypotheses, wanted):
    params = SearchParams(beam_size=beam_size, patience=patience, num_hypotheses=num_hypotheses)

    assert num_wanted(params) == wanted


def test_without_length_penalty_a_sentence_stops_at_its_top_hypothesis():
    params = SearchParams(beam_size=4, length_penalty=0.0, num_hypotheses=2, patience=2.0)

    assert stops_at_top(params)
    assert num_wanted(params) == 2
    assert not stops_at_top(replace(params, length_penalty=0.1))
    assert not stops_at_top(replace(params, beam_size=1))
    assert stops_at_top(replace(params, beam_size=2))


def test_without_length_penalty_a_hypothesis_that_ends_in_second_place_does_not_end_the_sentence():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2, length_penalty=0.0))
    second = {7: -0.5, EOS_ID: -1.0, 8: -2.0, 9: -3.0}
    first = {EOS_ID: -0.1, 7: -4.0, 8: -5.0, 9: -6.0}

    progress = search.advance(candidates_of(search, second, second))
    assert not progress.finished
    progress = search.advance(candidates_of(search, first, first))

    assert progress.finished == [0]
    assert [hypothesis.token_ids for hypothesis in search.hypotheses(0)] == [(7,)]


def test_without_length_penalty_a_sentence_goes_on_until_it_has_as_many_hypotheses_as_asked_for():
    search = BeamSearch(2)
    search.add(SearchParams(beam_size=2, length_penalty=0.0, num_hypotheses=2))
    first = {EOS_ID: -0.1, 7: -1.0, 8: -1.5, 9: -6.0}
    second = {7: -0.1, EOS_ID: -1.0, 8: -6.0, 9: -7.0}

    progress = search.advance(candidates_of(search, first, first))
    assert not progress.finished
    progress = search.advance(candidates_of(search, second, {4: -9.0, 5: -9.5, 6: -10.0, 8: -11.0}))

    assert progress.finished == [0]
    assert [hypothesis.token_ids for hypothesis in search.hypotheses(0)] == [(), (8,)]


def test_score_is_divided_by_the_length_to_the_power_of_the_penalty():
    def score(length_penalty: float) -> float:
        return normalize(-6.0, 4, SearchParams(length_penalty=length_penalty))

    assert score(1.0) == -1.5
    assert score(0.0) == -6.0
    assert score(0.5) == -3.0
    assert score(2.0) == -0.375


@pytest.mark.parametrize("beam_size", [1, 2])
def test_length_of_the_score_counts_the_end_of_sentence(beam_size):
    search = BeamSearch(beam_size)
    search.add(SearchParams(beam_size=beam_size, length_penalty=1.0, patience=0.5))
    search.advance(candidates_of(search, *[{7: -1.0, 8: -2.0}] * beam_size))

    progress = search.advance(candidates_of(search, *[{EOS_ID: -1.0, 8: -2.0}] * beam_size))

    assert progress.finished == [0]
    assert search.hypotheses(0) == (Hypothesis(token_ids=(7,), score=-1.0, finish_reason=FinishReason.END_OF_SENTENCE),)


def test_hypotheses_come_best_first_and_no_more_than_asked_for():
    search = BeamSearch(3)
    search.add(SearchParams(beam_size=3, num_hypotheses=2, max_target_tokens=1))
    row = {9: -0.5, EOS_ID: -1.0, 5: -2.0, 6: -3.0, 7: -4.0, 8: -5.0}

    search.advance(candidates_of(search, row, row, row))

    assert search.hypotheses(0) == (
        Hypothesis(token_ids=(9,), score=-0.5, finish_reason=FinishReason.LENGTH),
        Hypothesis(token_ids=(), score=-1.0, finish_reason=FinishReason.END_OF_SENTENCE),
    )
