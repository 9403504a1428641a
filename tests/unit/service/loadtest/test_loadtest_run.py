"""What `dragoman loadtest` says of its stages, with stages that take no time."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from service.cli import loadtest_run
from service.cli.loadtest_run import LoadTest
from service.errors import Unavailable
from service.loadtest.records import Records
from service.loadtest.run import Outcome
from service.loadtest.schedule import Stage

Run = Callable[..., str]  # stages, options -> everything that was printed


def outcome(stage: Stage, code: str = "OK", capacity: float = float("inf")) -> Outcome:
    """Of a server that answers one call after the other, so many a second, or none."""
    due = np.arange(round(stage.rate * stage.duration_s)) / stage.rate
    done = np.maximum(due, np.arange(len(due)) / capacity) + 0.001
    codes, texts = np.full(len(due), code), np.ones(len(due), dtype=np.int64)
    return Outcome(Records(due=due, sent=due, done=done, codes=codes, texts=texts), cpu_s=0.0)


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def run(monkeypatch, screen: io.StringIO) -> Run:
    """Runs a test whose stages come to what it is given."""

    def with_stages(stages: Callable[[Stage], Outcome], **options: Any) -> str:
        monkeypatch.setattr(loadtest_run, "run_stage", lambda _, stage, __: stages(stage))
        command = LoadTest(**{"server": "x:1", "warm_up_s": 0.0, "duration_s": 10.0, **options})
        loadtest_run.run(command, Console(file=screen, width=140))
        return screen.getvalue()

    return with_stages


def test_the_headline_is_what_the_server_answered_while_the_stage_lasted(run):
    printed = run(lambda stage: outcome(stage, capacity=100.0), rates=(50.0, 180.0))

    assert printed.splitlines()[-1] == "at most 100.0 calls/s answered"


def test_a_search_among_refusals_says_their_status(run):
    printed = run(lambda stage: outcome(stage, "PERMISSION_DENIED"), find_p99_ms=100.0)

    assert printed.splitlines()[-1] == (
        "no rate held a p99 of 100 ms; of 10.0 calls/s none was answered: PERMISSION_DENIED 100"
    )
    assert printed.count("PERMISSION_DENIED") == 2  # in the table, of one stage, and there


@pytest.mark.parametrize("end", [KeyboardInterrupt(), Unavailable("no server answers")])
def test_finished_stages_are_shown_and_reported_when_it_ends_early(run, screen, tmp_path, end):
    def stages(stage: Stage) -> Outcome:
        if stage.rate == 30.0:
            raise end
        return outcome(stage)

    file = tmp_path / "report.json"
    with pytest.raises(type(end)):
        run(stages, rates=(10.0, 20.0, 30.0, 40.0), reports=(file,))

    report = json.loads(file.read_text())
    assert [stage["name"] for stage in report["stages"]] == ["10.0 calls/s", "20.0 calls/s"]
    assert report["headline"] == "ended early; in the finished stages at most 20.0 calls/s answered"
    assert "10.0 calls/s" in screen.getvalue()
    assert report["headline"] in screen.getvalue()


def test_nothing_is_shown_when_no_stage_was_finished(run, screen):
    def stages(_: Stage) -> Outcome:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(stages, rates=(10.0,))

    assert screen.getvalue().strip() == ""


def test_names_with_brackets_are_printed_as_they_are(run, tmp_path):
    file = tmp_path / "[x]" / f"{'long-' * 30}.csv"
    file.parent.mkdir()

    printed = run(outcome, rates=(10.0,), server="[fe80::1]:50051", reports=(file,))

    assert f"written: {file}" in printed.splitlines()
    assert "[fe80::1]:50051, " in printed


@pytest.mark.parametrize(("cpu_s", "has_advice"), [(9.5, True), (0.5, False)])
def test_more_workers_are_advised_only_where_the_cpu_of_the_sender_is_what_lacks(run, monkeypatch, cpu_s, has_advice):
    monkeypatch.setattr("os.cpu_count", lambda: 4)

    def late(stage: Stage) -> Outcome:
        calls = outcome(stage).records
        return Outcome(replace(calls, sent=calls.due + 0.1), cpu_s=cpu_s)

    printed = run(late, rates=(10.0,))

    assert "sent up to 100 ms late" in printed
    assert ("more --workers" in printed) == has_advice
