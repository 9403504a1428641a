"""Load tests: when calls are due, what their records say, the highest rate that holds, the report."""

import json
import multiprocessing
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos import translation_pb2 as pb
from service.cli.loadtest_run import LoadTest, priority_of, requests_of
from service.errors import Unavailable
from service.loadtest.records import Records, Summary, joined, summarize
from service.loadtest.report import Report, StageResult, check_file, figures
from service.loadtest.run import _received
from service.loadtest.schedule import Stage, due_times, share
from service.loadtest.search import Target, highest_rate
from service.queue.callers import Priority
from service.records import TranslateOptions


def records(due, latency, codes=None, send_delay=0.0) -> Records:
    due = np.array(due, dtype=float)
    codes = ["OK"] * len(due) if codes is None else codes
    return Records(
        due=due,
        sent=due + send_delay,
        done=due + np.array(latency, dtype=float),
        codes=np.array(codes, dtype=np.str_),
        texts=np.ones(len(due), dtype=np.int64),
    )


class TestSchedule:
    def test_constant_arrivals_keep_their_gap(self):
        assert due_times(Stage(rate=4, duration_s=1), "constant", seed=1).tolist() == [0.0, 0.25, 0.5, 0.75]

    @pytest.mark.parametrize("seed", range(5))
    def test_poisson_arrivals_are_exactly_as_many_as_the_rate_says(self, seed):
        assert len(due_times(Stage(rate=97.5, duration_s=20), "poisson", seed)) == 1950

    def test_poisson_arrivals_have_gaps_as_variable_as_their_mean(self):
        times = due_times(Stage(rate=50, duration_s=400), "poisson", seed=7)
        gaps = np.diff(times)

        assert 0.95 < gaps.std() / gaps.mean() < 1.05
        assert times[-1] < 400

    def test_the_seed_decides(self):
        stage = Stage(rate=10, duration_s=10)

        first, again, other = (due_times(stage, "poisson", seed) for seed in (1, 1, 2))

        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)

    @given(st.integers(1, 9), st.integers(0, 50))
    def test_workers_share_every_call_once(self, num_workers, count):
        times = np.arange(count, dtype=float)

        parts = [share(times, worker, num_workers) for worker in range(num_workers)]

        assert sorted(np.concatenate(parts).tolist()) == times.tolist()

    @pytest.mark.parametrize(("rate", "duration_s"), [(0, 1), (-1, 1), (1, 0)])
    def test_a_stage_without_calls_is_refused(self, rate, duration_s):
        with pytest.raises(ValueError, match="more than 0 is needed"):
            Stage(rate=rate, duration_s=duration_s)


class TestRecords:
    def test_latency_counts_from_when_a_call_was_due(self):
        late = records([0.0], [0.5], send_delay=0.4)

        assert late.latency_s.tolist() == [0.5]
        assert summarize(late, 1.0).send_delay_ms_p99 == pytest.approx(400.0)

    def test_only_answered_calls_have_latency_and_only_those_in_time_are_goodput(self):
        calls = records([0, 1, 2, 3], [0.1, 0.2, 0.9, 0.001], ["OK", "OK", "OK", "RESOURCE_EXHAUSTED"])

        summary = summarize(calls, 4.0, target_s=0.5)

        assert (summary.ok_rate, summary.goodput_rate, summary.offered_rate) == (0.75, 0.5, 1.0)
        assert summary.codes == {"OK": 3, "RESOURCE_EXHAUSTED": 1}
        assert summary.latency_ms["p50"] == pytest.approx(200.0)
        assert summary.refusal_ms_p99 == pytest.approx(1.0)

    def test_no_answer_at_all_has_no_latency(self):
        summary = summarize(records([0], [1], ["UNAVAILABLE"]), 1.0)

        assert (summary.latency_ms, summary.ok_rate, summary.refusal_ms_p99) == ({}, 0.0, None)

    def test_warm_up_is_cut_by_when_calls_were_due(self):
        assert records([0, 1, 2, 3], [9, 9, 1, 1]).after(2.0).latency_s.tolist() == [1.0, 1.0]

    def test_what_was_done_counts_by_when_it_was_answered(self):
        calls = records([0, 1, 2, 3, 3], [2.5, 0.5, 0.5, 1.5, 0.5], ["OK"] * 4 + ["RESOURCE_EXHAUSTED"])

        summary = summarize(calls, 4.0, warm_up_s=2.0)

        assert (summary.done_rate, summary.done_texts_rate) == (1.0, 1.0)  # the first and the third
        assert (summary.offered_rate, summary.ok_rate) == (1.5, 1.0)  # of those from the third on

    def test_a_full_server_is_shown_to_answer_what_it_can_and_not_what_it_was_offered(self):
        offered, capacity, duration_s = 180.0, 100.0, 30.0
        due = np.arange(round(offered * duration_s)) / offered
        answered = (np.arange(len(due)) + 1) / capacity  # one after the other, long after the stage too

        summary = summarize(records(due, answered - due), duration_s, warm_up_s=5.0)

        offered_cell, answered_cell, texts_cell, *_ = figures(summary)
        assert (offered_cell, answered_cell, texts_cell) == ("180.0", "100.0", "100.0")
        assert summary.ok_rate == 180.0
        assert summary.goodput_rate == summary.done_rate

    def test_workers_records_are_joined_in_order(self):
        both = joined([records([0, 2], [1, 1]), records([1, 3], [2, 2])])

        assert both.due.tolist() == [0, 1, 2, 3]
        assert both.latency_s.tolist() == [1, 2, 1, 2]


