"""Metrics: labels of closed sets, series that are there before anything happens, and sums that add up."""

import re
from dataclasses import replace
from itertools import product

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.call import Call
from service.engine.wire import FinishReason, StepStats
from service.errors import InternalError, InvalidInput, TooLong
from service.records import (
    NOWHERE,
    Priority,
    TextWarning,
    TranslatedSegment,
    TranslatedText,
    Translation,
    TranslationRequest,
    TranslationResult,
    WarningKind,
)
from service.telemetry.families import REJECT_REASONS
from service.telemetry.metrics import Metrics
from service.telemetry.usage import UsageMeter
from tests.fakes.books import sample_of
from tests.fakes.server_process import ROOT

VERSIONS = [
    {"version": version, "sha256_12": "0" * 12, "provider": "cpu", "runtime": "native"} for version in ("1", "2")
]


def read(metrics: Metrics, name: str, **labels: str) -> float | None:
    """A sample of `dragoman_{name}`; None where there is no such series."""
    return sample_of(metrics, f"dragoman_{name}", labels)


def num_series(metrics: Metrics) -> int:
    families = text_string_to_metric_families(b"".join(metrics.exposition()).decode())
    return sum(len(family.samples) for family in families if family.name.startswith("dragoman"))


def test_call_is_in_flight_between_its_two_ends():
    metrics = Metrics()

    metrics.call_received("One")
    during = read(metrics, "requests_in_flight", method="One")
    metrics.call_answered("One", "", "NOT_FOUND", 0.2)

    assert (during, read(metrics, "requests_in_flight", method="One")) == (1.0, 0.0)
    assert read(metrics, "requests_received_total", method="One") == 1.0
    assert read(metrics, "requests_total", method="One", model="_other", code="NOT_FOUND") == 1.0


def test_durations_are_told_apart_by_method_priority_and_class_of_code():
    metrics = Metrics()
    calls = {
        ("One", "interactive", "OK"): 0.5,
        ("One", "batch", "OK"): 40.0,
        ("Two", "batch", "INVALID_ARGUMENT"): 9.0,
        ("Two", "batch", "CANCELLED"): 1.0,
        ("Two", "", "INTERNAL"): 2.0,
        ("Two", "", "UNAVAILABLE"): 5.0,
    }
    for (method, priority, code), duration_s in calls.items():
        metrics.call_received(method)
        metrics.call_answered(method, "m", code, duration_s, priority=priority)

    def seconds(method: str, priority: str, code_class: str) -> float | None:
        labels = {"method": method, "model": "m", "priority": priority, "code_class": code_class}
        return read(metrics, "request_duration_seconds_sum", **labels)

    assert (seconds("One", "interactive", "ok"), seconds("One", "batch", "ok")) == (0.5, 40.0)
    assert (seconds("Two", "batch", "client_error"), seconds("Two", "", "server_error")) == (10.0, 7.0)


def test_warnings_are_counted_by_kind_beside_the_segments():
    metrics = Metrics()
    model, segment = metrics.model("m"), TranslatedSegment(source=NOWHERE)

    def warned(kind: WarningKind) -> float | None:
        return read(metrics, "segment_warnings_total", model="m", kind=kind.value)

    before = [warned(kind) for kind in WarningKind]
    kinds = [(WarningKind.COPIED, WarningKind.EMPTY), (WarningKind.COPIED,)]
    warnings = [tuple([TextWarning(kind, "", NOWHERE) for kind in some]) for some in kinds]
    warned_of = tuple([replace(segment, warnings=some) for some in warnings])
    for translation in (Translation(segments=(segment,) * 3), Translation(segments=warned_of, retries=1)):
        model.text_translated(translation, 0)

    assert set(before) == {0.0}
    assert (warned(WarningKind.COPIED), warned(WarningKind.EMPTY), warned(WarningKind.SPLIT)) == (2.0, 1.0, 0.0)
    assert read(metrics, "segments_total", model="m") == 5.0
    assert read(metrics, "segment_retries_total", model="m") == 1.0


def test_values_outside_their_closed_set_count_as_other_and_add_no_series():
    metrics = Metrics(methods=("One",))

    def count(value: str) -> None:
        metrics.rejected(value)
        metrics.model("m").job_dropped("queue", value)
        metrics.model("m").stream_text_failed(value)
        metrics.model("m").changed(value)
        metrics.model("m").answered(Call(method=value, started=0.0, deadline=9.0))

    count("anything")
    before = num_series(metrics)
    for number in range(100):
        count(f"value {number}")

    assert num_series(metrics) == before
    assert read(metrics, "rejected_total", reason="_other") == 101.0
    assert read(metrics, "cancelled_total", where="queue", reason="_other") == 101.0
    assert read(metrics, "stream_failed_texts_total", model="m", code="_other") == 101.0
    assert read(metrics, "model_reload_total", model="m", result="_other") == 101.0
    assert read(metrics, "queue_duration_seconds_count", method="_other", model="m", priority="_other") == 101.0


def test_what_can_be_known_before_it_happens_is_exported_as_zero():
    metrics = Metrics(methods=("One", "Two"))
    metrics.model("m")

    reasons = (
        *("queue_full", "token_budget", "client_budget", "queue_seconds", "deadline_unattainable", "out_of_memory"),
        *("streams", "files", "glossaries", "starting", "draining", "too_long"),
    )
    assert {read(metrics, "rejected_total", reason=reason) for reason in reasons} == {0.0}
    assert read(metrics, "cancelled_total", where="decode", reason="cancelled") == 0.0
    assert read(metrics, "client_tokens_total", client="_other", direction="source") == 0.0
    assert read(metrics, "engine_restarts_total", model="m") == 0.0
    assert read(metrics, "queue_duration_seconds_count", method="Two", model="m", priority="batch") == 0.0
    for method, code in product(("One", "Two"), ("OK", "UNKNOWN", "INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED")):
        assert read(metrics, "requests_total", method=method, model="m", code=code) == 0.0
    assert read(metrics, "requests_total", method="One", model="m", code="CANCELLED") is None
    assert read(metrics, "model_loaded_timestamp_seconds", model="m") is None


