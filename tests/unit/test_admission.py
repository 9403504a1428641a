"""Admission: who gets in, who does not and why, and that every count comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.config import LimitsConfig
from service.engine.job import SearchParams
from service.errors import DeadlineExceeded, InvalidInput, Overloaded, Unavailable
from service.traffic.admission import Admission, Permit

LIMITS = LimitsConfig(
    max_texts=3,
    max_beam_size=8,
    max_concurrent_requests=2,
    max_queued_tokens=100,
    retry_after_s=2.5,
)


@pytest.fixture
def admission() -> Admission:
    return Admission(LIMITS)


def refusal(error: pytest.ExceptionInfo[Overloaded]) -> tuple[str, str, float]:
    return str(error.value), error.value.reason, error.value.retry_after_s


class TestDoor:
    def test_new_admission_holds_nothing(self, admission):
        assert (admission.requests, admission.tokens) == (0, 0)

    def test_closed_door_refuses_with_its_reason(self, admission):
        admission.close("the server is draining")

        with pytest.raises(Unavailable, match=r"^the server is draining$") as error:
            admission.admit(1, now=0.0)
        assert error.value.reason == "draining"
        assert admission.requests == 0

    def test_closed_door_is_seen_before_a_bad_request(self, admission):
        admission.close("draining")

        with pytest.raises(Unavailable):
            admission.admit(0, now=0.0)

    def test_reopened_door_admits(self, admission):
        admission.close("starting")
        admission.open()

        admission.admit(1, now=0.0)

        assert admission.requests == 1

    def test_closing_keeps_who_is_inside(self, admission):
        permit = admission.admit(1, now=0.0)
        admission.close("draining")

        permit.take_tokens(5)

        assert (admission.requests, admission.tokens) == (1, 5)


class TestNumberOfTexts:
    @pytest.mark.parametrize("num_texts", [1, 3])
    def test_numbers_from_one_to_the_limit_get_in(self, admission, num_texts):
        admission.admit(num_texts, now=0.0)

        assert admission.requests == 1

    @pytest.mark.parametrize(
        ("num_texts", "message"),
        [
            (0, "texts has 0 entries, from 1 to 3 are accepted"),
            (4, "texts has 4 entries, from 1 to 3 are accepted"),
        ],
    )
    def test_other_numbers_are_named_with_the_limit(self, admission, num_texts, message):
        with pytest.raises(InvalidInput) as error:
            admission.admit(num_texts, now=0.0)

        assert (str(error.value), error.value.field) == (message, "texts")
        assert admission.requests == 0


class TestDeadline:
    @pytest.mark.parametrize("deadline", [None, 10.001])
    def test_request_with_time_left_gets_in(self, admission, deadline):
        admission.admit(1, now=10.0, deadline=deadline)

        assert admission.requests == 1

    @pytest.mark.parametrize("deadline", [10.0, 9.0, 0.0])
    def test_late_request_is_refused(self, admission, deadline):
        with pytest.raises(DeadlineExceeded, match=r"^the deadline had passed when the request arrived$"):
            admission.admit(1, now=10.0, deadline=deadline)
        assert admission.requests == 0


class TestConcurrentRequests:
    def test_one_more_than_the_limit_is_refused(self, admission):
        admission.admit(1, now=0.0)
        admission.admit(1, now=0.0)

        with pytest.raises(Overloaded) as error:
            admission.admit(1, now=0.0)

        assert refusal(error) == ("2 requests are being served, at most 2 are", "queue_full", 2.5)
        assert admission.requests == 2

    def test_released_place_is_free_again(self, admission):
        admission.admit(1, now=0.0)
        admission.admit(1, now=0.0).release()

        admission.admit(1, now=0.0)

        assert admission.requests == 2

    def test_releasing_twice_counts_once(self, admission):
        permit = admission.admit(1, now=0.0)
        admission.admit(1, now=0.0)
        permit.take_tokens(7)

        permit.release()
        permit.release()

        assert (admission.requests, admission.tokens) == (1, 0)

    def test_permit_is_released_when_its_block_fails(self, admission):
        def fail() -> None:
            with admission.admit(1, now=0.0) as permit:
                permit.take_tokens(5)
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail()
        assert (admission.requests, admission.tokens) == (0, 0)

    def test_block_gets_the_permit_and_holds_it_until_the_end(self, admission):
        with admission.admit(1, now=0.0) as permit:
            permit.take_tokens(5)
            inside = (admission.requests, admission.tokens)

        assert inside == (1, 5)
        assert (admission.requests, admission.tokens) == (0, 0)


class TestEmptiness:
    def test_last_permit_s_return_is_announced(self):
        calls: list[int] = []
        door = Admission(LIMITS, on_empty=lambda: calls.append(door.requests))
        first, second = door.admit(1, now=0.0), door.admit(1, now=0.0)

        first.release()
        before = list(calls)
        second.release()
        second.release()

        assert (before, calls) == ([], [0])


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


class TestSearchParams:
    @pytest.mark.parametrize(
        "params",
        [
            SearchParams(beam_size=1, num_hypotheses=1, max_target_tokens=1),
            SearchParams(beam_size=8, num_hypotheses=8, max_target_tokens=50),
            SearchParams(length_penalty=0.0, patience=0.1, max_target_tokens=50),
            SearchParams(length_penalty=5.0, patience=8.0, max_target_tokens=50),
        ],
    )
    def test_ends_of_the_ranges_are_accepted(self, admission, params):
        admission.check_params(params, max_target_tokens=50)

    @pytest.mark.parametrize(
        ("params", "field", "message"),
        [
            (SearchParams(beam_size=0), "beam_size", "is 0, from 1 to 8 is accepted"),
            (SearchParams(beam_size=1_000), "beam_size", "is 1000, from 1 to 8 is accepted"),
            (SearchParams(beam_size=12_345_678), "beam_size", "is 12345678, from 1 to 8 is accepted"),
            (SearchParams(beam_size=9), "beam_size", "is 9, from 1 to 8 is accepted"),
            (SearchParams(num_hypotheses=0), "num_hypotheses", "is 0, from 1 to 4 is accepted"),
            (SearchParams(beam_size=2, num_hypotheses=3), "num_hypotheses", "is 3, from 1 to 2 is accepted"),
            (SearchParams(length_penalty=-0.1), "length_penalty", "is -0.1, from 0.0 to 5.0 is accepted"),
            (SearchParams(length_penalty=5.099999904632568), "length_penalty", "is 5.1, from 0.0 to 5.0 is accepted"),
            (SearchParams(length_penalty=5.1), "length_penalty", "is 5.1, from 0.0 to 5.0 is accepted"),
            (SearchParams(length_penalty=float("nan")), "length_penalty", "is nan, from 0.0 to 5.0 is accepted"),
            (SearchParams(patience=0.09), "patience", "is 0.09, from 0.1 to 8.0 is accepted"),
            (SearchParams(patience=8.5), "patience", "is 8.5, from 0.1 to 8.0 is accepted"),
            (SearchParams(patience=float("inf")), "patience", "is inf, from 0.1 to 8.0 is accepted"),
            (SearchParams(max_target_tokens=0), "max_target_tokens", "is 0, from 1 to 50 is accepted"),
            (SearchParams(max_target_tokens=51), "max_target_tokens", "is 51, from 1 to 50 is accepted"),
        ],
    )
    def test_value_outside_its_range_is_named_with_the_range(self, admission, params, field, message):
        with pytest.raises(InvalidInput) as error:
            admission.check_params(params, max_target_tokens=50)

        assert (str(error.value), error.value.field) == (f"options.{field} {message}", f"options.{field}")

    def test_default_hypotheses_fit_a_beam_of_one(self, admission):
        admission.check_params(SearchParams(beam_size=1, max_target_tokens=50), max_target_tokens=50)


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


class TestStreams:
    def test_streams_have_places_of_their_own(self):
        admission = Admission(LimitsConfig(max_streams=1, max_concurrent_requests=1))
        stream = admission.admit_stream()

        with pytest.raises(Overloaded, match="1 streams are open, at most 1 may be") as refused:
            admission.admit_stream()
        request = admission.admit(1, now=0.0)
        assert refused.value.reason == "streams"

        stream.release()
        admission.admit_stream().release()
        request.release()
        assert (admission.requests, admission.streams) == (0, 0)

    def test_stream_is_let_in_when_the_budget_is_full(self):
        admission = Admission(LimitsConfig(max_queued_tokens=10))
        admission.admit(1, now=0.0).take_tokens(10)

        part = admission.admit_stream().part()
        with pytest.raises(Overloaded):
            part.take_tokens(1)

    def test_closed_door_refuses_streams_and_not_the_texts_of_those_inside(self):
        admission = Admission(LimitsConfig())
        stream = admission.admit_stream()
        admission.close("draining")

        with pytest.raises(Unavailable, match="draining"):
            admission.admit_stream()
        stream.part().take_tokens(5)
        assert admission.tokens == 5

    def test_texts_of_streams_are_no_requests_and_give_back_what_they_took(self):
        departures: list[int] = []
        door = Admission(LimitsConfig(), on_leave=lambda: departures.append(door.tokens))
        stream = door.admit_stream()
        first, second = stream.part(), stream.part()
        first.take_characters(30)
        first.take_tokens(7)
        second.take_tokens(5)
        assert (door.requests, door.tokens) == (1, 12)

        first.release()
        second.release()
        stream.release()

        assert departures == [5, 0, 0]
        assert (door.requests, door.characters, door.tokens) == (0, 0, 0)

    def test_who_was_refused_wakes_nobody(self):
        departures = []
        admission = Admission(LimitsConfig(max_queued_tokens=10), on_leave=lambda: departures.append("left"))
        stream = admission.admit_stream()
        inside, refused = stream.part(), stream.part()
        inside.take_tokens(8)
        with pytest.raises(Overloaded):
            refused.take_tokens(8)

        refused.release()
        assert departures == []
        inside.release()
        assert departures == ["left"]
