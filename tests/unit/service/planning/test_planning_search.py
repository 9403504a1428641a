"""Predictions for several replicas, and the search for their number."""

from math import ceil, log, log2

import pytest

from service.planning.search import Demand, Planner, fewest
from service.planning.simulation import Balancer, Replica
from tests.fakes.planned_replicas import CONSTANT, EXPONENTIAL

ONE_ROW = Replica(EXPONENTIAL, rows=1, growth=0.0)  # the queue M/M/1


@pytest.mark.parametrize("num_replicas", [1, 50])
def test_randomly_chosen_replicas_have_the_latency_of_one_whatever_their_number(num_replicas):
    demand = Demand(rate=0.9 * num_replicas, p99_s=1.0, balancer=Balancer.RANDOM)

    assert Planner(ONE_ROW, demand).predict(num_replicas).p99_s == pytest.approx(log(100) / (1 - 0.9), rel=0.15)


@pytest.mark.parametrize("threshold", [1, 2, 3, 7, 64, 100])
@pytest.mark.parametrize("least", [1, 2, 50])
def test_the_search_finds_the_fewest(threshold, least):
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return bool(number >= threshold)

    assert fewest(holds, least, 100) == max(threshold, least)
    assert len(asked) == len(set(asked)) <= 2 * ceil(log2(100))


def test_overloaded_replicas_have_no_latency():
    prediction = Planner(ONE_ROW, Demand(rate=2.5, p99_s=12.0)).predict(2)

    assert prediction.p99_s == float("inf")
    assert prediction.utilization == pytest.approx(1.25, rel=1e-3)


def test_a_target_below_an_empty_replicas_latency_is_refused():
    planner = Planner(Replica(CONSTANT, rows=1, growth=0.0), Demand(rate=1.0, p99_s=0.9))

    with pytest.raises(ValueError, match=r"900 ms cannot be held: .* 1000 ms"):
        planner.needed()


def test_more_than_the_most_is_an_error():
    with pytest.raises(ValueError, match="more than 8 replicas"):
        fewest(lambda _: False, 1, 8)
