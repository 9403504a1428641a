"""Simulation of replicas against closed formulas, the fit of one replica, and the search for their number."""

import json
from math import ceil, exp, factorial, log, log2

import numpy as np
import pytest

from service.planning.balancer import Balancer
from service.planning.fit import fit
from service.planning.measured import read
from service.planning.replica import Distribution, Replica, replica_of
from service.planning.search import Demand, Planner, fewest
from service.planning.simulation import Traffic, simulate

CONSTANT = Distribution((0.0, 1.0), (1.0, 1.0))
_PARTS = 1 - np.geomspace(1.0, 1e-6, 2_000)
EXPONENTIAL = Distribution((*_PARTS[:-1].tolist(), 1.0), tuple((-np.log(1 - _PARTS)).tolist()))  # mean 1
MANY_ROWS = 10_000


def latencies(replica: Replica, rate: float, num_replicas: int = 1, balancer: Balancer = Balancer.LEAST_REQUEST):
    traffic = Traffic(rate=rate, duration_s=1.0).lasting(20_000)
    return np.concatenate([simulate(replica, traffic, num_replicas, balancer, seed=seed) for seed in range(3)])


class TestSimulation:
    def test_one_row_of_random_work_is_the_queue_m_m_1(self):
        seconds = latencies(Replica(EXPONENTIAL, rows=1, growth=0.0), rate=0.5)

        assert seconds.mean() == pytest.approx(1 / (1 - 0.5), rel=0.03)
        assert np.quantile(seconds, 0.99) == pytest.approx(log(100) / (1 - 0.5), rel=0.04)

    def test_one_row_of_constant_work_is_the_queue_m_d_1(self):
        seconds = latencies(Replica(CONSTANT, rows=1, growth=0.0), rate=0.7)

        assert seconds.mean() == pytest.approx(1 + 0.7 / (2 * (1 - 0.7)), rel=0.03)

    @pytest.mark.parametrize("work", [CONSTANT, EXPONENTIAL], ids=["constant", "exponential"])
    def test_the_mean_of_processor_sharing_depends_on_the_mean_work_only(self, work):
        seconds = latencies(Replica(work, rows=MANY_ROWS, growth=1.0), rate=0.7)

        assert seconds.mean() == pytest.approx(1 / (1 - 0.7), rel=0.05)

    def test_rows_that_do_not_slow_each_other_down_are_the_queue_m_m_c(self):
        rows, load = 5, 4.0
        seconds = latencies(Replica(EXPONENTIAL, rows=rows, growth=0.0), rate=load)

        last = load**rows / factorial(rows) * rows / (rows - load)
        waiting = last / (sum(load**number / factorial(number) for number in range(rows)) + last)  # Erlang C
        assert seconds.mean() == pytest.approx(1 + waiting / (rows - load), rel=0.04)

    def test_replicas_behind_a_random_balancer_are_queues_of_their_own(self):
        seconds = latencies(
            Replica(EXPONENTIAL, rows=1, growth=0.0), rate=1.5, num_replicas=3, balancer=Balancer.RANDOM
        )

        assert np.quantile(seconds, 0.99) == pytest.approx(log(100) / (1 - 0.5), rel=0.04)

    def test_the_more_the_balancer_looks_at_the_shorter_the_wait(self):
        replica = Replica(EXPONENTIAL, rows=1, growth=0.0)

        p99s = [np.quantile(latencies(replica, 6.4, 8, balancer), 0.99) for balancer in Balancer]

        assert p99s == sorted(p99s)

    def test_a_call_is_done_with_its_last_text(self):
        work = Distribution((0.0, 0.5, 0.5, 1.0), (1.0, 1.0, 3.0, 3.0))
        traffic = Traffic(rate=0.04, duration_s=50_000.0, texts_per_call=4)

        seconds = simulate(Replica(work, rows=4, growth=0.0), traffic)

        assert np.mean(seconds > 2.9) == pytest.approx(1 - 0.5**4, abs=0.03)

    def test_the_same_seed_gives_the_same_latencies(self):
        replica, traffic = replica_of(EXPONENTIAL, capacity=4.0, sharing=2.0), Traffic(rate=6.0, duration_s=100.0)

        first, again = (simulate(replica, traffic, 2, Balancer.TWO_CHOICES, seed=3) for _ in range(2))

        assert first.tolist() == again.tolist()
        assert first.tolist() != simulate(replica, traffic, 2, Balancer.TWO_CHOICES, seed=4).tolist()