def test_answered_texts_are_counted_in_tokens_and_the_others_by_their_errors():
    metrics = Metrics(methods=("One",))
    hypothesis = TranslatedText(text="x", score=-1, finish_reason=FinishReason.LENGTH, target_tokens=7)
    translations = [
        Translation(hypotheses=(hypothesis, hypothesis), source_tokens=5),
        Translation(error=InvalidInput("bad", field="texts[1]")),
        Translation(error=InternalError("nan")),
        Translation(error=TooLong("too long", field="texts[3]")),
    ]

    call = Call(method="One", started=0.0, deadline=9.0, priority=Priority.BATCH, queue_s=0.002, detokenize_s=0.005)
    result = TranslationResult(translations=translations, model="m", model_version="1")
    UsageMeter(metrics).translated(TranslationRequest(texts=("text",) * len(translations)), result, call)

    assert read(metrics, "tokens_total", model="m", direction="source") == 5.0
    assert read(metrics, "tokens_total", model="m", direction="target") == 14.0
    assert read(metrics, "target_tokens_sum", model="m") == 14.0
    assert read(metrics, "failed_texts_total", model="m") == 1.0
    assert read(metrics, "rejected_total", reason="too_long") == 1.0
    assert read(metrics, "queue_duration_seconds_sum", method="One", model="m", priority="batch") == 0.002
    assert read(metrics, "stage_duration_seconds_sum", stage="detokenize") == 0.005


def test_engine_reports_add_up_by_model():
    metrics = Metrics()
    report = StepStats(
        steps=2,
        rows=12,
        step_rows=[4, 8],
        step_decode_s=[0.02, 0.3],
        step_beam_s=[0.004, 0.04],
        encode_s=[0.03, 0.07],
        score_s=[0.05],
        busy_s=0.5,
        encoded_sentences=3,
        source_tokens=30,
        padded_source_tokens=40,
        wasted_steps=6,
        non_finite_jobs=1,
    )

    metrics.model("m").step(report)
    metrics.model("m").step(report)
    metrics.model("m").step(StepStats())  # an idle engine's sign of life
    metrics.model("other").step(StepStats(steps=1))

    def of_model(name: str, **labels: str) -> float | None:
        return read(metrics, name, model="m", **labels)

    assert (of_model("decode_steps_total"), read(metrics, "decode_steps_total", model="other")) == (4.0, 1.0)
    assert of_model("engine_busy_seconds_total") == 1.0
    assert (of_model("batch_rows_sum"), of_model("batch_rows_count")) == (24.0, 4.0)
    assert of_model("batch_padding_ratio_sum") == pytest.approx(0.5)
    assert of_model("encoder_tokens_total", kind="source") == 60.0
    assert of_model("encoder_tokens_total", kind="padding") == 20.0
    assert of_model("nonfinite_total") == 2.0
    assert read(metrics, "wasted_steps_total", reason="dropped") == 12.0
    assert read(metrics, "stage_duration_seconds_sum", stage="decode_step") == pytest.approx(0.64)
    assert read(metrics, "stage_duration_seconds_bucket", stage="decode_step", le="0.025") == 2.0
    assert read(metrics, "stage_duration_seconds_sum", stage="beam") == pytest.approx(0.088)
    assert read(metrics, "stage_duration_seconds_sum", stage="score") == pytest.approx(0.1)
    assert read(metrics, "stage_duration_seconds_count", stage="encode") == 4.0


def test_info_of_a_version_and_the_time_of_loading_end_with_them():
    metrics = Metrics()
    old, new = VERSIONS
    model = metrics.model("m")
    for version in VERSIONS:
        model.loaded(**version)
    model.unloaded(**old)
    during = [read(metrics, "model_info", model="m", **version) for version in VERSIONS]
    time = read(metrics, "model_loaded_timestamp_seconds", model="m")
    model.unloaded(**new)
    model.loaded(**old)
    again = read(metrics, "model_info", model="m", **old)
    model.unloaded(**old)

    assert (during, again) == ([None, 1.0], 1.0)
    assert time is not None
    assert read(metrics, "model_loaded_timestamp_seconds", model="m") is None


def test_the_recent_lag_is_the_worst_of_the_last_ones():
    metrics = Metrics()
    at_first = metrics.recent_lag_s
    metrics.observe_lag(0.5)
    metrics.observe_lag(0.01)
    shown = metrics.recent_lag_s
    for _ in range(50):
        metrics.observe_lag(0.02)

    assert (at_first, shown, metrics.recent_lag_s) == (0.0, 0.5, 0.02)


def test_page_shows_one_moment_whatever_happens_while_it_is_written():
    metrics = Metrics()
    pieces = metrics.exposition()
    page = next(pieces)
    metrics.call_received("One")
    page += b"".join(pieces)

    assert b'{method="One"}' not in page  # of any family, also of those that are written after the call
    assert b'{method="One"}' in b"".join(metrics.exposition())


def test_each_reason_to_refuse_something_has_a_series():
    texts = [path.read_text("utf-8") for path in (ROOT / "service").rglob("*.py")]
    reasons = {reason for text in texts for reason in re.findall(r'\breason="(\w+)"', text)}

    assert len(reasons) > 5
    assert reasons <= {*REJECT_REASONS}
