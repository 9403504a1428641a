"""The search for the highest rate that holds."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.tools.loadtest import Summary, highest_rate, summarize
from tests.fakes.ended_calls import records

P99_MS = 100.0


def server(is_fast: Callable[[float], bool], slow_code: str = "OK") -> Callable[[float], Summary]:
    """Return a server that answers in 10 ms at some rates, and in 10 s or with a status at the others."""

    def try_rate(rate: float) -> Summary:
        fast = is_fast(rate)
        latency_s = 10.0 if slow_code == "OK" and not fast else 0.01
        return summarize(records([0.0], [latency_s], ["OK" if fast else slow_code]), 1.0)

    return try_rate


@given(st.floats(1.0, 5_000.0), st.floats(0.5, 200.0))
def test_the_highest_rate_is_found_from_any_start(capacity, first):
    held, tried = highest_rate(server(lambda rate: rate <= capacity), p99_ms=P99_MS, first=first)

    assert capacity - 0.03 * max(capacity, 0.03 * first) <= held <= capacity
    assert len(tried) < 40


def test_one_bad_moment_costs_a_stage_and_not_the_answer():
    def held_but_at(hiccup: int) -> float:
        stages = iter(range(100))
        return highest_rate(server(lambda rate: rate <= 100 and next(stages) != hiccup), p99_ms=P99_MS, first=10)[0]

    assert all(97 <= held_but_at(hiccup) <= 100 for hiccup in range(12))


@pytest.mark.parametrize(
    ("holds_below", "code", "held", "tried"),
    [(0, "PERMISSION_DENIED", 0.0, [10]), (40, "UNAVAILABLE", 20, [10, 20, 40])],
)
def test_a_stage_without_any_answer_ends_the_search(holds_below, code, held, tried):
    found, stages = highest_rate(server(lambda rate: rate < holds_below, code), p99_ms=P99_MS, first=10)

    assert (found, [rate for rate, _ in stages]) == (held, tried)


def test_refusals_break_a_rate_though_answers_are_fast():
    calls = records([0] * 100, [0.01] * 100, ["OK"] * 99 + ["RESOURCE_EXHAUSTED"])

    held, _ = highest_rate(lambda _: summarize(calls, 1.0), p99_ms=P99_MS, first=10)

    assert held == 0.0