class TestReplica:
    @pytest.mark.parametrize("sharing", [1.0, 1.3, 4.0, 20.0])
    @pytest.mark.parametrize("capacity", [1.0, 3.7, 40.0])
    def test_it_has_the_capacity_that_was_asked_for(self, capacity, sharing):
        replica = replica_of(EXPONENTIAL, capacity, sharing)

        if replica.rows > 1:
            assert replica.capacity == pytest.approx(capacity, rel=1e-6)
        assert replica.growth >= 0.0

    def test_a_full_replica_answers_at_its_capacity(self):
        replica = replica_of(CONSTANT, capacity=5.0, sharing=3.0)

        seconds = simulate(replica, Traffic(rate=10.0, duration_s=500.0))

        assert seconds[-1] == pytest.approx(500.0, rel=0.1)  # 5,000 texts took 1,000 s


def report(replica: Replica, rates: list[float], **head: object) -> str:
    """As `dragoman loadtest` would have written it."""
    stages = []
    for rate in rates:
        seconds = simulate(replica, Traffic(rate=rate, duration_s=60.0, warm_up_s=20.0, is_number_drawn=False), seed=99)
        names = (10, 25, 50, 75, 90, 95, 99, 99.9)
        stages.append(
            {
                "name": f"{rate} calls/s",
                "offered_rate": rate,
                "ok_rate": rate,
                "texts_rate": rate,
                "done_texts_rate": min(rate, replica.capacity),
                "calls": len(seconds),
                "codes": {"OK": len(seconds)},
                "latency_ms": {f"p{name:g}": float(np.percentile(seconds, name)) * 1e3 for name in names},
                "duration_s": 60.0,
            }
        )
    return json.dumps({"arrivals": "poisson", "texts_per_call": 1, "warm_up_s": 20.0, **head, "stages": stages})


def refusing(text: str, rate: float) -> str:
    """The report with a stage in which half of the calls were refused."""
    parsed = json.loads(text)
    stage = {
        **parsed["stages"][-1],
        "done_texts_rate": rate,
        "codes": {"OK": 500, "RESOURCE_EXHAUSTED": 500},
        "calls": 1000,
    }
    return json.dumps({**parsed, "stages": [*parsed["stages"], stage]})


def of_two_texts(text: str) -> str:
    """The report with calls of two texts."""
    parsed = json.loads(text)
    stages = [{**stage, "texts_rate": 2 * stage["texts_rate"]} for stage in parsed["stages"]]
    return json.dumps({**parsed, "texts_per_call": 2, "stages": stages})


