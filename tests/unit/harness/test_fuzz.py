"""The fuzzer itself: what it sends, and what it makes of what it saw."""

from typing import Any

import pytest

from trials.fuzz.__main__ import FLAT_BYTES_PER_MESSAGE, facts

GOOD: dict[str, Any] = {
    "is_alive": True,
    "engine_restarts": 0.0,
    "codes": {"OK": 5, "stream INVALID_ARGUMENT": 1},
    "codes_in_the_books": {"OK": 9, "CANCELLED": 3},
    "admitted_share": 0.5,
    "legitimate_errors": {},
    "is_memory_judged": True,
    "front_bytes_per_message": {"slope_low": 0.0},
    "pages_out_of_balance": 0,
}


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, []),
        ({"codes_in_the_books": {"INTERNAL": 1}}, ["calls ended with the server's INTERNAL"]),
        ({"codes": {"stream lost by the client": 4}}, []),  # the client made it up
        ({"front_bytes_per_message": {"slope_low": FLAT_BYTES_PER_MESSAGE + 1}}, ["memory grows"]),
        ({"front_bytes_per_message": {"slope_low": 1e6}, "is_memory_judged": False}, []),
        ({"pages_out_of_balance": 1}, ["the books do not balance"]),
    ],
)
def test_figures_without_fault_hold_and_others_are_named(change, wrong):
    assert [what for what, is_so in facts({**GOOD, **change}).items() if is_so] == wrong
