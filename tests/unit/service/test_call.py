"""A call: which class of work its caller gets, when it is late, its phases, and what texts and parts add to it."""

import pytest

from service.call import Call, Caller
from service.records import Priority


def new_call(timeout_s: float = 9.0, limit_s: float | None = None, models: frozenset[str] | None = None) -> Call:
    return Call(method="One", started=100.0, deadline=100.0 + timeout_s, limit_s=limit_s, models=models)


@pytest.mark.parametrize(
    ("timeout_s", "ended_after_s", "is_late"),
    [(0.05, 0.001, False), (0.05, 0.044, False), (0.05, 0.046, True), (1.0, 0.93, False), (1.0, 0.95, True)],
)
def test_cancel_is_late_in_the_last_moment_which_is_a_share_of_a_short_deadline(timeout_s, ended_after_s, is_late):
    assert new_call(timeout_s).is_late(100.0 + ended_after_s) is is_late


def test_call_is_the_sum_of_its_parts_and_takes_the_time_of_the_longest_or_of_all_in_turn():
    call = new_call()
    for is_next, queue_s in ((False, 2.0), (False, 1.0), (True, 4.0)):
        part = call.part(2)
        part.phase, part.queue_s, part.finished_texts, part.source_tokens, part.target_tokens = (
            "decode",
            queue_s,
            2,
            3,
            4,
        )
        part.use_model("m")
        call.join(part, is_next=is_next)

    assert (call.phase, call.model, call.has_several_models) == ("decode", "m", False)
    assert (call.queue_s, call.finished_texts, call.source_tokens, call.target_tokens) == (2.0 + 4.0, 6, 9, 12)


@pytest.mark.parametrize(
    ("highest", "asked", "found"),
    [
        (Priority.INTERACTIVE, None, Priority.INTERACTIVE),
        (Priority.INTERACTIVE, Priority.BATCH, Priority.BATCH),
        (Priority.BATCH, None, Priority.BATCH),
        (Priority.BATCH, Priority.INTERACTIVE, Priority.BATCH),
    ],
)
def test_client_gets_what_it_asks_for_or_the_highest_it_may_have(highest, asked, found):
    assert Caller(name="a", priority=highest).allowed(asked) is found
