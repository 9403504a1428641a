"""The books: labels from closed sets, and sums that add up."""

from itertools import product

from prometheus_client.parser import text_string_to_metric_families

from service.engine.job import FinishReason, StepStats
from service.errors import InternalError, InvalidInput, TooLong
from service.records import Timings, TranslatedText, Translation
from service.telemetry.metrics import Metrics

WAITED = {"method": "_other", "model": "m"}
DURATION = {"method": "One", "model": "m", "priority": ""}
TIMINGS = Timings(tokenize_ms=1.0, queue_ms=2.0, encode_ms=3.0, decode_ms=4.0, detokenize_ms=5.0, total_ms=15.0)


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


def series(metrics: Metrics) -> int:
    families = text_string_to_metric_families(b"".join(metrics.exposition()).decode())
    return sum(len(family.samples) for family in families if family.name.startswith("dragoman"))


def test_call_is_in_flight_between_its_two_ends():
    metrics = Metrics()

    metrics.call_received("One")
    during = value(metrics, "dragoman_requests_in_flight", method="One")
    metrics.call_answered("One", "m", "OK", 0.2)

    assert (during, value(metrics, "dragoman_requests_in_flight", method="One")) == (1.0, 0.0)
    assert value(metrics, "dragoman_requests_total", method="One", model="m", code="OK") == 1.0
    assert value(metrics, "dragoman_request_duration_seconds_sum", **DURATION, code_class="ok") == 0.2


def test_a_model_that_does_not_exist_is_other_whatever_it_was_called():
    metrics = Metrics()
    metrics.call_received("One")
    metrics.call_answered("One", "", "NOT_FOUND", 0.1)

    assert value(metrics, "dragoman_requests_total", method="One", model="_other", code="NOT_FOUND") == 1.0


def test_duration_of_calls_is_told_apart_by_method_and_priority():
    metrics = Metrics()
    for method, priority, duration_s in (("One", "interactive", 0.5), ("One", "batch", 40.0), ("Two", "batch", 9000.0)):
        metrics.call_received(method)
        metrics.call_answered(method, "m", "OK", duration_s, priority=priority)

    name, same = "dragoman_request_duration_seconds_sum", {"model": "m", "code_class": "ok"}
    assert value(metrics, name, method="One", priority="interactive", **same) == 0.5
    assert value(metrics, name, method="One", priority="batch", **same) == 40.0
    assert value(metrics, name, method="Two", priority="batch", **same) == 9000.0


def test_codes_fall_into_three_classes():
    metrics = Metrics()

    for code in ("OK", "INVALID_ARGUMENT", "CANCELLED", "INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED"):
        metrics.call_received("One")
        metrics.call_answered("One", "m", code, 1.0)

    counts = {
        name: value(metrics, "dragoman_request_duration_seconds_count", **DURATION, code_class=name)
        for name in ("ok", "client_error", "server_error")
    }
    assert counts == {"ok": 1.0, "client_error": 2.0, "server_error": 3.0}


def test_labels_outside_their_set_count_as_other():
    metrics = Metrics()
    metrics.model("m").stream_text_failed("anything")
    metrics.rejected("anything")
    metrics.model("m").job_dropped("queue", "anything")
    before = series(metrics)

    for number in range(100):
        metrics.rejected(f"reason {number}")
        metrics.model("m").job_dropped("queue", f"reason {number}")
        metrics.model("m").stream_text_failed(f"code {number}")

    assert value(metrics, "dragoman_stream_failed_texts_total", model="m", code="_other") == 101.0
    assert value(metrics, "dragoman_rejected_total", reason="_other") == 101.0
    assert value(metrics, "dragoman_cancelled_total", where="queue", reason="_other") == 101.0
    assert series(metrics) == before


def test_every_reason_to_refuse_is_exported_before_it_occurs():
    metrics = Metrics()

    reasons = (
        *("queue_full", "token_budget", "client_budget", "queue_seconds", "deadline_unattainable", "out_of_memory"),
        *("streams", "starting", "draining", "too_long"),
    )
    read = metrics.registry.get_sample_value
    assert [read("dragoman_rejected_total", {"reason": reason}) for reason in reasons] == [0.0] * len(reasons)


def test_too_long_texts_count_as_refused():
    metrics = Metrics()

    errors = (TooLong("too long", field="texts[0]"), InvalidInput("bad", field="texts[1]"))
    metrics.model("m").translated([Translation(error=error) for error in errors], TIMINGS)

    assert value(metrics, "dragoman_rejected_total", reason="too_long") == 1.0


