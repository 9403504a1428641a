"""The log of slow calls: what a line holds, and how many there are."""

import json

import pytest

from service.records import Timings
from service.telemetry.calls import EndedCall, Progress
from service.telemetry.logs import LogLimit
from service.telemetry.slow_calls import SlowCalls
from tests.fakes.logs import log

__all__ = ["log"]

TIMINGS = Timings(tokenize_ms=1.0, queue_ms=2.0, encode_ms=3.04, decode_ms=4.0, detokenize_ms=5.0, total_ms=15.0)


def ended(duration_s: float, progress: Progress | None = None) -> EndedCall:
    return EndedCall(
        method="Translate",
        request_id="r1",
        client="shop",
        model="m",
        code="OK",
        duration_s=duration_s,
        progress=progress or Progress(texts=3, finished_texts=2, source_tokens=7, read_timings=lambda: TIMINGS),
    )


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def test_a_slow_call_is_one_line_with_its_phases(log):
    SlowCalls(1.0, count=Counter())(ended(1.5))

    (line,) = map(json.loads, log.getvalue().splitlines())
    assert (line["event"], line["request_id"], line["client"], line["model"]) == ("slow_request", "r1", "shop", "m")
    assert (line["duration_ms"], line["queue_ms"], line["encode_ms"], line["detokenize_ms"]) == (1_500.0, 2.0, 3.0, 5.0)
    assert (line["texts"], line["finished_texts"], line["source_tokens"], line["code"]) == (3, 2, 7, "OK")
    assert "total_ms" not in line


@pytest.mark.parametrize(
    "call", [ended(1.0), ended(0.2), ended(9.0, Progress())], ids=["as long as allowed", "fast", "translates nothing"]
)
def test_other_calls_are_not_logged(log, call):
    count = Counter()
    SlowCalls(1.0, count=count)(call)

    assert (log.getvalue(), count.count) == ("", 0)


def test_lines_are_bounded_and_the_next_one_says_how_many_are_missing(log):
    now, count = [100.0], Counter()
    limit = LogLimit(max_lines=2, period_s=10.0, clock=lambda: now[0])
    watch = SlowCalls(1.0, count=count, limit=limit)
    for _ in range(5):
        watch(ended(2.0))
    now[0] += 10.0
    watch(ended(2.0))

    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [line["left_out"] for line in lines] == [0, 0, 3]
    assert count.count == 6
