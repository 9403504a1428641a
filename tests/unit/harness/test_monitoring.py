"""What `python -m trials.monitoring` holds against the dashboard."""

import numpy as np
import pytest

from trials.monitoring import expressions
from trials.monitoring.expressions import Panel, Target, failures
from trials.monitoring.prometheus import Series


@pytest.fixture(autouse=True)
def nothing_stands_still(monkeypatch):
    monkeypatch.setattr(expressions, "STILL", {})
    monkeypatch.setattr(expressions, "UNCERTAIN", {})


def failures_of(*lines: list[float]) -> list[str]:
    series = tuple(
        Series({"code": str(number)}, np.arange(len(values), dtype=float), np.array(values))
        for number, values in enumerate(lines)
    )
    return list(failures([Panel("Calls", (Target("{{code}}", "sum(calls)", series),))]))


@pytest.mark.parametrize("lines", [[], [[float("nan")] * 3]])
def test_an_expression_without_data_is_a_failure(lines):
    assert failures_of(*lines) == ["Calls, {{code}}: no data: sum(calls)"]


def test_an_expression_that_stays_as_it_was_is_a_failure():
    assert failures_of([2.0, 2.0, float("nan")], [0.0] * 3) == ["Calls, {{code}}: did not move: sum(calls)"]


@pytest.mark.parametrize("lines", [[[0.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [1.0]]])
def test_a_value_that_changes_and_a_series_that_goes_are_movement(lines):
    assert failures_of(*lines) == []
