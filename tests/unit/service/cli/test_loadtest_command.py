"""What `dragoman loadtest` makes of its options, and says of its stages; here stages take no time."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from protos import translation_pb2 as pb
from service.cli import loadtest as loadtest_command
from service.cli.loadtest import LoadTest, requests_of
from service.errors import Unavailable
from service.tools.loadtest import StageOutcome
from tests.fakes.ended_calls import records

Run = Callable[..., str]  # stages, options -> everything that was printed


def outcome(rate: float, duration_s: float, code: str = "OK", capacity: float = float("inf")) -> StageOutcome:
    """Of a server that answers one call after the other, so many a second, or none."""
    due = np.arange(round(rate * duration_s)) / rate
    latency_s = np.maximum(0.0, np.arange(len(due)) / capacity - due) + 0.001
    return StageOutcome(records(due, latency_s, np.full(len(due), code)), cpu_s=0.0)


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def run(monkeypatch, screen: io.StringIO) -> Run:
    """Runs a test whose stages come to what it is given."""

    def with_stages(stages: Callable[[float, float], StageOutcome], **options: Any) -> str:
        monkeypatch.setattr(loadtest_command, "require_server", lambda load, wait_s: None)
        monkeypatch.setattr(loadtest_command, "run_stage", lambda _, rate, duration_s, __: stages(rate, duration_s))
        command = LoadTest(**{"server": "x:1", "warm_up_s": 0.0, "duration_s": 10.0, **options})
        loadtest_command.run(command, Console(file=screen, width=140))
        return screen.getvalue()

    return with_stages


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "choose one of"),
        ({"rates": (1.0,), "concurrency": 2}, "choose one of"),
        ({"rates": (1.0,), "warm_up_s": 30.0}, "the warm-up is 30 s"),
        ({"rates": (1.0,), "arrivals": "bursts"}, "'bursts', there are poisson and constant"),
        ({"rates": (1.0, 1e6), "duration_s": 60.0}, "--rate 1e.06 for --duration 60 makes 60,000,000 calls, at most"),
        ({"rates": (1.0,), "report": Path("/none/a.json")}, "no file can be made in its directory"),
    ],
)
def test_contradictions_are_refused(given, message):
    with pytest.raises((ValueError, OSError), match=message):
        LoadTest(server="x:1", **given)


def test_a_file_of_texts_that_is_no_text_is_named_with_its_line(tmp_path):
    (tmp_path / "texts").write_bytes(b"a\nb\xff\n")

    with pytest.raises(ValueError, match="texts is not valid UTF-8 at byte 3"):
        parsed(LoadTest(rates=[1.0], texts=tmp_path / "texts"))


def test_options_and_priorities_are_taken_in_turn_with_every_text(tmp_path):
    file = tmp_path / "texts"
    file.write_bytes("\ufeffa\u2028a\r\n\nb\n".encode())
    classes = ["interactive", "batch"]

    sent = parsed(LoadTest(rates=[1.0], texts=file, beam_sizes=[1, 4], priorities=classes))

    kinds = [(call.texts[0], call.options.beam_size, call.priority) for call in sent]
    assert len(kinds) == len(set(kinds)) == 8
    assert {text for text, *_ in kinds} == {"a\u2028a", "b"}
    assert {priority for *_, priority in kinds} == {pb.PRIORITY_INTERACTIVE, pb.PRIORITY_BATCH}


def parsed(command: LoadTest) -> list[pb.TranslateRequest]:
    return [pb.TranslateRequest.FromString(request) for request in requests_of(command)]


def test_a_priority_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="'urgent', there are interactive and batch"):
        requests_of(LoadTest(rates=[1.0], priorities=["urgent"]))


def test_the_headline_is_what_the_server_answered_while_the_stage_lasted(run):
    printed = run(lambda rate, duration_s: outcome(rate, duration_s, capacity=100.0), rates=(50.0, 180.0))

    assert printed.splitlines()[-1] == "at most 100.0 calls/s answered"


def test_a_search_among_refusals_says_their_status(run):
    printed = run(lambda rate, duration_s: outcome(rate, duration_s, "PERMISSION_DENIED"), find_p99_ms=100.0)

    headline = printed.splitlines()[-1]
    assert "no rate held" in headline
    assert "PERMISSION_DENIED 100" in headline
    assert printed.count("PERMISSION_DENIED") == 2  # in the table, of one stage, and there


@pytest.mark.parametrize("end", [KeyboardInterrupt(), Unavailable("no server answers")])
def test_finished_stages_are_shown_and_reported_when_it_ends_early(run, screen, tmp_path, end):
    def stages(rate: float, duration_s: float) -> StageOutcome:
        if rate == 30.0:
            raise end
        return outcome(rate, duration_s)

    file = tmp_path / "report.json"
    with pytest.raises(type(end)):
        run(stages, rates=(10.0, 20.0, 30.0, 40.0), report=file)

    report = json.loads(file.read_text())
    assert [stage["name"] for stage in report["stages"]] == ["10.0 calls/s", "20.0 calls/s"]
    assert "at most 20.0 calls/s answered" in report["headline"]
    assert report["headline"] in screen.getvalue()
