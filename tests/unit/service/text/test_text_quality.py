"""What the estimate of a translation's quality goes up and down with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.text.quality import estimate

SOURCE, TARGET = "The cats are sleeping in the garden.", "Die Katzen schlafen im Garten."


def estimated(
    source: str = SOURCE, target: str = TARGET, score: float = -0.4, tokens: tuple[int, int] = (9, 8)
) -> float:
    return estimate(source, target, score=score, source_tokens=tokens[0], target_tokens=tokens[1])


def test_what_the_model_is_surer_of_is_better():
    scores = [estimated(score=score) for score in (-4.0, -2.0, -1.0, -0.5, -0.2, 0.0)]

    assert scores == sorted(scores)
    assert scores[-1] > scores[0] + 0.5


def test_what_is_much_shorter_than_the_source_is_worse():
    assert estimated(SOURCE * 3, tokens=(9, 8)) < estimated(tokens=(9, 8))


def test_many_short_tokens_are_worse():
    assert estimated(tokens=(9, 16)) < estimated(tokens=(9, 8))


def test_a_translation_that_is_not_there_is_worth_nothing():
    assert estimated(target="", tokens=(9, 1)) == estimated(tokens=(9, 0)) == estimated("", tokens=(0, 8)) == 0


@pytest.mark.parametrize("score", [0.0, -0.5, -50.0])
@given(st.text(min_size=1), st.text(min_size=1), st.integers(1, 2_000), st.integers(1, 2_000))
def test_the_estimate_is_from_0_to_1(score, source, target, source_tokens, target_tokens):
    assert 0 <= estimated(source, target, score, (source_tokens, target_tokens)) <= 1
