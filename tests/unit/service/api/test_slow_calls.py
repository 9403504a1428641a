"""The log of slow calls: what a line holds, and how many there are."""

import json

import pytest

from service.api.calls import SlowCalls
from service.call import Call, Caller, Phase
from service.telemetry.logs import LogLimit
from tests.fakes.logs import log

__all__ = ["log"]


def ended(duration_s: float, phase: Phase = "decode") -> Call:
    return Call(
        method="Translate",
        request_id="r1",
        caller=Caller(name="shop"),
        started=0.0,
        deadline=60.0,
        model="m",
        duration_s=duration_s,
        phase=phase,
        texts=3,
        finished_texts=2,
        source_tokens=7,
        queue_s=0.002,
        encode_s=0.00304,
        detokenize_s=0.005,
    )


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def test_a_slow_call_is_one_line_with_its_phases(log):
    SlowCalls(1.0, count=Counter()).log(ended(1.5))

    (line,) = map(json.loads, log.getvalue().splitlines())
    assert (line["event"], line["request_id"], line["client"], line["model"]) == ("slow_request", "r1", "shop", "m")
    assert (line["duration_ms"], line["queue_ms"], line["encode_ms"], line["detokenize_ms"]) == (1_500.0, 2.0, 3.0, 5.0)
    assert (line["texts"], line["finished_texts"], line["source_tokens"], line["code"]) == (3, 2, 7, "OK")
    assert "total_ms" not in line


@pytest.mark.parametrize(
    "call",
    [ended(9.0, "admission"), ended(9.0, "stream")],
    ids=["translates nothing", "stream"],
)
def test_calls_without_phases_are_not_logged(log, call):
    count = Counter()
    SlowCalls(1.0, count=count).log(call)

    assert (log.getvalue(), count.count) == ("", 0)


def test_lines_are_bounded_and_the_next_one_says_how_many_are_missing(log):
    now, count = [100.0], Counter()
    limit = LogLimit(max_lines=2, period_s=10.0, clock=lambda: now[0])
    slow = SlowCalls(1.0, count=count, limit=limit)
    for _ in range(5):
        slow.log(ended(2.0))
    now[0] += 10.0
    slow.log(ended(2.0))

    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [line["left_out"] for line in lines] == [0, 0, 3]
    assert count.count == 6
