"""Admission: who gets in, who does not and why, and that every place comes back."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.call import ANYBODY, Caller
from service.config import LimitsConfig
from service.errors import DeadlineExceeded, Overloaded, Unavailable
from service.scheduler.admission import Admission, Reservation

LIMITS = LimitsConfig(
    max_texts=3,
    max_concurrent_requests=8,
    max_queued_tokens=100,
    max_streams=4,
    max_queue_seconds=20.0,
    retry_after_s=2.0,
)
GREEDY, OTHER = Caller(name="greedy"), Caller(name="other")


@pytest.fixture
def admission() -> Admission:
    return Admission(LIMITS)


def admit(admission: Admission, caller: Caller = ANYBODY, tokens: int = 0, characters: int = 0) -> Reservation:
    reservation = admission.admit(1, now=0.0, caller=caller)
    reservation.take_characters(characters)
    reservation.take_tokens(tokens)
    return reservation


def refusal(admission: Admission, caller: Caller = ANYBODY, tokens: int = 0, characters: int = 0) -> tuple[str, str]:
    """Reason and message; the reservation of one that was let in and refused later comes back."""
    with pytest.raises(Overloaded) as error:
        try_to_admit(admission, caller, tokens, characters)
    assert error.value.retry_after_s == LIMITS.retry_after_s
    return error.value.reason, str(error.value)


def try_to_admit(admission: Admission, caller: Caller, tokens: int, characters: int) -> None:
    with admission.admit(1, now=0.0, caller=caller) as reservation:
        reservation.take_characters(characters)
        reservation.take_tokens(tokens)


def held(admission: Admission) -> tuple[int, int, int, int]:
    return admission.requests, admission.streams, admission.characters, admission.tokens


class TestDoor:
    def test_closed_door_refuses_whatever_comes_and_keeps_who_is_inside(self, admission):
        reservation, stream = admit(admission), admission.admit_stream()
        admission.close("the server is draining")

        with pytest.raises(Unavailable, match=r"^the server is draining$") as error:
            admission.admit(0, now=0.0)
        with pytest.raises(Unavailable):
            admission.admit_stream()
        reservation.take_tokens(5)
        stream.part().take_tokens(5)

        assert error.value.reason == "draining"
        assert held(admission) == (2, 1, 0, 10)

    @pytest.mark.parametrize("deadline", [10.0, 0.0])
    def test_late_request_is_refused(self, admission, deadline):
        with pytest.raises(DeadlineExceeded, match="had passed"):
            admission.admit(1, now=10.0, deadline=deadline)
        assert admission.admit(3, now=10.0, deadline=10.001)


class TestLimits:
    def test_one_request_more_than_the_limit_is_refused_until_one_is_released(self, admission):
        reservations = [admit(admission) for _ in range(8)]

        assert refusal(admission) == ("queue_full", "8 requests are being served, at most 8 may be")
        reservations[0].release()
        reservations[0].release()
        admit(admission)
        assert admission.requests == 8

    @pytest.mark.parametrize(
        ("inside", "request_", "numbers"),
        [
            ({"tokens": 60}, {"tokens": 41}, "60 source tokens .* has 41, at most 100"),
            ({"tokens": 100}, {}, "100 source tokens wait or run, at most 100"),
            ({"characters": 600}, {"characters": 201}, "600 characters, 0 source .* has 201 .* 800 characters, 100 t"),
            # most of the budget from few characters: the text is refused before it is tokenised
            ({"characters": 300, "tokens": 90}, {"characters": 81}, "300 characters, 90 source tokens"),
        ],
    )
    def test_what_does_not_fit_is_refused_and_not_counted(self, admission, inside, request_, numbers):
        admit(admission, **inside)
        before = held(admission)

        reason, message = refusal(admission, **request_)

        assert (reason, held(admission)) == ("token_budget", before)
        assert re.search(numbers, message)

    def test_what_fits_or_is_alone_gets_in_and_gives_back_all_that_it_took(self, admission):
        admit(admission, tokens=1_000).release()
        admit(admission, characters=10_000).release()
        admit(admission, tokens=40, characters=600)
        with admission.admit(1, now=0.0) as reservation:
            for _ in range(2):
                reservation.take_characters(100)
                reservation.take_tokens(30)
            assert held(admission) == (2, 0, 800, 100)

        assert held(admission) == (1, 0, 600, 40)
        with pytest.raises(AssertionError, match="released"):
            reservation.take_tokens(1)

    def test_reservation_comes_back_when_its_block_fails_and_the_last_one_is_announced(self):
        counts: list[int] = []
        door = Admission(LIMITS, on_empty=lambda: counts.append(door.requests))
        first = admit(door)

        with suppress(RuntimeError), door.admit(1, now=0.0):
            raise RuntimeError

        assert (door.requests, counts) == (1, [])
        first.release()
        assert counts == [0]


class TestShares:
    """A limit counts twice for those who hold less than their share of it."""

    def test_greedy_caller_that_fills_the_server_does_not_shut_others_out(self, admission):
        for _ in range(8):
            admit(admission, GREEDY)

        assert refusal(admission, GREEDY)[0] == "queue_full"
        for _ in range(4):  # half of the limit is the other's share
            admit(admission, OTHER)
        assert refusal(admission, OTHER)[0] == "queue_full"

    @pytest.mark.parametrize(("kind", "limit"), [("tokens", 100), ("characters", 800)])
    def test_tokens_and_characters_are_shared_alike(self, admission, kind, limit):
        admit(admission, GREEDY, **{kind: limit})

        admit(admission, OTHER, **{kind: limit // 2})

        assert refusal(admission, GREEDY, **{kind: 1})[0] == "token_budget"
        assert refusal(admission, OTHER, **{kind: 1})[0] == "token_budget"

    def test_proxy_s_word_does_not_use_up_the_share_of_the_address_it_names(self, admission):
        peer, claimed = (Caller(name="10.0.0.7", source=source) for source in ("peer", "proxy"))
        for _ in range(8):
            admit(admission, claimed)

        for _ in range(4):
            admit(admission, peer)
        assert refusal(admission, peer)[0] == "queue_full"

    def test_limit_of_a_caller_s_own_is_for_that_caller_alone(self, admission):
        small = Caller(name="small", max_queued_tokens=10)
        reservation = admit(admission, small, 4)
        assert refusal(admission, small, 7)[0] == "client_budget"
        admit(admission, small, 6)

        reason, message = refusal(admission, small)

        assert (reason, message) == ("client_budget", "10 of your source tokens wait or run, at most 10 may")
        admit(admission, OTHER, 50)
        reservation.release()
        admit(admission, small, 4)


class TestStreams:
    def test_streams_have_places_of_their_own_which_callers_share(self, admission):
        for _ in range(8):
            admit(admission, OTHER)
        streams = [admission.admit_stream(GREEDY) for _ in range(4)]
        streams += [admission.admit_stream(OTHER) for _ in range(2)]  # half of the limit is the other's share

        for caller in (GREEDY, OTHER):
            with pytest.raises(Overloaded, match="6 streams are open, at most 4 may be") as error:
                admission.admit_stream(caller)
            assert error.value.reason == "streams"
        for stream in streams:
            stream.release()
        assert held(admission) == (8, 0, 0, 0)

    def test_caller_whose_streams_have_ended_takes_no_share_of_the_places(self, admission):
        for number in range(9):
            admission.admit_stream(Caller(name=str(number))).release()
        for _ in range(4):
            admission.admit_stream(GREEDY)

        for _ in range(2):  # half of the limit
            admission.admit_stream(OTHER)
        assert admission.streams == 6

    def test_stream_is_let_in_when_the_budget_is_full_and_takes_no_share_without_a_text(self, admission):
        admit(admission, GREEDY, 100)
        stream = admission.admit_stream(OTHER)

        assert refusal(admission, GREEDY)[0] == "token_budget"
        stream.part().take_tokens(50)
        with pytest.raises(Overloaded):
            stream.part().take_tokens(1)

    def test_texts_of_streams_are_no_requests_and_wake_others_when_they_leave_unless_refused(self):
        departures: list[int] = []
        door = Admission(LIMITS, on_leave=lambda: departures.append(door.tokens))
        stream = door.admit_stream()
        first, second, refused = (stream.part() for _ in range(3))
        first.take_characters(30)
        first.take_tokens(7)
        second.take_tokens(90)
        assert held(door) == (1, 1, 30, 97)
        with pytest.raises(Overloaded):
            refused.take_tokens(8)

        for reservation in (refused, first, second, stream):
            reservation.release()

        assert departures == [90, 0, 0]
        assert held(door) == (0, 0, 0, 0)


class TestEstimates:
    @pytest.mark.parametrize(
        ("forecast", "deadline"),
        [
            ((0.0, 0.0), 10.001),  # nothing known refuses nothing
            ((20.0, 21.0), None),
            ((1.0, 2.0), 12.21),
        ],
    )
    def test_request_that_can_be_in_time_is_accepted(self, admission, forecast, deadline):
        admit(admission).check(*forecast, now=10.0, deadline=deadline)

    @pytest.mark.parametrize(
        ("forecast", "deadline", "reason", "message", "retry_after_s"),
        [
            ((23.0, 24.0), None, "queue_seconds", "about 23 s of work .* at most 20 s", 3.0),
            ((20.001, 21.0), None, "queue_seconds", "about 20 s", 0.1),  # at least
            ((1_000.0, 1_000.0), None, "queue_seconds", r"about 1e\+03 s", 20.0),  # at most
            ((1.0, 2.0), 11.0, "deadline_unattainable", "about 2 s, the deadline is 1 s away", 1.2),
        ],
    )
    def test_other_requests_are_refused_until_there_may_be_room(
        self, admission, forecast, deadline, reason, message, retry_after_s
    ):
        reservation = admit(admission, tokens=5)

        with pytest.raises(Overloaded, match=message) as error:
            reservation.check(*forecast, now=10.0, deadline=deadline)

        assert error.value.reason == reason
        assert error.value.retry_after_s == pytest.approx(retry_after_s)
        assert held(admission) == (1, 0, 0, 5)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcdefghij"), st.integers(0, 60)), max_size=60))
def test_counts_equal_what_the_held_reservations_took_and_keep_to_twice_the_limits(actions):
    admission = Admission(LIMITS)
    reservations: list[tuple[Reservation, int]] = []
    for is_arrival, name, amount in actions:
        if not is_arrival and reservations:
            reservations.pop(amount % len(reservations))[0].release()
            continue
        with suppress(Overloaded):
            reservation = admission.admit(1, now=0.0, caller=Caller(name=name, max_queued_tokens=70))
            try:
                reservation.take_characters(amount)
                reservation.take_tokens(amount)
                reservations.append((reservation, amount))
            except Overloaded:
                reservation.release()
        with suppress(Overloaded):
            reservations.append((admission.admit_stream(Caller(name=name)), 0))
        total = sum(amount for _, amount in reservations)
        assert held(admission)[::2] == (len(reservations), total)
        assert admission.tokens == total <= 2 * LIMITS.max_queued_tokens
        assert admission.requests - admission.streams <= 2 * LIMITS.max_concurrent_requests
        assert admission.streams <= 2 * LIMITS.max_streams
    for reservation, _ in reservations:
        reservation.release()
    assert held(admission) == (0, 0, 0, 0)
    assert [admit(admission, GREEDY) for _ in range(LIMITS.max_concurrent_requests)]  # no caller is remembered