class TestSearch:
    @given(st.floats(1.0, 5_000.0), st.floats(0.5, 200.0))
    def test_the_highest_rate_is_found_from_any_start(self, capacity, first):
        def try_rate(rate: float) -> Summary:
            return summarize(records([0.0], [0.01 if rate <= capacity else 10.0]), 1.0)

        held, tried = highest_rate(try_rate, Target(p99_ms=100), first=first)

        assert capacity - 0.03 * max(capacity, 0.03 * first) <= held <= capacity
        assert len(tried) < 40

    @pytest.mark.parametrize("hiccup", range(12))
    def test_one_bad_moment_costs_a_stage_and_not_the_answer(self, hiccup):
        stages = iter(range(100))

        def try_rate(rate: float) -> Summary:
            is_fast = rate <= 100 and next(stages) != hiccup
            return summarize(records([0.0], [0.01 if is_fast else 10.0]), 1.0)

        held, _ = highest_rate(try_rate, Target(p99_ms=100), first=10)

        assert 97 <= held <= 100

    def test_a_server_that_answers_nothing_is_tried_once(self):
        def try_rate(_: float) -> Summary:
            return summarize(records([0.0], [0.01], ["PERMISSION_DENIED"]), 1.0)

        held, tried = highest_rate(try_rate, Target(p99_ms=100), first=10)

        assert (held, [rate for rate, _ in tried]) == (0.0, [10])

    def test_a_server_that_is_gone_ends_the_search_with_what_it_held(self):
        def try_rate(rate: float) -> Summary:
            return summarize(records([0.0], [0.01], ["OK" if rate < 40 else "UNAVAILABLE"]), 1.0)

        held, tried = highest_rate(try_rate, Target(p99_ms=100), first=10)

        assert (held, [rate for rate, _ in tried]) == (20, [10, 20, 40])

    def test_overload_without_an_answer_in_time_is_a_rate_that_broke(self):
        def try_rate(rate: float) -> Summary:
            return summarize(records([0.0], [0.01], ["OK" if rate <= 30 else "DEADLINE_EXCEEDED"]), 1.0)

        held, _ = highest_rate(try_rate, Target(p99_ms=100), first=10)

        assert 29 <= held <= 30

    def test_overload_from_the_first_rate_on_is_searched_downwards(self):
        def try_rate(rate: float) -> Summary:
            return summarize(records([0.0], [0.01], ["OK" if rate <= 30 else "DEADLINE_EXCEEDED"]), 1.0)

        held, _ = highest_rate(try_rate, Target(p99_ms=100), first=100)

        assert 29 <= held <= 30

    def test_refusals_break_a_rate_though_answers_are_fast(self):
        calls = records([0] * 100, [0.01] * 100, ["OK"] * 99 + ["RESOURCE_EXHAUSTED"])

        assert not Target(p99_ms=100).is_held(summarize(calls, 1.0))


class TestReport:
    @pytest.fixture
    def report(self) -> Report:
        calls = records(np.arange(0, 5, 0.1), np.full(50, 0.02), ["OK"] * 49 + ["INTERNAL"])
        stage = StageResult(name="10 calls/s", summary=summarize(calls, 5.0), records=calls)
        return Report(
            target="<host>:1", command="dragoman loadtest", headline="fine", stages=[stage], warnings=["busy"]
        )

    @pytest.mark.skipif(find_spec("matplotlib") is None, reason="the page needs the extra loadtest")
    def test_page_has_figures_charts_and_warnings_and_escapes_what_it_was_given(self, report):
        page = report.to_html()

        assert page.count("<svg") == 2
        assert "&lt;host&gt;:1" in page
        assert "<host>" not in page
        assert "busy" in page
        assert "INTERNAL 1" in page

    def test_json_has_every_stage(self, report):
        (stage,) = json.loads(report.to_json())["stages"]

        assert (stage["name"], stage["calls"], stage["codes"]) == ("10 calls/s", 50, {"INTERNAL": 1, "OK": 49})

    def test_csv_has_every_call(self, report):
        lines = report.to_csv().splitlines()

        assert len(lines) == 51
        assert lines[1] == "10 calls/s,0.000000,0.000000,0.020000,OK,1"

    def test_unknown_suffix_is_refused_before_the_load_is_made(self):
        with pytest.raises(ValueError, match=r"'\.pdf', there are \.html, \.json, \.csv"):
            check_file(Path("report.pdf"))

    def test_a_file_in_no_directory_is_refused_before_the_load_is_made(self, tmp_path):
        with pytest.raises(ValueError, match=r"none/report\.json cannot be written: .*/none is no directory"):
            check_file(tmp_path / "none" / "report.json")

    def test_a_directory_is_no_file(self, tmp_path):
        directory = tmp_path / "report.json"
        directory.mkdir()

        with pytest.raises(ValueError, match="it is a directory"):
            check_file(directory)

    @pytest.mark.parametrize("is_there", [True, False])
    def test_a_file_without_permission_is_refused_before_the_load_is_made(self, tmp_path, monkeypatch, is_there):
        file = tmp_path / "report.json"
        if is_there:
            file.touch()
        denied = file if is_there else tmp_path
        monkeypatch.setattr("os.access", lambda path, _: path != denied)  # root may write everywhere

        with pytest.raises(ValueError, match="no permission"):
            check_file(file)


