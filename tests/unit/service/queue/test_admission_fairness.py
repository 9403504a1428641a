"""Admission between clients, and refusals by estimate."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.config import LimitsConfig
from service.errors import Overloaded
from service.queue.admission import Admission, Permit
from service.queue.callers import Caller
from service.queue.job_queue import Forecast

LIMITS = LimitsConfig(
    max_concurrent_requests=8, max_queued_tokens=100, max_queue_seconds=20.0, retry_after_s=2.0, max_streams=4
)
GREEDY, OTHER = Caller(name="greedy"), Caller(name="other")


@pytest.fixture
def admission() -> Admission:
    return Admission(LIMITS)


def admit(admission: Admission, caller: Caller, tokens: int = 0) -> Permit:
    permit = admission.admit(1, now=0.0, caller=caller)
    permit.take_tokens(tokens)
    return permit


def refusal(admission: Admission, caller: Caller, tokens: int = 0) -> str:
    with pytest.raises(Overloaded) as error:
        admit(admission, caller, tokens)
    return error.value.reason


class TestIdentity:
    def test_word_of_a_proxy_does_not_use_up_the_share_of_the_address_it_names(self, admission):
        peer, claimed = (Caller(name="10.0.0.7", source=source) for source in ("peer", "proxy"))
        for _ in range(8):
            admit(admission, claimed)

        for _ in range(4):
            admit(admission, peer)
        assert refusal(admission, peer) == "queue_full"


class TestStreams:
    def test_client_that_has_all_of_them_does_not_shut_others_out(self, admission):
        for _ in range(4):
            admission.admit_stream(GREEDY)
        for _ in range(2):  # half of the limit is the other's share
            admission.admit_stream(OTHER)

        for caller in (GREEDY, OTHER):
            with pytest.raises(Overloaded, match="6 streams are open, at most 4 may be"):
                admission.admit_stream(caller)

    def test_twice_the_limit_is_never_exceeded(self, admission):
        for number in range(9):
            with suppress(Overloaded):
                admission.admit_stream(Caller(name=f"first {number}"))
        for number in range(20):
            with suppress(Overloaded):
                admission.admit_stream(Caller(name=f"then {number}"))

        assert admission.streams <= 8

    def test_streams_without_a_text_take_nothing_of_a_share(self, admission):
        for number in range(4):
            admission.admit_stream(Caller(name=f"idle {number}"))
        for _ in range(8):
            admit(admission, GREEDY)

        for _ in range(4):
            admit(admission, OTHER)
        assert refusal(admission, OTHER) == "queue_full"


class TestShares:
    def test_greedy_client_that_fills_the_server_does_not_shut_others_out(self, admission):
        for _ in range(8):
            admit(admission, GREEDY)

        assert refusal(admission, GREEDY) == "queue_full"
        for _ in range(4):  # half of the limit is the other's share
            admit(admission, OTHER)
        assert refusal(admission, OTHER) == "queue_full"

    def test_tokens_are_shared_alike(self, admission):
        admit(admission, GREEDY, 100)

        admit(admission, OTHER, 50)

        assert refusal(admission, GREEDY) == "token_budget"
        assert refusal(admission, OTHER, 1) == "token_budget"

    def test_characters_are_shared_alike(self, admission):
        admission.admit(1, now=0.0, caller=GREEDY).take_characters(800)
        other = admission.admit(1, now=0.0, caller=OTHER)

        other.take_characters(400)

        with pytest.raises(Overloaded):
            other.take_characters(1)

    def test_twice_the_limit_is_never_exceeded_however_many_clients_come(self, admission):
        for number in range(100):
            try:
                admit(admission, Caller(name=str(number)), 40)
            except Overloaded:
                continue

        assert admission.requests <= 16
        assert admission.tokens <= 200

    def test_client_alone_has_all_of_it(self, admission):
        permits = [admit(admission, GREEDY) for _ in range(8)]
        for permit in permits:
            permit.release()

        assert [admit(admission, OTHER) for _ in range(8)]


class TestOwnBudget:
    CLIENT = Caller(name="small", max_queued_tokens=10)

    def test_budget_is_refused_by_name_when_it_is_used_up(self, admission):
        admit(admission, self.CLIENT, 10)

        with pytest.raises(Overloaded, match=r"^10 of your source tokens wait or run, at most 10 may$") as error:
            admit(admission, self.CLIENT)
        assert error.value.reason == "client_budget"

    def test_request_that_does_not_fit_beside_others_is_refused(self, admission):
        admit(admission, self.CLIENT, 4)
        permit = admission.admit(1, now=0.0, caller=self.CLIENT)

        with pytest.raises(Overloaded, match="4 of your source tokens wait or run and the request has 7, at most 10"):
            permit.take_tokens(7)
        permit.take_tokens(6)

    def test_others_are_not_concerned(self, admission):
        admit(admission, self.CLIENT, 10)

        admit(admission, OTHER, 50)

    def test_what_comes_back_can_be_used_again(self, admission):
        admit(admission, self.CLIENT, 10).release()

        admit(admission, self.CLIENT, 10)


class TestEstimates:
    def test_nothing_known_refuses_nothing(self, admission):
        admission.check(Forecast(), now=0.0, deadline=0.001)

    def test_as_much_work_ahead_as_allowed_is_accepted(self, admission):
        admission.check(Forecast(ahead_s=20.0, finish_s=21.0), now=0.0, deadline=None)

    def test_more_is_refused_until_there_may_be_room(self, admission):
        with pytest.raises(Overloaded) as error:
            admission.check(Forecast(ahead_s=23.0, finish_s=24.0), now=0.0, deadline=None)

        assert str(error.value) == "about 23 s of work go before the request, at most 20 s may"
        assert error.value.reason == "queue_seconds"
        assert error.value.retry_after_s == pytest.approx(3.0)

    def test_deadline_with_a_margin_is_accepted(self, admission):
        admission.check(Forecast(ahead_s=1.0, finish_s=2.0), now=10.0, deadline=12.21)

    def test_deadline_that_would_be_missed_is_refused_at_once(self, admission):
        with pytest.raises(Overloaded) as error:
            admission.check(Forecast(ahead_s=1.0, finish_s=2.0), now=10.0, deadline=11.0)

        assert str(error.value) == "the answer would take about 2 s, the deadline is 1 s away"
        assert error.value.reason == "deadline_unattainable"
        assert error.value.retry_after_s == pytest.approx(1.2)

    @pytest.mark.parametrize(("ahead_s", "retry_after_s"), [(20.001, 0.1), (1_000.0, 20.0)])
    def test_wait_that_is_asked_for_has_bounds(self, admission, ahead_s, retry_after_s):
        with pytest.raises(Overloaded) as error:
            admission.check(Forecast(ahead_s=ahead_s, finish_s=ahead_s), now=0.0, deadline=None)
        assert error.value.retry_after_s == retry_after_s

    def test_refused_request_holds_what_it_held(self, admission):
        permit = admit(admission, OTHER, 5)

        with pytest.raises(Overloaded):
            permit.check(Forecast(ahead_s=99.0, finish_s=99.0), now=0.0, deadline=None)

        assert admission.tokens == 5
        permit.release()
        assert (admission.requests, admission.tokens) == (0, 0)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.integers(0, 60)), max_size=60))
def test_every_permit_returns_what_it_took_and_no_client_is_remembered(actions):
    admission = Admission(LIMITS)
    held: list[tuple[Permit, int]] = []
    for is_arrival, name, amount in actions:
        if not is_arrival and held:
            held.pop(amount % len(held))[0].release()
            continue
        try:
            permit = admission.admit(1, now=0.0, caller=Caller(name=name, max_queued_tokens=70))
        except Overloaded:
            continue
        try:
            permit.take_characters(amount)
            permit.take_tokens(amount)
            held.append((permit, amount))
        except Overloaded:
            permit.release()
        amounts = sum(amount for _, amount in held)
        assert (admission.requests, admission.characters, admission.tokens) == (len(held), amounts, amounts)
        assert amounts <= 2 * LIMITS.max_queued_tokens
    for permit, _ in held:
        permit.release()

    assert (admission.requests, admission.characters, admission.tokens) == (0, 0, 0)
    assert admission._holdings == {}
