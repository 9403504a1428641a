"""A fitted replica predicts what was not measured: of a simulated replica, and of the real queue and scheduler."""

import json

import numpy as np
import pytest

from service.planning.fit import fit
from service.planning.measured import read
from service.planning.search import Demand, Planner
from service.planning.simulation import Distribution, Replica
from service.records import ANYBODY
from tests.fakes.planned_replicas import PERCENTILES, latencies, report
from tests.fakes.simulated_server import SimulatedServer, poisson

SECONDS, WARM_UP_S = 90.0, 10.0
STEPS = range(6, 15)  # 10 on average: with 10 rows and steps of 10 ms, a server does 100 texts a second


def test_it_predicts_a_rate_and_a_number_that_were_not_measured():
    true = Replica.of(Distribution((0.0, 1.0), (0.1, 0.3)), capacity=50.0, sharing=3.0)

    fitted = fit(read([("x.json", json.dumps(report(true, [5.0, 20.0, 35.0, 45.0, 55.0])))]))

    assert fitted.replica.capacity == pytest.approx(50.0, rel=0.06)
    for rate, number in ((40.0, 1), (120.0, 3)):
        there, here = (latencies(one, rate, number) for one in (true, fitted.replica))
        assert np.quantile(here, 0.99) == pytest.approx(np.quantile(there, 0.99), rel=0.1)


def test_it_predicts_the_real_queue_and_scheduler():
    stages = [real_stage(rate) for rate in (8.0, 40.0, 75.0, 90.0, 140.0)]
    fitted = fit(read([("one.json", json.dumps({"warm_up_s": WARM_UP_S, "texts_per_call": 1, "stages": stages}))]))

    assert fitted.replica.capacity == pytest.approx(100.0, rel=0.05)
    for rate in (60.0, 82.0):
        predicted = Planner(fitted.replica, Demand(rate=rate, p99_s=1.0)).predict(1).p99_s
        measured = real_stage(rate)["latency_ms"]
        assert isinstance(measured, dict)
        # A text's wait for the next step counts as time in a row: the model is a little fuller than the server.
        assert 0.95 < predicted * 1e3 / measured["p99"] < 1.25


def real_stage(rate: float) -> dict[str, object]:
    """Return what `dragoman loadtest` would have reported of the queue, admission and scheduler in virtual time."""
    requests = poisson(ANYBODY, rate, SECONDS + WARM_UP_S, seed=round(rate), num_steps=STEPS)
    SimulatedServer().run([requests])
    answered = [request for request in requests if request.done_at is not None]
    kept = [request for request in requests if request.at >= WARM_UP_S]
    seconds = [request.latency_s for request in answered if request.at >= WARM_UP_S]
    done = sum(WARM_UP_S <= (request.done_at or 0.0) < WARM_UP_S + SECONDS for request in answered)
    return {
        "name": f"{rate:g} calls/s",
        "offered_rate": len(kept) / SECONDS,
        "ok_rate": len(seconds) / SECONDS,
        "texts_rate": len(seconds) / SECONDS,
        "done_texts_rate": done / SECONDS,
        "calls": len(kept),
        "codes": {"OK": len(seconds), "RESOURCE_EXHAUSTED": len(kept) - len(seconds)},
        "latency_ms": {f"p{name:g}": float(np.percentile(seconds, name)) * 1e3 for name in PERCENTILES},
        "duration_s": SECONDS,
    }
