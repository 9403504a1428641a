"""Replicas of known pace, and the load test reports that they would give."""

import json
from typing import Any

import numpy as np

from service.planning.simulation import Balancer, Distribution, Floats, Replica, Traffic, simulate

_PARTS = 1 - np.geomspace(1.0, 1e-6, 2_000)
CONSTANT = Distribution((0.0, 1.0), (1.0, 1.0))
EXPONENTIAL = Distribution((*_PARTS[:-1].tolist(), 1.0), tuple((-np.log(1 - _PARTS)).tolist()))  # mean 1
PERCENTILES = (10, 25, 50, 75, 90, 95, 99, 99.9)


def latencies(
    replica: Replica, rate: float, num_replicas: int = 1, balancer: Balancer = Balancer.LEAST_REQUEST
) -> Floats:
    """Return the latencies of three simulated runs."""
    traffic = Traffic(rate=rate, duration_s=1.0).lasting(20_000)
    return np.concatenate([simulate(replica, traffic, num_replicas, balancer, seed=seed) for seed in range(3)])


def report(replica: Replica, rates: list[float], **head: object) -> dict[str, Any]:
    """Return what `dragoman loadtest` would have reported of this replica at these rates."""
    stages = []
    for rate in rates:
        seconds = simulate(replica, Traffic(rate=rate, duration_s=60.0, warm_up_s=20.0, is_number_drawn=False), seed=99)
        stages.append(
            {
                "name": f"{rate} calls/s",
                "offered_rate": rate,
                "ok_rate": rate,
                "texts_rate": rate,
                "done_texts_rate": min(rate, replica.capacity),
                "calls": len(seconds),
                "codes": {"OK": len(seconds)},
                "latency_ms": {f"p{name:g}": float(np.percentile(seconds, name)) * 1e3 for name in PERCENTILES},
                "duration_s": 60.0,
            }
        )
    # As JSON has it: the reports of several tests share nothing that one of them changes.
    return dict(json.loads(json.dumps({"texts_per_call": 1, "warm_up_s": 20.0, **head, "stages": stages})))
