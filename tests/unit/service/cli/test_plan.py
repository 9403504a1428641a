"""What the reports of load tests say of one replica."""

import json
from typing import Any

import pytest

from service.cli.plan import Measured, read


def report(latency_ms: dict[float, float], **head: object) -> dict[str, Any]:
    """What `dragoman loadtest` reports of a replica with these p99 by rate; half of that is the p50."""
    stages = [
        {
            "name": f"{rate} calls/s",
            "offered_rate": rate,
            "ok_rate": rate,
            "texts_rate": rate,
            "done_texts_rate": rate,
            "calls": round(60 * rate),
            "codes": {"OK": round(60 * rate)},
            "latency_ms": {"p50": p99 / 2, "p99": p99},
            "duration_s": 60.0,
            "done_rate": rate,
            "refusal_ms_p99": None,
            "send_delay_ms_p99": 0.0,
        }
        for rate, p99 in latency_ms.items()
    ]
    return {"texts_per_call": 1, "warm_up_s": 20.0, "callers": None, **head, "stages": stages}


def measured_in(*reports: dict[str, Any]) -> Measured:
    return read((f"{number}.json", json.dumps(content)) for number, content in enumerate(reports))


def latency(measured: Measured, rate: float) -> tuple[float | None, ...]:
    return tuple(measured.latency_ms(rate).values())


@pytest.mark.parametrize(
    ("p99_ms", "rate"),
    [
        (100, 10.0),
        (150, 20.0),  # half the way from 100 to 200 ms
        (200, 30.0),
        (300, 32.5),
        (600, 40.0),
        (10_000, 40.0),  # beyond what was measured nothing is said
    ],
)
def test_a_replica_may_get_the_rate_at_which_its_p99_was_measured_or_lies_between_two(p99_ms, rate):
    measured = measured_in(report({10.0: 100, 30.0: 200, 40.0: 600}))

    assert measured.highest_rate(p99_ms) == pytest.approx(rate)
    assert latency(measured, rate) == pytest.approx((min(p99_ms, 600) / 2, min(p99_ms, 600)))


def test_latency_is_known_between_nothing_and_the_highest_rate():
    measured = measured_in(report({10.0: 100, 30.0: 200}))

    assert latency(measured, 1.0) == pytest.approx((50, 100))
    assert latency(measured, 30.1) == (None, None)


def test_a_stage_that_was_quicker_than_one_of_a_lower_rate_was_so_by_chance():
    measured = measured_in(report({10.0: 100, 20.0: 300, 30.0: 200, 40.0: 400}))

    assert measured.highest_rate(250) == pytest.approx(17.5)
    assert latency(measured, 30.0) == pytest.approx((150, 300))


def test_a_target_below_the_latency_at_the_lowest_rate_cannot_be_held():
    with pytest.raises(ValueError, match="a p99 of 50 ms cannot be held: it is 100 ms at 10 texts/s, the lowest rate"):
        measured_in(report({10.0: 100, 30.0: 200})).highest_rate(50)


@pytest.mark.parametrize(
    ("stage", "why"),
    [
        ({"codes": {"OK": 1_791, "INTERNAL": 9}}, "9 INTERNAL of 1800 calls"),
        ({"calls": 5, "codes": {"DEADLINE_EXCEEDED": 5}, "latency_ms": {}}, "5 DEADLINE_EXCEEDED of 5 calls"),
        ({"calls": 0, "codes": {}, "latency_ms": {}}, "0 calls, at least 30 are needed: measure it again with"),
        ({"calls": 5, "codes": {"OK": 5}}, "5 calls, at least 30 are needed: measure it again with a longer"),
        ({"done_texts_rate": 20.0}, "20.0 of 30.0 texts/s were answered while it lasted"),
    ],
)
def test_a_stage_that_says_nothing_of_the_latency_is_left_out_and_named(stage, why):
    content = report({10.0: 100, 20.0: 150, 30.0: 200})
    content["stages"][2] |= stage

    measured = measured_in(content)

    assert [stage.rate for stage in measured.stages] == [10.0, 20.0]
    assert measured.left_out[0].startswith(f"30.0 calls/s: left out, {why}")


def test_reports_of_closed_loops_are_left_out():
    found = measured_in(report({10.0: 100, 20.0: 150}), report({30.0: 200}, callers=4))

    assert [stage.rate for stage in found.stages] == [10.0, 20.0]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stages": [{"calls": 3}]}'])
def test_what_is_no_report_is_named(text):
    with pytest.raises(ValueError, match=r"x\.json is no JSON report"):
        read([("x.json", text)])


@pytest.mark.parametrize("rates", [[10.0], [10.0, 10.0]])
def test_one_rate_is_too_little(rates):
    with pytest.raises(ValueError, match=r"kept up with 1 stages, at least 2"):
        measured_in(*(report({rate: 100}) for rate in rates))
