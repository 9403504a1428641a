"""Starts are spread where several clients share full engines, and nowhere else."""

import pytest

from service.queue.callers import Priority
from service.queue.pace import Pace

RATE = {"rows_per_s": 80.0, "step_s": 0.01}  # a quarter faster: 100 rows a second


def shared(now: float = 0.0) -> Pace:
    pace = Pace()
    pace.arrived("a", Priority.INTERACTIVE, now)
    pace.arrived("b", Priority.INTERACTIVE, now)
    return pace


def test_one_client_does_not_share():
    pace = Pace()
    for now in range(5):
        pace.arrived("a", Priority.INTERACTIVE, float(now))

    assert not pace.is_shared(5.0)


def test_engines_count_as_shared_for_a_second_after_another_client_s_work():
    pace = shared(now=10.0)

    assert pace.is_shared(10.9)
    assert not pace.is_shared(11.1)


def test_classes_of_one_client_share():
    pace = Pace()
    pace.arrived("a", Priority.INTERACTIVE, 0.0)
    pace.arrived("a", Priority.BATCH, 1.0)

    assert pace.is_shared(1.5)


def test_engines_with_room_take_everything_at_once():
    pace = shared()
    for _ in range(100):
        pace.started(1)

        assert pace.pause_s(0.0, **RATE) == 0.0


def test_full_engines_take_what_is_free_a_little_faster_than_it_comes_free():
    pace = shared()
    pace.ran_full(0.0)
    pace.started(3)

    assert pace.pause_s(0.0, **RATE) == pytest.approx(0.03)
    assert pace.pause_s(0.02, **RATE) == pytest.approx(0.01)
    assert pace.pause_s(0.03, **RATE) == pytest.approx(0.0)


def test_no_more_than_a_step_s_starts_are_saved_up():
    pace = shared()
    pace.ran_full(0.0)
    pace.pause_s(0.9, **RATE)
    pace.started(2)

    assert pace.pause_s(0.9, **RATE) == pytest.approx(0.01)


def test_full_engines_of_one_client_take_everything_at_once():
    pace = Pace()
    pace.arrived("a", Priority.INTERACTIVE, 0.0)
    pace.ran_full(0.0)
    pace.started(50)

    assert pace.pause_s(0.0, **RATE) == 0.0


def test_what_one_client_alone_has_started_delays_nobody_later():
    """Ten minutes at the full rate; then half the engines are lost, and a second client comes."""
    pace = Pace()
    pace.arrived("bulk", Priority.BATCH, 0.0)
    pace.ran_full(0.0)
    for second in range(600):
        assert pace.pause_s(float(second), **RATE) == 0.0
        pace.started(80)

    pace.arrived("b", Priority.INTERACTIVE, 600.0)

    assert pace.pause_s(600.0, rows_per_s=40.0, step_s=0.01) < 80 / 40


def test_an_empty_queue_ends_the_spreading():
    pace = shared()
    pace.ran_full(0.0)
    pace.started(50)
    pace.forget()

    assert pace.pause_s(0.0, **RATE) == 0.0


def test_nothing_is_spread_before_it_is_known_how_fast():
    pace = shared()
    pace.ran_full(0.0)
    pace.started(50)

    assert pace.pause_s(0.0, rows_per_s=0.0, step_s=0.0) == 0.0