def test_answered_texts_are_counted_in_tokens():
    metrics = Metrics()
    hypothesis = TranslatedText(text="x", score=-1, finish_reason=FinishReason.LENGTH, target_tokens=7)
    good = Translation(hypotheses=(hypothesis, hypothesis), source_tokens=5)

    metrics.model("m").translated(
        [good, Translation(error=InvalidInput("bad", field="texts[1]")), Translation(error=InternalError("nan"))],
        TIMINGS,
    )

    assert value(metrics, "dragoman_tokens_total", model="m", direction="source") == 5.0
    assert value(metrics, "dragoman_tokens_total", model="m", direction="target") == 14.0
    assert value(metrics, "dragoman_failed_texts_total", model="m") == 1.0
    assert value(metrics, "dragoman_queue_duration_seconds_sum", **WAITED, priority="interactive") == 0.002
    assert value(metrics, "dragoman_stage_duration_seconds_sum", stage="detokenize") == 0.005


def test_engine_reports_add_up():
    metrics = Metrics()
    report = StepStats(
        steps=2,
        rows=12,
        step_rows=[4, 8],
        step_decode_s=[0.02, 0.3],
        step_beam_s=[0.004, 0.04],
        encode_s=[0.03, 0.07],
        busy_s=0.5,
        encoded_sentences=3,
        source_tokens=30,
        padded_source_tokens=40,
        wasted_steps=6,
        non_finite_jobs=1,
    )

    model = metrics.model("m")
    model.step(report)
    model.step(report)
    model.step(StepStats())  # an idle engine's sign of life

    assert value(metrics, "dragoman_decode_steps_total", model="m") == 4.0
    assert value(metrics, "dragoman_engine_busy_seconds_total", model="m") == 1.0
    assert value(metrics, "dragoman_batch_rows_sum", model="m") == 24.0
    assert value(metrics, "dragoman_batch_rows_count", model="m") == 4.0
    assert value(metrics, "dragoman_wasted_steps_total", reason="dropped") == 12.0
    assert value(metrics, "dragoman_nonfinite_total", model="m") == 2.0
    assert abs(value(metrics, "dragoman_stage_duration_seconds_sum", stage="decode_step") - 0.64) < 1e-9
    assert abs(value(metrics, "dragoman_stage_duration_seconds_sum", stage="beam") - 0.088) < 1e-9
    assert value(metrics, "dragoman_stage_duration_seconds_count", stage="encode") == 4.0
    assert abs(value(metrics, "dragoman_batch_padding_ratio_sum", model="m") - 0.5) < 1e-9
    assert value(metrics, "dragoman_encoder_tokens_total", model="m", kind="source") == 60.0
    assert value(metrics, "dragoman_encoder_tokens_total", model="m", kind="padding") == 20.0


def test_every_run_of_a_stage_falls_into_its_own_bucket():
    metrics = Metrics()

    metrics.model("m").step(StepStats(step_decode_s=[0.02, 0.02, 2.0], step_beam_s=[0.0001, 0.9], encode_s=[0.02, 2.0]))

    counts = {
        stage: value(metrics, "dragoman_stage_duration_seconds_bucket", stage=stage, le="0.025")
        for stage in ("decode_step", "beam", "encode")
    }
    assert counts == {"decode_step": 2.0, "beam": 1.0, "encode": 1.0}


def test_watched_gauge_is_read_at_each_scrape():
    metrics, load = Metrics(), [3.0]
    metrics.model("m").watch("queue_requests", lambda: load[0])
    first = value(metrics, "dragoman_queue_requests", model="m")
    load[0] = 4.0

    assert (first, value(metrics, "dragoman_queue_requests", model="m")) == (3.0, 4.0)


def test_known_labels_are_exported_before_anything_happens():
    metrics = Metrics()
    metrics.model("m")
    body = b"".join(metrics.exposition()).decode()

    for line in (
        'dragoman_rejected_total{reason="queue_full"} 0.0',
        'dragoman_cancelled_total{reason="cancelled",where="decode"} 0.0',
        'dragoman_engine_restarts_total{model="m"} 0.0',
        'dragoman_nonfinite_total{model="m"} 0.0',
    ):
        assert line in body


