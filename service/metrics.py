"""Prometheus metrics of one server: what is counted, under which names and labels.

Names and labels are a promise to dashboards.  Label values come from closed sets, never from what a caller sent.
Base units throughout; a new quantity is a new name.
"""

import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from service.engine.job import StepStats
from service.errors import InternalError, TooLong
from service.translation import Timings, Translation

OTHER = "_other"  # label of everything outside its closed set
CONTENT_TYPE = CONTENT_TYPE_LATEST

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60)
QUEUE_BUCKETS = (0.001, *LATENCY_BUCKETS)
STAGE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
TOKEN_BUCKETS = (8, 16, 32, 64, 128, 256, 512, 1024)
ROW_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
RATIO_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

REJECT_REASONS = ("queue_full", "token_budget", "streams", "starting", "draining", "too_long")
DROP_REASONS = ("cancelled", "deadline")
STAGES = ("tokenize", "encode", "decode_step", "beam", "detokenize")
_CLIENT_ERRORS = frozenset({"INVALID_ARGUMENT", "NOT_FOUND", "CANCELLED", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED"})


class Metrics:
    """The books of one server; also the dispatcher's `EngineObserver`.  Only for the event loop's thread."""

    def __init__(self, model: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each one, which nobody asked for
        self.registry = CollectorRegistry()
        self._model = model
        self._define_calls()
        self._define_work()
        self._define_process()

    def _define_calls(self) -> None:
        self._received = self._counter("requests_received", "Calls that reached a handler.", "method")
        self._answered = self._counter("requests", "Calls that ended.", "method", "model", "code")
        self._in_flight = self._gauge("requests_in_flight", "Calls received and not ended.", "method")
        self._duration = self._histogram(
            "request_duration_seconds", "Whole calls in the server.", LATENCY_BUCKETS, "model", "code_class"
        )
        self._rejected = self._counter("rejected", "Calls, and too long texts, that were refused.", "reason")
        for reason in REJECT_REASONS:
            self._rejected.labels(reason)

    def _define_work(self) -> None:
        self._queue = self._histogram("queue_duration_seconds", "Submission to start.", QUEUE_BUCKETS, "model")
        self._stage = self._histogram("stage_duration_seconds", "Time in one stage.", STAGE_BUCKETS, "stage")
        self._rows = self._histogram("batch_rows", "Live hypotheses in a decoder step.", ROW_BUCKETS, "model")
        self._padding = self._histogram("batch_padding_ratio", "Padding in encoder batches.", RATIO_BUCKETS, "model")
        self._steps = self._counter("decode_steps", "Decoder steps.", "model")
        self._busy = self._counter("engine_busy_seconds", "Time the engines worked.", "model")
        self._source_tokens = self._histogram("source_tokens", "Tokens of a text.", TOKEN_BUCKETS, "model")
        self._target_tokens = self._histogram("target_tokens", "Tokens of a translation.", TOKEN_BUCKETS, "model")
        self._tokens = self._counter("tokens", "Tokens of answered texts.", "model", "direction")
        self._dropped = self._counter("cancelled", "Sentences dropped before their result.", "where", "reason")
        self._wasted = self._counter("wasted_steps", "Sentence-steps for results nobody received.", "reason")
        self._failed = self._counter("failed_texts", "Texts the model gave no usable result for.", "model")
        self._nonfinite = self._counter("nonfinite", "Sentences the model gave NaN or infinity for.", "model")
        self._restarts = self._counter("engine_restarts", "Engine processes that were replaced.", "model")
        for stage in STAGES:
            self._stage.labels(stage)
        for reason in DROP_REASONS:
            for where in ("queue", "decode"):
                self._dropped.labels(where, reason)
        of_the_model = (self._steps, self._busy, self._failed, self._nonfinite, self._restarts, self._rows, self._queue)
        for family in of_the_model:
            family.labels(self._model)

    def _define_process(self) -> None:
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._lag = self._histogram("event_loop_lag_seconds", "How late the event loop wakes up.", LAG_BUCKETS)
        self._gauge("build_info", "The running version.", "version").labels(_version()).set(1)

    # What the interceptor reports.

    def call_received(self, method: str) -> None:
        """A call began."""
        self._received.labels(method).inc()
        self._in_flight.labels(method).inc()

    def call_answered(self, method: str, model: str, code: str, duration_s: float) -> None:
        """A call that was received ended."""
        self._in_flight.labels(method).dec()
        self._answered.labels(method, model, code).inc()
        self._duration.labels(model, _code_class(code)).observe(duration_s)

    def count_unknown_method(self) -> None:
        """A call to a method that does not exist came and was refused."""
        self._received.labels(OTHER).inc()
        self._answered.labels(OTHER, "", "UNIMPLEMENTED").inc()

    def rejected(self, reason: str) -> None:
        """A call, or one text of it, was refused."""
        self._rejected.labels(reason if reason in REJECT_REASONS else OTHER).inc()

    # What the servicer reports.

    def translated(self, translations: Sequence[Translation], timings: Timings) -> None:
        """A request was answered."""
        self._stage.labels("tokenize").observe(timings.tokenize_ms / 1e3)
        self._stage.labels("detokenize").observe(timings.detokenize_ms / 1e3)
        self._queue.labels(self._model).observe(timings.queue_ms / 1e3)
        for translation in translations:
            self._text_translated(translation)

    def _text_translated(self, translation: Translation) -> None:
        if isinstance(translation.error, InternalError):
            self._failed.labels(self._model).inc()
        if isinstance(translation.error, TooLong):
            self.rejected("too_long")
        if translation.error is not None:
            return
        target_tokens = sum(hypothesis.target_tokens for hypothesis in translation.hypotheses)
        self._source_tokens.labels(self._model).observe(translation.source_tokens)
        self._target_tokens.labels(self._model).observe(target_tokens)
        self._tokens.labels(self._model, "source").inc(translation.source_tokens)
        self._tokens.labels(self._model, "target").inc(target_tokens)

    # What the dispatcher reports (`service.dispatch.dispatcher.EngineObserver`).

    def step(self, stats: StepStats) -> None:
        """An engine reported its work since its last report."""
        self._steps.labels(self._model).inc(stats.steps)
        self._busy.labels(self._model).inc(stats.busy_s)
        self._wasted.labels("dropped").inc(stats.wasted_steps)
        self._nonfinite.labels(self._model).inc(stats.non_finite_jobs)
        if stats.encoded_sentences:
            self._padding.labels(self._model).observe(stats.padding_ratio)
        for rows in stats.step_rows:
            self._rows.labels(self._model).observe(rows)
        stages = (("encode", stats.encode_s), ("decode_step", stats.step_decode_s), ("beam", stats.step_beam_s))
        for stage, runs in stages:
            for seconds in runs:
                self._stage.labels(stage).observe(seconds)

    def engine_restarted(self) -> None:
        """An engine process was lost and is being replaced."""
        self._restarts.labels(self._model).inc()

    def job_dropped(self, where: Literal["queue", "decode"], reason: str) -> None:
        """A sentence left before it had a result."""
        self._dropped.labels(where, reason if reason in DROP_REASONS else OTHER).inc()

    # What the server reports.

    def observe_lag(self, seconds: float) -> None:
        """The event loop woke up this much late."""
        self._lag.observe(seconds)

    def model_loaded(self, *, version: str, sha256_12: str, provider: str) -> None:
        """The model answers from now on."""
        info = self._gauge("model_info", "The loaded model.", "model", "version", "sha256_12", "provider")
        info.labels(self._model, version, sha256_12, provider).set(1)
        self._gauge("model_loaded_timestamp_seconds", "When, as Unix time.", "model").labels(self._model).set(
            time.time()
        )

    def watch(self, name: str, description: str, read: Callable[[], float]) -> None:
        """Define a gauge of the model that is read at each scrape."""
        self._gauge(name, description, "model").labels(self._model).set_function(read)

    def exposition(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, description: str, *labels: str) -> Counter:
        return Counter(f"dragoman_{name}", description, labels, registry=self.registry)

    def _gauge(self, name: str, description: str, *labels: str) -> Gauge:
        return Gauge(f"dragoman_{name}", description, labels, registry=self.registry)

    def _histogram(self, name: str, description: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"dragoman_{name}", description, labels, buckets=buckets, registry=self.registry)


def _code_class(code: str) -> str:
    if code == "OK":
        return "ok"
    return "client_error" if code in _CLIENT_ERRORS else "server_error"


def _version() -> str:
    try:
        return version("dragoman")
    except PackageNotFoundError:
        return "unknown"