class TestCommand:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({}, "choose one of"),
            ({"rates": (1.0,), "concurrency": 2}, "choose one of"),
            ({"rates": (1.0,), "warm_up_s": 30.0}, "the warm-up is 30 s"),
            ({"rates": (1.0,), "arrivals": "bursts"}, "'bursts', there are poisson and constant"),
            ({"rates": (50.0, 0.0)}, "--rate is 0, more than 0 and at most 1,000,000 is accepted"),
            ({"rates": (float("inf"),)}, "--rate is inf, more than 0"),
            ({"rates": (float("nan"),)}, "--rate is nan, more than 0"),
            ({"find_p99_ms": -1.0}, "--find-p99 is -1"),
            ({"find_p99_ms": 100.0, "first_rate": 0.0}, "--first-rate is 0"),
            ({"rates": (1.0,), "duration_s": float("inf")}, "--duration is inf, more than 0 and at most 86,400"),
            ({"rates": (1.0,), "timeout_s": 0.0}, "--timeout is 0"),
            ({"rates": (1.0,), "target_ms": -5.0}, "--target is -5"),
            ({"rates": (1.0,), "warm_up_s": -5.0}, "--warm-up is -5, 0 s or more are needed"),
            ({"rates": (1.0,), "warm_up_s": float("nan")}, "--warm-up is nan"),
            ({"rates": (1.0,), "reports": (Path("/none/a.json"),)}, "/none is no directory"),
        ],
    )
    def test_contradictions_are_refused(self, given, message):
        with pytest.raises(ValueError, match=message):
            LoadTest(server="x:1", **given)

    def test_options_and_priorities_are_taken_in_turn_with_every_text(self, tmp_path):
        file = tmp_path / "texts"
        file.write_bytes("\ufeffa\u2028a\r\n\nb\n".encode())
        beams = (TranslateOptions(beam_size=1), TranslateOptions(beam_size=4))
        classes = (Priority.INTERACTIVE, Priority.BATCH)

        sent = requests_of(LoadTest(server="x:1", rates=(1.0,), texts=file, options=beams, priorities=classes))

        kinds = [(call.texts[0], call.options.beam_size, call.priority) for call in map(parsed, sent)]
        assert len(kinds) == len(set(kinds)) == 8
        assert {text for text, *_ in kinds} == {"a\u2028a", "b"}
        assert {priority for *_, priority in kinds} == {pb.PRIORITY_INTERACTIVE, pb.PRIORITY_BATCH}

    @pytest.mark.parametrize("size", [1, 3, 4, 5, 32])
    def test_every_call_has_as_many_texts_as_the_report_says(self, size):
        command = LoadTest(server="x:1", rates=(1.0,), texts_per_call=size)

        calls = [list(parsed(request).texts) for request in requests_of(command)]

        assert {len(texts) for texts in calls} == {size}
        assert len({text for texts in calls for text in texts}) == 4  # each of the samples is sent

    def test_model_and_languages_are_in_every_request(self):
        wanted = LoadTest(server="x:1", rates=(1.0,), model="m", source_language="de", target_language="en")

        sent = [parsed(request) for request in requests_of(wanted)]

        assert {(call.model, call.source_language, call.target_language) for call in sent} == {("m", "de", "en")}

    def test_priorities_have_names(self):
        assert priority_of("batch") is Priority.BATCH
        with pytest.raises(ValueError, match="'urgent', there are interactive and batch"):
            priority_of("urgent")


def parsed(request: bytes) -> pb.TranslateRequest:
    return pb.TranslateRequest.FromString(request)


def test_a_process_that_dies_is_said_in_one_line():
    receiver, sender = multiprocessing.Pipe(duplex=False)
    sender.close()

    with receiver, pytest.raises(Unavailable, match="a process that sends calls has died"):
        _received(receiver)
