"""What the reports of load tests say of one replica."""

import json
from typing import Any

import pytest

from service.planning.measured import Measured, read
from service.planning.simulation import Distribution, Replica
from tests.fakes.planned_replicas import report

TRUE = Replica.of(Distribution((0.0, 1.0), (0.1, 0.3)), capacity=50.0, sharing=2.0)


def measured_in(*reports: dict[str, Any]) -> Measured:
    return read((f"{number}.json", json.dumps(content)) for number, content in enumerate(reports))


def with_refusals(content: dict[str, Any], rate: float, code: str = "RESOURCE_EXHAUSTED") -> dict[str, Any]:
    """Add a stage in which half of the calls were refused."""
    stage = {**content["stages"][-1], "done_texts_rate": rate, "codes": {"OK": 500, code: 500}, "calls": 1000}
    return {**content, "stages": [*content["stages"], stage]}


def of_two_texts(content: dict[str, Any]) -> dict[str, Any]:
    stages = [{**stage, "texts_rate": 2 * stage["texts_rate"]} for stage in content["stages"]]
    return {**content, "texts_per_call": 2, "stages": stages}


@pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNAVAILABLE"])
def test_what_was_answered_beside_refusals_is_the_capacity(code):
    measured = measured_in(with_refusals(report(TRUE, [10.0, 30.0]), 48.0, code))

    assert measured.capacity == 48.0
    assert [stage.traffic.rate for stage in measured.stages] == [10.0, 30.0]


@pytest.mark.parametrize("warm_up_s", [0.0, 5.0])
def test_calls_under_way_at_the_end_of_a_slow_stage_are_no_overload(warm_up_s):
    slow = Replica.of(Distribution((0.0, 1.0), (2.0, 3.0)), capacity=50.0, sharing=1.0)
    content = report(slow, [1.0, 2.0], warm_up_s=warm_up_s)
    for stage in content["stages"]:
        stage["done_texts_rate"] = 0.92 * stage["texts_rate"]  # 5 and 10 calls of 60 s were under way

    measured = measured_in(content)

    assert (len(measured.stages), measured.capacity) == (2, None)


def test_a_capacity_below_a_rate_that_was_kept_up_with_is_not_believed():
    measured = measured_in(with_refusals(report(TRUE, [10.0, 30.0]), 20.0))

    assert measured.capacity is None
    assert "20.0 texts/s answered, but another kept up with 30.0" in measured.left_out[0]


def test_a_stage_that_failed_otherwise_is_left_out_and_named():
    content = report(TRUE, [10.0, 20.0, 30.0])
    content["stages"][2]["codes"] = {"OK": content["stages"][2]["calls"] - 9, "INTERNAL": 9}

    measured = measured_in(content)

    assert measured.highest_rate == 20.0
    assert "30.0 calls/s: left out, 9 INTERNAL of " in measured.left_out[0]


@pytest.mark.parametrize("done_texts_rate", [0.0, 40.0], ids=["nothing", "calls of the warm-up"])
@pytest.mark.parametrize("calls", [12_500, 5])
def test_a_stage_without_an_answer_is_left_out_and_named(calls, done_texts_rate):
    content = of_two_texts(report(TRUE, [10.0, 20.0]))
    del content["texts_per_call"]  # as older reports: the size of calls is known from answers alone
    for stage in content["stages"]:
        stage["done_texts_rate"] = stage["texts_rate"]
    tried = {"name": "500 calls/s", "offered_rate": 500.0, "calls": calls, "codes": {"DEADLINE_EXCEEDED": calls}}
    nothing = {"ok_rate": 0.0, "texts_rate": 0.0, "done_texts_rate": done_texts_rate, "latency_ms": {}}
    content["stages"].append({**content["stages"][-1], **tried, **nothing})

    measured = measured_in(content)

    assert [stage.traffic.rate for stage in measured.stages] == [20.0, 40.0]
    assert measured.capacity is None
    assert measured.left_out == (f"500 calls/s: left out, {calls} DEADLINE_EXCEEDED of {calls} calls",)


def test_reports_of_closed_loops_are_left_out():
    assert measured_in(report(TRUE, [10.0, 20.0]), report(TRUE, [30.0], callers=4)).highest_rate == 20.0


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({"calls": 5, "codes": {"OK": 5}}, r"10\.0 calls/s has 5 calls, at least 30 .* longer --duration"),
        ({"latency_ms": {}}, "latency_ms without p50"),
        ({"texts_rate": 320.0}, r"said to have 1 texts a call, but 32\.0 were answered"),
    ],
)
def test_a_stage_that_says_too_little_is_refused(stage, message):
    content = report(TRUE, [10.0, 30.0])
    content["stages"][0] |= stage

    with pytest.raises(ValueError, match=message):
        measured_in(content)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stages": [{"calls": 3}]}'])
def test_what_is_no_report_is_named(text):
    with pytest.raises(ValueError, match=r"x\.json is no JSON report"):
        read([("x.json", text)])


def test_one_rate_is_too_little():
    with pytest.raises(ValueError, match="kept up with 1 of 1 stages, at least 2"):
        measured_in(report(TRUE, [10.0]))
