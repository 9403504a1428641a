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


def with_refusals(content: dict[str, Any], rate: float, code: str = "RESOURCE_EXHAUSTED") -> dict[str, Any]:
    """Add a stage in which half of the calls were refused."""
    stage = {**content["stages"][-1], "done_texts_rate": rate, "codes": {"OK": 500, code: 500}, "calls": 1000}
    return {**content, "stages": [*content["stages"], stage]}


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

    assert measured.highest_rate(p99_ms / 1e3) == pytest.approx(rate)
    assert measured.latency_s(rate) == pytest.approx((min(p99_ms, 600) / 2e3, min(p99_ms, 600) / 1e3))


def test_latency_is_known_between_nothing_and_the_highest_rate():
    measured = measured_in(report({10.0: 100, 30.0: 200}))

    assert measured.latency_s(1.0) == pytest.approx((0.05, 0.1))
    assert measured.latency_s(30.1) is None


def test_a_stage_that_was_quicker_than_one_of_a_lower_rate_was_so_by_chance():
    measured = measured_in(report({10.0: 100, 20.0: 300, 30.0: 200, 40.0: 400}))

    assert measured.highest_rate(0.25) == pytest.approx(17.5)
    assert measured.latency_s(30.0) == pytest.approx((0.15, 0.3))


def test_a_target_below_the_latency_at_the_lowest_rate_cannot_be_held():
    with pytest.raises(ValueError, match="a p99 of 50 ms cannot be held: it is 100 ms at 10 texts/s, the lowest rate"):
        measured_in(report({10.0: 100, 30.0: 200})).highest_rate(0.05)


@pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNAVAILABLE"])
def test_what_was_answered_beside_refusals_is_the_capacity(code):
    measured = measured_in(with_refusals(report({10.0: 100, 30.0: 200}), 48.0, code))

    assert measured.capacity == 48.0
    assert [stage.rate for stage in measured.stages] == [10.0, 30.0]


@pytest.mark.parametrize("warm_up_s", [0.0, 5.0])
def test_calls_under_way_at_the_end_of_a_slow_stage_are_no_overload(warm_up_s):
    content = report({1.0: 6_000, 2.0: 6_000}, warm_up_s=warm_up_s)
    for stage in content["stages"]:
        stage["done_texts_rate"] = 0.92 * stage["texts_rate"]  # 5 and 10 calls of 60 s were under way

    measured = measured_in(content)

    assert (len(measured.stages), measured.capacity) == (2, None)


def test_a_capacity_below_a_rate_that_was_kept_up_with_is_not_believed():
    measured = measured_in(with_refusals(report({10.0: 100, 30.0: 200}), 20.0))

    assert measured.capacity is None
    assert "20.0 texts/s answered, but another kept up with 30.0" in measured.left_out[0]


def test_a_stage_that_failed_otherwise_is_left_out_and_named():
    content = report({10.0: 100, 20.0: 150, 30.0: 200})
    content["stages"][2]["codes"] = {"OK": 1_791, "INTERNAL": 9}

    measured = measured_in(content)

    assert [stage.rate for stage in measured.stages] == [10.0, 20.0]
    assert measured.left_out == ("30.0 calls/s: left out, 9 INTERNAL of 1800 calls",)


@pytest.mark.parametrize("done_texts_rate", [0.0, 40.0], ids=["nothing", "calls of the warm-up"])
@pytest.mark.parametrize("calls", [12_500, 5])
def test_a_stage_without_an_answer_is_left_out_and_named(calls, done_texts_rate):
    content = report({10.0: 100, 20.0: 150}, texts_per_call=2)
    for stage in content["stages"]:
        stage["texts_rate"] = stage["done_texts_rate"] = 2 * stage["ok_rate"]
    tried = {"name": "500 calls/s", "offered_rate": 500.0, "calls": calls, "codes": {"DEADLINE_EXCEEDED": calls}}
    nothing = {"ok_rate": 0.0, "texts_rate": 0.0, "done_texts_rate": done_texts_rate, "latency_ms": {}}
    content["stages"].append({**content["stages"][-1], **tried, **nothing})

    measured = measured_in(content)

    assert [stage.rate for stage in measured.stages] == [20.0, 40.0]
    assert measured.capacity is None
    assert measured.left_out == (f"500 calls/s: left out, {calls} DEADLINE_EXCEEDED of {calls} calls",)


def test_reports_of_closed_loops_are_left_out():
    found = measured_in(report({10.0: 100, 20.0: 150}), report({30.0: 200}, callers=4))

    assert [stage.rate for stage in found.stages] == [10.0, 20.0]


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({"calls": 5, "codes": {"OK": 5}}, r"10\.0 calls/s has 5 calls, at least 30 .* longer --duration"),
        ({"texts_rate": 320.0}, r"said to have 1 texts a call, but 32\.0 were answered"),
    ],
)
def test_a_stage_that_says_too_little_is_refused(stage, message):
    content = report({10.0: 100, 30.0: 200})
    content["stages"][0] |= stage

    with pytest.raises(ValueError, match=message):
        measured_in(content)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stages": [{"calls": 3}]}'])
def test_what_is_no_report_is_named(text):
    with pytest.raises(ValueError, match=r"x\.json is no JSON report"):
        read([("x.json", text)])


@pytest.mark.parametrize("rates", [[10.0], [10.0, 10.0]])
def test_one_rate_is_too_little(rates):
    with pytest.raises(ValueError, match=r"kept up with 1 of . stages, at least 2"):
        measured_in(*(report({rate: 100}) for rate in rates))
