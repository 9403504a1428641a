"""What a decoder step takes with how many rows."""

from itertools import cycle, islice

import pytest

from service.queue.step_time import StepTime

ROWS = (4, 16, 40, 64, 100)


def worked(
    step_time: StepTime, *, fixed_s: float, row_s: float, reports: int = 100, rows: tuple[int, ...] = ROWS
) -> None:
    """Reports of ten steps each."""
    for number in islice(cycle(rows), reports):
        step_time.worked(10, 10 * number, 10 * (fixed_s + row_s * number))


@pytest.fixture
def step_time() -> StepTime:
    """Of 1 ms and 0.1 ms for each row."""
    step_time = StepTime()
    worked(step_time, fixed_s=1e-3, row_s=1e-4)
    return step_time


def test_nothing_is_told_before_half_a_second_of_work():
    step_time = StepTime()
    step_time.worked(10, 100, 0.4)

    assert not step_time.is_measured
    assert step_time.at(10) == 0.0


def test_reports_without_work_say_nothing(step_time):
    before = step_time.at(50)
    step_time.worked(0, 0, 0.0)

    assert step_time.at(50) == before


def test_time_of_a_step_grows_with_its_rows(step_time):
    assert step_time.at(10) == pytest.approx(2e-3)
    assert step_time.at(200) == pytest.approx(21e-3)  # which no report had


def test_steps_that_do_not_grow_are_told_to_be_the_same():
    step_time = StepTime()
    worked(step_time, fixed_s=0.01, row_s=0.0)

    assert step_time.at(1_000) == pytest.approx(0.01)


def test_slower_machine_is_noticed_within_a_second_of_work(step_time):
    worked(step_time, fixed_s=2e-3, row_s=2e-4, reports=10)

    assert step_time.at(10) == pytest.approx(4e-3, rel=0.1)


def test_engine_that_was_held_up_once_is_not_slow_from_now_on(step_time):
    step_time.worked(1, 50, 5.0)
    slow = step_time.at(50)
    worked(step_time, fixed_s=1e-3, row_s=1e-4, reports=20)

    assert slow < 5.0 / 2
    assert step_time.at(50) == pytest.approx(6e-3, rel=0.5)


def test_load_that_hardly_varies_changes_nothing_about_the_shape(step_time):
    worked(step_time, fixed_s=1e-3, row_s=1e-4, reports=5_000, rows=(50, 51))

    assert step_time.at(10) == pytest.approx(2e-3, rel=0.05)


def test_steps_that_are_all_rows_are_as_steep_as_can_be():
    step_time = StepTime()
    worked(step_time, fixed_s=-1e-4, row_s=1e-4)

    assert step_time.at(100) / step_time.at(0) == pytest.approx(101)
