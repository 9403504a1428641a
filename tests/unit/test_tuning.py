"""What is measured and how one setting is chosen; the engines are real processes around a model without arithmetic."""

import asyncio
import math
import os
import time
from pathlib import Path

import pytest

from model.config import EOS_ID
from service.commands import tuning, tuning_choice, tuning_engines
from service.commands.tuning import Tuner
from service.commands.tuning_choice import (
    Measurement,
    Preference,
    Sample,
    Setting,
    Shape,
    Turn,
    choose,
    shapes,
    with_other_rows,
)
from service.commands.tuning_engines import available_bytes, resident_bytes
from service.config import EngineConfig
from service.engine.job import FinishReason, Hypothesis, JobResult, SearchParams
from service.engine.scheduler import SchedulerConfig
from tests.fakes import echo_runner

PARAMS = SearchParams(beam_size=2, max_target_tokens=20)
SOURCES = [(5 + number, 6, 7, EOS_ID) for number in range(10)]


def measurement(
    *speeds: float, latency_s: float = 0.010, memory: int = 100, engines: int = 1, failure: str | None = None
) -> Measurement:
    turns = [Turn(rows_per_s=speed, memory_bytes=memory) for speed in speeds]
    setting = Setting(num_engines=engines, threads=1, max_rows=128)
    return Measurement(setting, [latency_s], turns, failure)


class TestChoice:
    def test_balance_takes_the_highest_throughput_that_answers_in_time(self):
        quick, balanced, slow = (
            measurement(100, latency_s=0.010),
            measurement(200, latency_s=0.015),
            measurement(300, latency_s=0.016),
        )

        assert choose([quick, balanced, slow], Preference.BALANCE) is balanced

    def test_latency_and_throughput_take_the_best_of_their_kind(self):
        quick, balanced, slow = (
            measurement(100, latency_s=0.010),
            measurement(200, latency_s=0.012),
            measurement(300, latency_s=0.050),
        )

        assert choose([quick, balanced, slow], Preference.LATENCY) is quick
        assert choose([quick, balanced, slow], Preference.THROUGHPUT) is slow

    def test_of_equal_latencies_the_higher_throughput_wins(self):
        assert choose([measurement(100), best := measurement(200)], Preference.LATENCY) is best

    def test_a_difference_that_is_none_goes_to_the_smaller_memory(self):
        large, small = measurement(102, memory=900), measurement(100, memory=300)

        assert choose([large, small], Preference.THROUGHPUT) is small

    def test_settings_without_figures_or_with_a_failure_are_not_chosen(self):
        good = measurement(10)

        assert choose([measurement(), measurement(99, failure="lost"), good], Preference.BALANCE) is good

    def test_one_disturbed_turn_does_not_decide(self):
        steady, disturbed = measurement(100, 101, 102), measurement(20, 200, 201)

        assert steady.rows_per_s == 101
        assert disturbed.spread == pytest.approx(181 / 200)
        assert choose([steady, disturbed], Preference.THROUGHPUT) is disturbed


class TestSettings:
    @pytest.mark.parametrize(
        ("num_cpus", "expected"),
        [
            (1, [(1, 1)]),
            (2, [(1, 1), (1, 2), (2, 1)]),
            (6, [(1, 3), (1, 6), (3, 1), (3, 2), (6, 1)]),
            (16, [(1, 8), (1, 16), (2, 8), (4, 4), (8, 1), (8, 2), (16, 1)]),
        ],
    )
    def test_shapes_use_all_cpus_or_half_of_them(self, num_cpus, expected):
        assert [setting.shape for setting in shapes(num_cpus)] == [Shape(*pair) for pair in expected]
        assert {setting.max_rows for setting in shapes(num_cpus)} == {SchedulerConfig().max_rows}

    def test_rows_are_varied_as_far_as_a_beam_fits(self):
        setting = Setting(num_engines=2, threads=1, max_rows=128)

        assert [each.max_rows for each in with_other_rows(setting, 4)] == [32, 64, 128, 256]
        assert [each.max_rows for each in with_other_rows(setting, 64)] == [64, 128, 256]
        assert {each.shape for each in with_other_rows(setting, 4)} == {Shape(2, 1)}

    def test_settings_read_as_a_person_would_say_them(self):
        assert str(Setting(num_engines=2, threads=1, max_rows=64)) == "2 engines x 1 thread, max_rows 64"
        assert str(Setting(num_engines=1, threads=4, max_rows=64)) == "1 engine x 4 threads, max_rows 64"


def test_percentiles_are_of_all_single_sentences():
    latencies_s = [0.001 * number for number in range(1, 101)]
    measured = Measurement(Setting(num_engines=1, threads=1, max_rows=8), latencies_s)

    assert measured.latency_p50_s == pytest.approx(0.0505)
    assert measured.latency_p95_s == pytest.approx(0.095, abs=0.001)


