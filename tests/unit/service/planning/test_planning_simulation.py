"""Simulated replicas against closed formulas of queueing."""

from math import factorial

import numpy as np
import pytest

from service.planning.simulation import Balancer, Distribution, Replica, Traffic, simulate
from tests.fakes.planned_replicas import CONSTANT, EXPONENTIAL, latencies


def waiting_m_m_c(rows: int, load: float) -> float:
    """Return the mean wait of the queue M/M/c with work of mean 1 (Erlang C)."""
    last = load**rows / factorial(rows) * rows / (rows - load)
    return last / (sum(load**number / factorial(number) for number in range(rows)) + last) / (rows - load)


@pytest.mark.parametrize(
    ("replica", "rate", "mean_s"),
    [
        pytest.param(Replica(EXPONENTIAL, rows=1, growth=0.0), 0.5, 1 / (1 - 0.5), id="M/M/1"),
        pytest.param(Replica(CONSTANT, rows=1, growth=0.0), 0.7, 1 + 0.7 / (2 * (1 - 0.7)), id="M/D/1"),
        pytest.param(Replica(EXPONENTIAL, rows=5, growth=0.0), 4.0, 1 + waiting_m_m_c(5, 4.0), id="M/M/5"),
        pytest.param(Replica(CONSTANT, rows=10_000, growth=1.0), 0.7, 1 / (1 - 0.7), id="M/D/1 processor sharing"),
        pytest.param(Replica(EXPONENTIAL, rows=10_000, growth=1.0), 0.7, 1 / (1 - 0.7), id="M/M/1 processor sharing"),
    ],
)
def test_the_mean_latency_is_that_of_the_queue_that_the_replica_is(replica, rate, mean_s):
    assert latencies(replica, rate).mean() == pytest.approx(mean_s, rel=0.05)


def test_a_call_is_done_with_its_last_text():
    work = Distribution((0.0, 0.5, 0.5, 1.0), (1.0, 1.0, 3.0, 3.0))

    seconds = simulate(Replica(work, rows=4, growth=0.0), Traffic(rate=0.04, duration_s=50_000.0, texts_per_call=4))

    assert np.mean(seconds > 2.9) == pytest.approx(1 - 0.5**4, abs=0.03)


@pytest.mark.parametrize("sharing", [1.0, 1.3, 4.0, 20.0])
@pytest.mark.parametrize("capacity", [1.0, 3.7, 40.0])
def test_a_replica_has_the_capacity_that_was_asked_for(capacity, sharing):
    replica = Replica.of(EXPONENTIAL, capacity, sharing)

    if replica.rows > 1:
        assert replica.capacity == pytest.approx(capacity, rel=1e-6)
    assert replica.growth >= 0.0


def test_the_more_the_balancer_looks_at_the_shorter_the_wait():
    replica = Replica(EXPONENTIAL, rows=1, growth=0.0)

    p99s = [np.quantile(latencies(replica, 6.4, 8, balancer), 0.99) for balancer in Balancer]

    assert p99s == sorted(p99s)
