"""The report of a load test."""

import json
from importlib.util import find_spec

import numpy as np
import pytest

from service.tools.loadtest.records import LoadTestReport, StageResult, check_file, summarize
from tests.fakes.ended_calls import records


@pytest.fixture
def report() -> LoadTestReport:
    calls = records(np.arange(0, 5, 0.1), np.full(50, 0.02), ["OK"] * 49 + ["INTERNAL"])
    stage = StageResult(name="10 calls/s", summary=summarize(calls, 5.0), records=calls)
    return LoadTestReport(
        target="<host>:1", command="dragoman loadtest", headline="fine", stages=[stage], warnings=["busy"]
    )


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="the page needs the extra loadtest")
def test_page_has_figures_charts_and_warnings_and_escapes_what_it_was_given(report):
    page = report.to_html()

    assert page.count("<svg") == 2
    assert "&lt;host&gt;:1" in page
    assert "<host>" not in page
    assert "busy" in page
    assert "INTERNAL 1" in page


def test_json_has_every_stage_and_csv_every_call(report):
    found = json.loads(report.to_json())
    lines = report.to_csv().splitlines()

    assert (found["target"], found["texts_per_call"], found["callers"]) == ("<host>:1", 1, None)
    (stage,) = found["stages"]
    assert (stage["name"], stage["calls"], stage["codes"]) == ("10 calls/s", 50, {"INTERNAL": 1, "OK": 49})
    assert len(lines) == 51
    assert lines[1] == "10 calls/s,0.000000,0.000000,0.020000,OK,1"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("report.pdf", r"'\.pdf', there are \.html, \.json, \.csv"),
        ("none/report.json", "no file can be made in its directory: No such file or directory"),
        ("directory.json", "Is a directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_load_is_made(tmp_path, name, message):
    (tmp_path / "directory.json").mkdir()

    with pytest.raises((ValueError, OSError), match=message):
        check_file(tmp_path / name)