class TestReport:
    TRUE = replica_of(Distribution((0.0, 1.0), (0.1, 0.3)), capacity=50.0, sharing=2.0)

    def test_what_was_answered_beside_refusals_is_the_capacity(self):
        measured = read([("a.json", refusing(report(self.TRUE, [10.0, 30.0]), 48.0))])

        assert measured.capacity == 48.0
        assert [stage.traffic.rate for stage in measured.stages] == [10.0, 30.0]

    def test_a_stage_whose_queue_grew_says_the_capacity_and_nothing_of_latency(self):
        measured = read([("a.json", report(self.TRUE, [10.0, 30.0, 60.0]))])

        assert measured.capacity == pytest.approx(50.0)
        assert measured.highest_rate == 30.0

    @pytest.mark.parametrize("code", ["DEADLINE_EXCEEDED", "UNAVAILABLE"])
    def test_what_was_too_late_or_turned_away_tells_of_overload_too(self, code):
        text = refusing(report(self.TRUE, [10.0, 30.0]), 48.0).replace("RESOURCE_EXHAUSTED", code)

        assert read([("a.json", text)]).capacity == 48.0

    @pytest.mark.parametrize("warm_up_s", [0.0, 5.0])
    def test_calls_under_way_at_the_end_of_a_slow_stage_are_no_overload(self, warm_up_s):
        slow = replica_of(Distribution((0.0, 1.0), (2.0, 3.0)), capacity=50.0, sharing=1.0)
        parsed = json.loads(report(slow, [1.0, 2.0], warm_up_s=warm_up_s))
        for stage in parsed["stages"]:
            stage["done_texts_rate"] = 0.92 * stage["texts_rate"]  # 5 and 10 calls of 60 s were under way

        measured = read([("a.json", json.dumps(parsed))])

        assert (len(measured.stages), measured.capacity) == (2, None)

    def test_a_capacity_below_a_rate_that_was_kept_up_with_is_not_believed(self):
        measured = read([("a.json", refusing(report(self.TRUE, [10.0, 30.0]), 20.0))])

        assert measured.capacity is None
        assert "20.0 texts/s answered, but another kept up with 30.0" in measured.left_out[0]

    def test_a_stage_of_few_calls_is_refused_by_name(self):
        parsed = json.loads(report(self.TRUE, [10.0, 30.0]))
        parsed["stages"][0] |= {"calls": 5, "codes": {"OK": 5}}

        with pytest.raises(
            ValueError, match=r"10\.0 calls/s has 5 calls, at least 30 are needed: .* longer --duration"
        ):
            read([("a.json", json.dumps(parsed))])

    def test_a_stage_that_failed_otherwise_is_left_out_and_named(self):
        parsed = json.loads(report(self.TRUE, [10.0, 20.0, 30.0]))
        parsed["stages"][2]["codes"] = {"OK": parsed["stages"][2]["calls"] - 9, "INTERNAL": 9}

        measured = read([("a.json", json.dumps(parsed))])

        assert measured.highest_rate == 20.0
        assert "30.0 calls/s: left out, 9 INTERNAL of " in measured.left_out[0]

    @pytest.mark.parametrize("done_texts_rate", [0.0, 40.0], ids=["nothing", "calls of the warm-up"])
    @pytest.mark.parametrize("calls", [12_500, 5])
    def test_a_stage_without_an_answer_is_left_out_and_named(self, calls, done_texts_rate):
        parsed = json.loads(of_two_texts(report(self.TRUE, [10.0, 20.0])))
        del parsed["texts_per_call"]  # as older reports: the size of calls is known from answers alone
        for stage in parsed["stages"]:
            stage["done_texts_rate"] = stage["texts_rate"]
        tried = {"name": "500 calls/s", "offered_rate": 500.0, "calls": calls, "codes": {"DEADLINE_EXCEEDED": calls}}
        nothing = {"ok_rate": 0.0, "texts_rate": 0.0, "done_texts_rate": done_texts_rate, "latency_ms": {}}
        parsed["stages"].append({**parsed["stages"][-1], **tried, **nothing})

        measured = read([("a.json", json.dumps(parsed))])

        assert [stage.traffic.rate for stage in measured.stages] == [20.0, 40.0]
        assert measured.capacity is None
        assert measured.left_out == (f"500 calls/s: left out, {calls} DEADLINE_EXCEEDED of {calls} calls",)

    def test_a_stage_with_answers_and_without_their_latency_is_refused(self):
        parsed = json.loads(report(self.TRUE, [10.0, 20.0]))
        parsed["stages"][1]["latency_ms"] = {}

        with pytest.raises(ValueError, match="latency_ms without p50"):
            read([("a.json", json.dumps(parsed))])

    def test_reports_of_closed_loops_are_left_out(self):
        reports = [("open", report(self.TRUE, [10.0, 20.0])), ("closed", report(self.TRUE, [30.0], callers=4))]

        assert read(reports).highest_rate == 20.0

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"stages": [{"calls": 3}]}'])
    def test_what_is_no_report_is_named(self, text):
        with pytest.raises(ValueError, match=r"x\.json is no JSON report"):
            read([("x.json", text)])

    def test_one_rate_is_too_little(self):
        with pytest.raises(ValueError, match="kept up with 1 of 1 stages, at least 2"):
            read([("x.json", report(self.TRUE, [10.0]))])

    def test_calls_that_were_not_as_large_as_the_report_says_are_refused(self):
        with pytest.raises(ValueError, match=r"said to have 32 texts a call, but 1\.0 were answered"):
            read([("old.json", report(self.TRUE, [10.0, 20.0], texts_per_call=32))])

    def test_stages_with_other_calls_are_not_mixed(self):
        one, two = report(self.TRUE, [10.0, 20.0]), of_two_texts(report(self.TRUE, [10.0, 20.0]))

        with pytest.raises(ValueError, match=r"\[1, 2\] texts a call"):
            read([("a", one), ("b", two)])


