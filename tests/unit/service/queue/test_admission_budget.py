"""The budget of tokens and characters: who still fits, who does not and why, and that all of it comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import Overloaded
from service.queue.admission import Admission, Permit
from tests.fakes.small_admission import LIMITS, admission, refusal

__all__ = ["admission"]


class TestTokens:
    def test_tokens_up_to_the_limit_fit(self, admission):
        admission.admit(1, now=0.0).take_tokens(60)
        admission.admit(1, now=0.0).take_tokens(40)

        assert admission.tokens == 100

    def test_one_token_too_many_is_refused_and_not_counted(self, admission):
        admission.admit(1, now=0.0).take_tokens(60)
        permit = admission.admit(1, now=0.0)

        with pytest.raises(Overloaded) as error:
            permit.take_tokens(41)

        message = "60 source tokens wait or run and the request has 41, at most 100 may"
        assert refusal(error) == (message, "token_budget", 2.5)
        assert admission.tokens == 60
        permit.release()
        assert admission.tokens == 60

    def test_request_larger_than_the_budget_runs_alone(self, admission):
        admission.admit(1, now=0.0).take_tokens(1_000)

        with pytest.raises(Overloaded):
            admission.admit(1, now=0.0).take_tokens(1)
        assert admission.tokens == 1_000

    def test_large_request_waits_for_a_single_token(self, admission):
        admission.admit(1, now=0.0).take_tokens(1)

        with pytest.raises(Overloaded):
            admission.admit(1, now=0.0).take_tokens(100)

    def test_permit_gives_back_all_that_it_took(self, admission):
        other = admission.admit(1, now=0.0)
        other.take_characters(9)
        other.take_tokens(3)
        permit = admission.admit(1, now=0.0)
        permit.take_characters(30)
        permit.take_tokens(10)
        permit.take_tokens(20)

        permit.release()

        assert (admission.requests, admission.characters, admission.tokens) == (1, 9, 3)

    def test_used_up_budget_is_refused_at_the_door(self, admission):
        admission.admit(1, now=0.0).take_tokens(100)

        with pytest.raises(Overloaded) as error:
            admission.admit(1, now=0.0)

        assert refusal(error) == ("100 source tokens wait or run, at most 100 may", "token_budget", 2.5)
        assert admission.requests == 1

    def test_released_permit_takes_nothing_more(self, admission):
        permit = admission.admit(1, now=0.0)
        permit.release()

        with pytest.raises(AssertionError, match=r"^the permit was released$"):
            permit.take_tokens(1)
        assert admission.tokens == 0


class TestCharacters:
    """Eight for each token of the budget: 800."""

    def test_characters_up_to_the_limit_fit(self, admission):
        admission.admit(1, now=0.0).take_characters(600)
        admission.admit(1, now=0.0).take_characters(200)

        assert admission.characters == 800

    def test_one_character_held_is_enough_to_refuse_a_request_over_the_limit(self, admission):
        admission.admit(1, now=0.0).take_characters(1)

        with pytest.raises(Overloaded):
            admission.admit(1, now=0.0).take_characters(800)

    def test_characters_taken_twice_are_given_back_together(self, admission):
        permit = admission.admit(1, now=0.0)
        permit.take_characters(30)
        permit.take_characters(12)

        permit.release()

        assert admission.characters == 0

    def test_one_character_too_many_is_refused_and_not_counted(self, admission):
        admission.admit(1, now=0.0).take_characters(600)
        permit = admission.admit(1, now=0.0)

        with pytest.raises(Overloaded) as error:
            permit.take_characters(201)

        message = (
            "600 characters, 0 source tokens wait or run and the request has 201 characters, "
            "at most 800 characters, 100 tokens may"
        )
        assert refusal(error) == (message, "token_budget", 2.5)
        permit.release()
        assert admission.characters == 600

    def test_text_whose_tokens_will_not_fit_is_refused_before_it_is_tokenised(self, admission):
        first = admission.admit(1, now=0.0)
        first.take_characters(300)
        first.take_tokens(90)  # most of the budget, from few characters

        with pytest.raises(Overloaded):
            admission.admit(1, now=0.0).take_characters(81)

    def test_request_larger_than_the_limit_runs_alone(self, admission):
        admission.admit(1, now=0.0).take_characters(10_000)

        assert admission.characters == 10_000

    def test_released_permit_takes_nothing_more(self, admission):
        permit = admission.admit(1, now=0.0)
        permit.release()

        with pytest.raises(AssertionError, match=r"^the permit was released$"):
            permit.take_characters(1)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=40))
def test_counts_equal_what_the_held_permits_took(actions):
    """Whatever comes and goes, the books equal the sum over the permits that are out."""
    admission = Admission(LIMITS)
    held: dict[Permit, int] = {}
    for is_arrival, amount in actions:
        if not is_arrival and held:
            permit = next(iter(held))
            permit.release()
            del held[permit]
            continue
        try:
            permit = admission.admit(1, now=0.0)
        except Overloaded:
            is_used_up = sum(held.values()) >= LIMITS.max_queued_tokens
            assert len(held) == LIMITS.max_concurrent_requests or is_used_up
            continue
        held[permit] = 0
        try:
            permit.take_tokens(amount)
            held[permit] = amount
        except Overloaded:
            assert sum(held.values()) + amount > LIMITS.max_queued_tokens

        assert (admission.requests, admission.tokens) == (len(held), sum(held.values()))
    for permit in held:
        permit.release()
    assert (admission.requests, admission.tokens) == (0, 0)