def test_share_of_failures_can_be_told_of_a_model_before_the_first_one():
    metrics = Metrics(methods=("One", "Two"))
    metrics.model("m")
    read = metrics.registry.get_sample_value

    for method, code in product(("One", "Two"), ("OK", "UNKNOWN", "INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED")):
        assert read("dragoman_requests_total", {"method": method, "model": "m", "code": code}) == 0.0
    assert read("dragoman_requests_total", {"method": "One", "model": "m", "code": "CANCELLED"}) is None


def test_each_model_has_series_of_its_own():
    metrics = Metrics()
    metrics.model("a").step(StepStats(steps=1))
    metrics.model("b").step(StepStats(steps=2))
    metrics.model("a").step(StepStats(steps=4))

    assert [value(metrics, "dragoman_decode_steps_total", model=name) for name in ("a", "b")] == [5.0, 2.0]


def test_info_of_a_version_ends_with_it():
    metrics = Metrics()
    old, new = ({"version": version, "sha256_12": "0" * 12, "provider": "cpu"} for version in ("1", "2"))
    metrics.model("m").loaded(**old)
    metrics.model("m").loaded(**new)
    metrics.model("m").unloaded(**old)

    read = metrics.registry.get_sample_value
    assert read("dragoman_model_info", {"model": "m", **old}) is None
    assert read("dragoman_model_info", {"model": "m", **new}) == 1.0
    assert (read("dragoman_model_loaded_timestamp_seconds", {"model": "m"}) or 0) > 0


def test_time_of_loading_ends_with_the_last_version():
    metrics = Metrics()
    only = {"version": "1", "sha256_12": "0" * 12, "provider": "cpu"}
    metrics.model("m").loaded(**only)
    metrics.model("m").unloaded(**only)

    assert metrics.registry.get_sample_value("dragoman_model_loaded_timestamp_seconds", {"model": "m"}) is None


def test_waiting_is_told_apart_by_priority():
    metrics = Metrics()
    metrics.model("m").translated([], TIMINGS)
    metrics.model("m").translated([], TIMINGS, priority="batch")
    metrics.model("m").translated([], TIMINGS, priority="anything")

    name = "dragoman_queue_duration_seconds_count"
    counts = [value(metrics, name, **WAITED, priority=priority) for priority in ("interactive", "batch", "_other")]
    assert counts == [1.0, 1.0, 1.0]


def test_waiting_is_told_apart_by_method_and_known_before_it_happens():
    metrics = Metrics(methods=("One", "Two"))
    metrics.model("m").translated([], TIMINGS, method="One")
    metrics.model("m").translated([], TIMINGS, method="anything")

    read, name = metrics.registry.get_sample_value, "dragoman_queue_duration_seconds_count"
    counts = {
        method: read(name, {"method": method, "model": "m", "priority": "interactive"})
        for method in ("One", "Two", "_other", "anything")
    }
    assert counts == {"One": 1.0, "Two": 0.0, "_other": 1.0, "anything": None}


def test_changes_of_a_model_are_counted_by_result():
    metrics = Metrics()
    for result in ("loaded", "refused", "anything"):
        metrics.model("m").changed(result)

    counts = {
        result: value(metrics, "dragoman_model_reload_total", model="m", result=result)
        for result in ("loaded", "retired", "refused", "_other")
    }
    assert counts == {"loaded": 1.0, "retired": 0.0, "refused": 1.0, "_other": 1.0}


def test_the_recent_lag_is_the_worst_of_the_last_ones():
    metrics = Metrics()
    at_first = metrics.recent_lag_s
    metrics.observe_lag(0.5)
    metrics.observe_lag(0.01)
    shown = metrics.recent_lag_s
    for _ in range(50):
        metrics.observe_lag(0.02)

    assert (at_first, shown, metrics.recent_lag_s) == (0.0, 0.5, 0.02)


def test_lines_and_calls_that_should_not_be_are_counted():
    metrics = Metrics()
    metrics.count_dropped_line()
    metrics.count_slow_request()

    assert value(metrics, "dragoman_log_dropped_total") == 1.0
    assert value(metrics, "dragoman_slow_requests_total") == 1.0


def test_page_shows_one_moment_whatever_happens_while_it_is_written():
    metrics = Metrics()
    pieces = metrics.exposition()
    page = next(pieces)
    metrics.call_received("One")
    page += b"".join(pieces)

    assert b'{method="One"}' not in page  # of any family, also of those that are written after the call
    assert b'{method="One"}' in b"".join(metrics.exposition())
