"""The log of slow calls: what a line holds, and how many there are."""

import json
import time

import pytest

from service.api.lifecycle import SLOW_CALLS_LOGGED, CallLifecycle
from service.call import Call, Caller, Phase
from service.telemetry.metrics import Metrics
from tests.fakes.books import sample_of
from tests.fakes.logs import log

__all__ = ["log"]


def call_of(duration_s: float, phase: Phase = "decode") -> Call:
    return Call(
        method="Translate",
        request_id="r1",
        caller=Caller(name="shop"),
        started=time.monotonic() - duration_s,
        deadline=60.0,
        model="m",
        phase=phase,
        texts=3,
        finished_texts=2,
        source_tokens=7,
        queue_s=0.002,
        encode_s=0.00304,
        detokenize_s=0.005,
    )


def test_slow_calls_are_lines_with_their_phases_as_many_as_can_be_read_and_all_are_counted(log):
    metrics = Metrics()
    lifecycle = CallLifecycle(metrics, slow_s=1.0)
    for _ in range(SLOW_CALLS_LOGGED + 5):
        lifecycle.end(call_of(1.5))

    lines = list(map(json.loads, log.getvalue().splitlines()))
    line = lines[0]
    assert (line["event"], line["request_id"], line["client"], line["model"]) == ("slow_request", "r1", "shop", "m")
    assert line["duration_ms"] == pytest.approx(1_500.0, rel=0.5)
    assert (line["queue_ms"], line["encode_ms"], line["detokenize_ms"]) == (2.0, 3.0, 5.0)
    assert (line["texts"], line["finished_texts"], line["source_tokens"], line["code"]) == (3, 2, 7, "OK")
    assert "total_ms" not in line
    assert len(lines) == SLOW_CALLS_LOGGED
    assert sample_of(metrics, "dragoman_slow_requests_total", {}) == SLOW_CALLS_LOGGED + 5


@pytest.mark.parametrize(("duration_s", "phase"), [(0.0, "decode"), (9.0, "admission"), (9.0, "stream")])
def test_calls_that_are_fast_or_do_no_work_are_not_logged(log, duration_s, phase):
    CallLifecycle(Metrics(), slow_s=1.0).end(call_of(duration_s, phase))

    assert log.getvalue() == ""
