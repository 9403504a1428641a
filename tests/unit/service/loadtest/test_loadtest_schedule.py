"""When calls are due."""

import numpy as np
import pytest

from service.loadtest.schedule import due_times


def poisson(rate: float, duration_s: float, seed: int) -> list[float]:
    return list(due_times(rate, duration_s, np.random.default_rng(seed)))


def test_constant_arrivals_keep_their_gap():
    assert due_times(4, 1, None).tolist() == [0.0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize("seed", range(5))
def test_poisson_arrivals_are_exactly_as_many_as_the_rate_says(seed):
    assert len(poisson(97.5, 20, seed)) == 1950


def test_poisson_arrivals_have_gaps_as_variable_as_their_mean():
    times = poisson(50, 400, seed=7)
    gaps = np.diff(times)

    assert 0.95 < gaps.std() / gaps.mean() < 1.05
    assert times[-1] < 400


def test_the_seed_decides():
    assert poisson(10, 10, seed=1) == poisson(10, 10, seed=1) != poisson(10, 10, seed=2)
