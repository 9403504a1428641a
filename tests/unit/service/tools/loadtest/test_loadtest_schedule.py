"""When calls are due."""

import numpy as np
import pytest

from service.tools.loadtest.records import due_times


def poisson(rate: float, duration_s: float, seed: int) -> list[float]:
    return list(due_times(rate, duration_s, np.random.default_rng(seed)))


def test_constant_arrivals_keep_their_gap():
    assert due_times(4, 1, None).tolist() == [0.0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize("seed", range(5))
def test_poisson_arrivals_are_exactly_as_many_as_the_rate_says(seed):
    assert len(poisson(97.5, 20, seed)) == 1950
