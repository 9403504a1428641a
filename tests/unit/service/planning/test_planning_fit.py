"""A fitted replica predicts what was not measured: of a simulated replica, and of the real queue and scheduler."""

import json

import numpy as np
import pytest

from service.planning.fit import fit
from service.planning.measured import read
from service.planning.simulation import Distribution, Replica
from tests.fakes.planned_replicas import latencies, report

SECONDS, WARM_UP_S = 90.0, 10.0


def test_it_predicts_a_rate_and_a_number_that_were_not_measured():
    true = Replica.of(Distribution((0.0, 1.0), (0.1, 0.3)), capacity=50.0, sharing=3.0)

    fitted = fit(read([("x.json", json.dumps(report(true, [5.0, 20.0, 35.0, 45.0, 55.0])))]))

    assert fitted.replica.capacity == pytest.approx(50.0, rel=0.06)
    for rate, number in ((40.0, 1), (120.0, 3)):
        there, here = (latencies(one, rate, number) for one in (true, fitted.replica))
        assert np.quantile(here, 0.99) == pytest.approx(np.quantile(there, 0.99), rel=0.1)
