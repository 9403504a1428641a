"""Admission: who gets in, who does not and why, and that every place comes back."""

import pytest

from service.errors import DeadlineExceeded, InvalidInput, Overloaded, Unavailable
from service.queue.admission import Admission
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