class TestFit:
    def test_it_predicts_a_rate_and_a_number_that_were_not_measured(self):
        true = replica_of(Distribution((0.0, 1.0), (0.1, 0.3)), capacity=50.0, sharing=3.0)

        fitted = fit(read([("x.json", report(true, [5.0, 20.0, 35.0, 45.0, 55.0]))]))

        assert fitted.replica.capacity == pytest.approx(50.0, rel=0.06)
        for rate, number in ((40.0, 1), (120.0, 3)):
            there, here = (latencies(one, rate, number) for one in (true, fitted.replica))
            assert np.quantile(here, 0.99) == pytest.approx(np.quantile(there, 0.99), rel=0.1)


class TestPrediction:
    @pytest.mark.parametrize("num_replicas", [1, 50])
    def test_randomly_chosen_replicas_have_the_latency_of_one_whatever_their_number(self, num_replicas):
        demand = Demand(rate=0.9 * num_replicas, p99_s=1.0, balancer=Balancer.RANDOM)

        p99_s = Planner(Replica(EXPONENTIAL, rows=1, growth=0.0), demand).predict(num_replicas).p99_s

        assert p99_s == pytest.approx(log(100) / (1 - 0.9), rel=0.15)

    def test_many_replicas_have_filled_up_before_calls_are_counted(self):
        load, num_replicas = 0.9, 50
        demand = Demand(rate=load * num_replicas, p99_s=1.0, balancer=Balancer.TWO_CHOICES)

        p99_s = Planner(Replica(EXPONENTIAL, rows=1, growth=0.0), demand).predict(num_replicas).p99_s

        # Of very many such replicas, load ** (2 ** k - 1) have k calls or more; a call with k before it takes as long
        # as k + 1 random texts.
        ahead = [load ** (2 ** (k + 1) - 2) - load ** (2 ** (k + 2) - 2) for k in range(12)]
        later = sum(
            part * sum(exp(-p99_s) * p99_s**number / factorial(number) for number in range(k + 1))
            for k, part in enumerate(ahead)
        )
        assert later == pytest.approx(0.01, rel=0.2)


class TestSearch:
    @pytest.mark.parametrize("threshold", [1, 2, 3, 7, 64, 100])
    @pytest.mark.parametrize("least", [1, 2, 50])
    def test_it_finds_the_fewest(self, threshold, least):
        asked: list[int] = []

        def holds(number: int) -> bool:
            asked.append(number)
            return bool(number >= threshold)

        assert fewest(holds, least, 100) == max(threshold, least)
        assert len(asked) == len(set(asked)) <= 2 * ceil(log2(100))

    def test_more_than_the_most_is_an_error(self):
        with pytest.raises(ValueError, match="more than 8 replicas"):
            fewest(lambda _: False, 1, 8)

    def test_replicas_of_one_row_are_as_many_as_the_formula_says(self):
        replica = Replica(EXPONENTIAL, rows=1, growth=0.0)
        demand = Demand(rate=2.5, p99_s=10.5, balancer=Balancer.RANDOM)

        # each of n is M/M/1: p99 = ln(100) / (1 - 2.5 / n), and 10.5 s need n = 4.45
        assert log(100) / (1 - 2.5 / 4) > demand.p99_s > log(100) / (1 - 2.5 / 5)
        assert Planner(replica, demand).needed() == 5

    def test_overloaded_replicas_have_no_latency(self):
        planner = Planner(Replica(EXPONENTIAL, rows=1, growth=0.0), Demand(rate=2.5, p99_s=12.0))

        assert planner.predict(2).p99_s == float("inf")
        assert planner.predict(2).utilization == pytest.approx(1.25, rel=1e-3)

    def test_a_target_below_an_empty_replicas_latency_is_refused(self):
        planner = Planner(Replica(CONSTANT, rows=1, growth=0.0), Demand(rate=1.0, p99_s=0.9))

        with pytest.raises(ValueError, match="a p99 of 900 ms cannot be held: without other calls it is 1000 ms"):
            planner.needed()

    def test_a_demand_of_nothing_is_refused(self):
        with pytest.raises(ValueError, match="rate is 0, more than 0 is needed"):
            Demand(rate=0.0, p99_s=1.0)
