"""Admission: who gets in, who does not and why, and that every place comes back."""

import pytest

from service.engine.job import SearchParams
from service.errors import DeadlineExceeded, InvalidInput, Overloaded, Unavailable
from service.traffic.admission import Admission
from tests.fakes.small_admission import LIMITS, admission, refusal

__all__ = ["admission"]


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