def test_a_sentence_counts_once_however_often_it_was_translated():
    sample = Sample(SOURCES, PARAMS)
    for source, num_steps in ((SOURCES[0], 4), (SOURCES[0], 4), (SOURCES[0], 4), (SOURCES[1], 8)):
        hypothesis = Hypothesis(
            token_ids=(9,) * (num_steps - 1), score=-1.0, finish_reason=FinishReason.END_OF_SENTENCE
        )
        sample.note(
            source,
            JobResult(job_id=0, hypotheses=(hypothesis,), queue_s=0, encode_s=0, decode_s=0, num_steps=num_steps),
        )

    assert sample.rows_per_sentence == 2 * 6
    assert sample.tokens_per_sentence == 5
    assert sample.source(len(SOURCES) + 3) == SOURCES[3]


class TestMemory:
    def test_of_this_process_is_found_and_of_none_is_zero(self):
        assert resident_bytes(os.getpid()) > 10_000_000
        assert resident_bytes(2**30) == 0

    @pytest.mark.parametrize(
        ("limit", "expected"), [("max", 2_000 * 1_024), ("600000", 500_000), (None, 2_000 * 1_024)]
    )
    def test_left_is_the_smaller_of_the_machine_s_and_the_container_s(self, tmp_path, limit, expected):
        meminfo = tmp_path / "meminfo"
        meminfo.write_text("MemTotal:  9000 kB\nMemFree:  1000 kB\nMemAvailable:  2000 kB\n")
        if limit:
            (tmp_path / "memory.max").write_text(f"{limit}\n")
            (tmp_path / "memory.current").write_text("100000\n")

        assert available_bytes(meminfo, tmp_path) == expected

    def test_left_without_any_figure_is_unlimited(self, tmp_path):
        assert available_bytes(tmp_path / "none", tmp_path) == math.inf


def tuner(**settings: object) -> Tuner:
    config = EngineConfig(runner_factory=echo_runner.FACTORY)
    return Tuner(Path("no-bundle"), config, Sample(SOURCES, PARAMS), start_timeout_s=30.0, **settings)  # type: ignore[arg-type]


@pytest.fixture
def two_cpus(monkeypatch):
    """Two CPUs; few rows and rounds, for the time's sake."""
    monkeypatch.setattr(tuning, "available_threads", lambda: 2)
    monkeypatch.setattr(tuning_choice, "_MAX_ROWS", (4, 128))
    monkeypatch.setattr(tuning, "_MAX_ROUNDS", 2)


async def test_engines_that_wait_rather_than_compute_are_best_in_numbers(monkeypatch, two_cpus):
    """A step sleeps, however many rows it has: two engines do twice as much, and 4 rows much less than 128."""
    monkeypatch.setenv("ECHO_STEP_S", "0.02")
    monkeypatch.setattr(tuning, "_MAX_ROUNDS", 3)  # one disturbed turn does not decide
    monkeypatch.setattr(tuning, "_TURN_S", (0.3, 0.3))  # so that rounds end it, and not the time
    begun: list[Setting] = []

    measured = await tuner(on_turn=begun.append).run(100.0, Preference.THROUGHPUT)

    assert [(each.setting.shape, each.setting.max_rows) for each in measured] == [
        ((1, 1), 128),
        ((1, 2), 128),
        ((2, 1), 128),
        ((2, 1), 4),
    ]
    assert choose(measured, Preference.THROUGHPUT).setting == Setting(num_engines=2, threads=1, max_rows=128)
    assert all(each.turns and each.memory_bytes > 10_000_000 for each in measured)
    assert all(each.latency_p50_s > 4 * 0.02 for each in measured)  # three tokens and the end
    assert begun[:3] == [each.setting for each in measured[:3]]


async def test_time_is_kept_and_no_engine_is_left(monkeypatch, two_cpus):
    monkeypatch.setenv("ECHO_LOAD_S", "300")
    began = time.monotonic()

    measured = await tuner().run(1.0, Preference.BALANCE)

    assert time.monotonic() - began < 100
    assert not any(each.is_usable for each in measured)
    assert len(asyncio.all_tasks()) == 1  # this one


async def test_engines_that_do_not_start_are_a_failure_of_their_setting(monkeypatch, two_cpus):
    monkeypatch.setenv("ECHO_FAIL", "no room")

    measured = await tuner().run(20.0, Preference.BALANCE)

    assert len(measured) == 3
    assert all("no room" in (each.failure or "") for each in measured)


async def test_settings_take_turns_also_where_memory_is_for_one_only(monkeypatch, two_cpus):
    monkeypatch.setattr(tuning_engines, "available_bytes", lambda: 0.0)
    monkeypatch.setattr(tuning, "_TURN_S", (0.3, 0.3))  # so that rounds end it, and not the time

    measured = await tuner().run(100.0, Preference.BALANCE)

    assert all(each.turns for each in measured)
    assert max(len(each.turns) for each in measured) > 1
