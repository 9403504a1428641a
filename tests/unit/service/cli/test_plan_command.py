"""`dragoman plan` as a user meets it, with a report whose figures are known."""

import json

import pytest
from typer.testing import CliRunner, Result

from service.cli.app import app


def stage(rate: float, codes: dict[str, int], answered: float, p99_ms: float) -> dict[str, object]:
    return {
        "name": f"{rate:g} calls/s",
        "offered_rate": rate,
        "ok_rate": answered,
        "texts_rate": answered,
        "calls": sum(codes.values()),
        "codes": codes,
        "latency_ms": {"p50": p99_ms / 2, "p99": p99_ms},
        "duration_s": 60.0,
        "done_texts_rate": answered,
        "done_rate": answered,
        "refusal_ms_p99": None,
        "send_delay_ms_p99": 0.0,
    }


@pytest.fixture
def report(tmp_path):
    stages = [
        stage(2.0, {"OK": 120}, 2.0, 100.0),
        stage(10.0, {"OK": 600}, 10.0, 150.0),
        stage(14.0, {"OK": 840}, 14.0, 250.0),
        stage(40.0, {"OK": 1200, "RESOURCE_EXHAUSTED": 1200}, 20.0, 900.0),
    ]
    file = tmp_path / "one.json"
    file.write_text(json.dumps({"texts_per_call": 1, "warm_up_s": 0.0, "callers": None, "stages": stages}))
    return file


def plan(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def test_the_replicas_are_the_rate_by_what_one_of_them_holds(report):
    done = plan(report, "--rate", 100, "--p99-ms", 200, "--json")

    answer = json.loads(done.stdout)
    assert done.exit_code == 0, done.output
    assert answer["replica"] == {"texts_per_second": pytest.approx(12.0)}
    assert answer["replicas"] == 9  # 100 / 12, rounded up
    by_number = {item["replicas"]: item["p99_ms"] for item in answer["predictions"]}
    assert by_number[9] <= 200 < by_number[8]
    assert answer["warnings"] == ["40 calls/s: left out, 1200 RESOURCE_EXHAUSTED of 2400 calls"]


@pytest.mark.parametrize(
    ("arguments", "warning"),
    [
        (["--rate", 27.9, "--p99-ms", 250], "the highest rate measured: higher ones may hold"),
        (["--rate", 20, "--p99-ms", 120], "between 2 and 10 texts/s nothing was measured"),
    ],
)
def test_what_the_answer_rests_on_is_said(report, arguments, warning):
    answer = json.loads(plan(report, *arguments, "--json").stdout)

    assert any(warning in one for one in answer["warnings"]), answer["warnings"]


def test_a_rate_that_is_a_multiple_of_one_replicas_needs_no_other(report):
    assert json.loads(plan(report, "--rate", 42, "--p99-ms", 250, "--json").stdout)["replicas"] == 3


def test_the_answer_is_a_sentence_under_two_tables(report):
    done = plan(report, "--rate", 100, "--p99-ms", 200)

    assert done.exit_code == 0, done.output
    assert "9 replicas hold a p99 of 200 ms at 100 texts/s" in done.stdout
    assert "10 calls/s" in done.stdout


def test_what_cannot_be_answered_is_one_line_and_exit_code_2(report):
    done = plan(report, "--rate", 100, "--p99-ms", 50)

    message = "a p99 of 50 ms cannot be held: it is 100 ms at 2 texts/s, the lowest rate that was measured"
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, f"dragoman: {message}")
