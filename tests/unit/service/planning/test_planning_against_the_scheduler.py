"""A plan for the real queue, admission and engine scheduler, which run in virtual time."""

import json

import numpy as np
import pytest

from service.planning.fit import fit
from service.planning.measured import read
from service.planning.search import Demand, Planner
from service.queue.callers import ANYBODY
from tests.fakes.simulated_server import SimulatedServer, poisson

SECONDS, WARM_UP_S = 90.0, 10.0
STEPS = range(6, 15)  # 10 on average: with 10 rows and steps of 10 ms, a server does 100 texts a second
QUANTILES = (10, 25, 50, 75, 90, 95, 99, 99.9)


def stage(rate: float) -> dict[str, object]:
    """As `dragoman loadtest` would have written it."""
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
        "latency_ms": {f"p{name:g}": float(np.percentile(seconds, name)) * 1e3 for name in QUANTILES},
        "duration_s": SECONDS,
    }


def test_p99_at_rates_that_were_not_measured():
    stages = [stage(rate) for rate in (8.0, 40.0, 75.0, 90.0, 140.0)]
    fitted = fit(read([("one.json", json.dumps({"warm_up_s": WARM_UP_S, "texts_per_call": 1, "stages": stages}))]))

    assert fitted.replica.capacity == pytest.approx(100.0, rel=0.05)
    for rate in (60.0, 82.0):
        predicted = Planner(fitted.replica, Demand(rate=rate, p99_s=1.0)).predict(1).p99_s
        measured = stage(rate)["latency_ms"]
        assert isinstance(measured, dict)
        # A text's wait for the next step counts as time in a row: the model is a little fuller than the server.
        assert 0.95 < predicted * 1e3 / measured["p99"] < 1.25
