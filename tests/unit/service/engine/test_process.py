"""What crosses between the core and an engine, and what importing it costs."""

import os
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from service.child_process import environment
from service.engine.loop import EngineLoop
from service.engine.wire import Command, EngineSpec, Job, JobResult, Report, SchedulerConfig, SearchParams, StepStats
from service.engine.worker import _create_engine, _serve
from tests.fakes.fake_runner import FakeRunner

JOB = Job(
    id=1, source_ids=(5, 3), params=SearchParams(beam_size=2, max_target_tokens=3), deadline=1.5, submitted_at=0.5
)
JOB_WITHOUT_DEADLINE = JOB._replace(deadline=None, submitted_at=None)


class Enough(Exception):
    """The core is gone."""


def test_engine_reports_the_outcome_of_what_it_is_told_to_start():
    inbox: SimpleQueue[Command] = SimpleQueue()
    reports: list[Report] = []

    def send(report: Report) -> None:
        reports.append(report)
        if report.stats and any(report.outcomes for report in reports):
            raise Enough

    inbox.put(JOB_WITHOUT_DEADLINE)
    with pytest.raises(Enough):
        _serve(EngineLoop(FakeRunner()), inbox, send, heartbeat_interval_s=60.0)

    (outcome,) = [outcome for report in reports for outcome in report.outcomes]
    assert isinstance(outcome, JobResult)
    assert sum(report.stats.steps for report in reports if report.stats) == outcome.num_steps


def test_idle_engine_gives_a_sign_of_life_every_heartbeat():
    inbox: SimpleQueue[Command] = SimpleQueue()
    reports: list[Report] = []

    def send(report: Report) -> None:
        reports.append(report)
        if len(reports) == 3:
            raise Enough

    with pytest.raises(Enough):
        _serve(EngineLoop(FakeRunner()), inbox, send, heartbeat_interval_s=0.001)

    budgets = SchedulerConfig()
    idle = StepStats(max_rows=budgets.max_rows, max_source_tokens=budgets.max_source_tokens)
    assert reports == [Report((), idle)] * 3


@pytest.mark.parametrize(("batch_gives_way", "is_batch", "is_behind"), [(1, 1, 1), (1, 0, 0), (0, 1, 0)])
def test_steps_of_batch_work_alone_are_behind_other_engines(batch_gives_way, is_batch, is_behind):
    inbox: SimpleQueue[Command] = SimpleQueue()
    own, seen = os.getpriority(os.PRIO_PROCESS, 0), set[int]()

    class Runner(FakeRunner):
        def decode_step(self, *args: Any, **named: Any) -> Any:
            seen.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            return super().decode_step(*args, **named)

    def send(report: Report) -> None:
        if report.outcomes:
            raise Enough

    inbox.put(JOB_WITHOUT_DEADLINE._replace(is_batch=bool(is_batch)))
    with pytest.raises(Enough):
        _serve(EngineLoop(Runner()), inbox, send, 60.0, batch_gives_way=bool(batch_gives_way))

    assert seen == {min(19, own + 10 * is_behind)}


def test_engine_imports_what_this_process_imports_and_starts_no_thread_pools_of_numpy(monkeypatch):
    monkeypatch.setattr(sys, "path", ["", "/somewhere"])

    variables = environment()

    assert variables["PYTHONPATH"].split(":") == [str(Path.cwd()), "/somewhere"]
    assert variables["OPENBLAS_NUM_THREADS"] == "1"


def test_model_that_cannot_translate_the_simplest_sentence_does_not_start():
    spec = EngineSpec(bundle_dir=Path("b"), runner_factory=f"{__name__}:break_encoder")

    with pytest.raises(RuntimeError, match="the model does not run: the encoder failed: ValueError"):
        _create_engine(spec)


def break_encoder(spec: EngineSpec) -> FakeRunner:
    class BrokenRunner(FakeRunner):
        def encode(self, sources):
            raise ValueError("inputs that are not there")

    return BrokenRunner()
