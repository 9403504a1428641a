"""`dragoman plan` as a user meets it, with reports of a replica whose latency is known."""

import json

import pytest
from typer.testing import CliRunner, Result

from service.cli.app import app

# One text at a time takes 100 ms, however many there are: rows enough, and no slowing down up to 20 texts/s.
QUANTILES = dict.fromkeys(("p10", "p50", "p90", "p95", "p99"), 100.0)


def stage(rate: float, codes: dict[str, int], texts_rate: float) -> dict[str, object]:
    return {
        "name": f"{rate:g} calls/s",
        "offered_rate": rate,
        "ok_rate": texts_rate,
        "texts_rate": texts_rate,
        "calls": sum(codes.values()),
        "codes": codes,
        "latency_ms": QUANTILES,
        "duration_s": 60.0,
        "done_texts_rate": texts_rate,
    }


@pytest.fixture
def report(tmp_path):
    stages = [
        stage(2.0, {"OK": 120}, 2.0),
        stage(10.0, {"OK": 600}, 10.0),
        stage(40.0, {"OK": 1200, "RESOURCE_EXHAUSTED": 1200}, 20.0),
    ]
    file = tmp_path / "one.json"
    file.write_text(json.dumps({"arrivals": "constant", "texts_per_call": 1, "warm_up_s": 0.0, "stages": stages}))
    return file


def plan(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def test_spare_replicas_come_on_top_of_those_needed(report):
    done = plan(report, "--rate", 100, "--p99-ms", 200, "--spare", 2, "--json")

    answer = json.loads(done.stdout)
    assert done.exit_code == 0, done.output
    assert answer["replica"]["texts_per_second"] == pytest.approx(20.0, rel=0.05)
    assert answer["replicas"] == answer["needed"] + 2
    by_number = {item["replicas"]: item for item in answer["predictions"]}
    assert by_number[answer["needed"]]["p99_ms"] <= 200
    assert by_number[answer["needed"] - 1]["p99_ms"] is None or by_number[answer["needed"] - 1]["p99_ms"] > 200


def test_the_answer_is_a_sentence_under_two_tables(report, tmp_path):
    pytest.importorskip("matplotlib", reason="the chart needs the extra loadtest")

    done = plan(report, "--rate", 100, "--p99-ms", 200, "--chart", tmp_path / "plan.svg")

    assert done.exit_code == 0, done.output
    assert "replicas hold a p99 of 200 ms at 100 texts/s" in done.stdout
    assert "10 calls/s" in done.stdout
    assert (tmp_path / "plan.svg").read_text().count("<svg") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", 100, "--p99-ms", 50], "a p99 of 50 ms cannot be held: without other calls it is 100 ms"),
        (
            ["--rate", 100, "--p99-ms", 200, "--chart", "plan.txt"],
            "plan.txt has the suffix '.txt', there are .png, .svg",
        ),
    ],
)
def test_what_cannot_be_answered_is_one_line_and_exit_code_2(report, arguments, message):
    done = plan(report, *arguments)

    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, f"dragoman: {message}")
