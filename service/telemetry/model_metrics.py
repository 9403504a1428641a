"""What is counted of each model: its texts, its engines' steps, what waits for it."""

import time
from collections.abc import Callable, Sequence
from itertools import product
from typing import Literal

from prometheus_client import Gauge, Histogram

from service.engine.job import StepStats
from service.errors import InternalError, TooLong
from service.records import Timings, Translation
from service.telemetry.families import OTHER, Families

QUEUE_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60)
STAGE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
TOKEN_BUCKETS = (8, 16, 32, 64, 128, 256, 512, 1024)
ROW_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
RATIO_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

DROP_REASONS = ("cancelled", "deadline")
STAGES = ("tokenize", "encode", "decode_step", "beam", "detokenize")
DIRECTIONS = ("source", "target")
PRIORITIES = ("interactive", "batch")
ENCODER_KINDS = ("source", "padding")
# What a text of a stream can end with by itself.
STREAM_TEXT_CODES = (
    *("INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNAVAILABLE"),
    "INTERNAL",
)
CHANGES = ("loaded", "retired", "refused")


class WorkFamilies:
    """The families that every model has its series in."""

    def __init__(self, families: Families, rejected: Callable[[str], None]) -> None:
        """Define them.

        Args:
            rejected: counts a text that was refused, by reason.
        """
        self.rejected = rejected
        self.queue = families.histogram(
            "queue_duration_seconds",
            "Time a request's texts waited before they got rows, the longest of them.",
            QUEUE_BUCKETS,
            "method",
            "model",
            "priority",
        )
        self.stage = families.histogram(
            "stage_duration_seconds",
            "Time in one stage: of a request (tokenize, detokenize) or of one run of a graph (the others).",
            STAGE_BUCKETS,
            "stage",
        )
        self.rows = families.histogram(
            "batch_rows",
            "Live hypotheses in one run of the decoder, which is a step for those of one shape.",
            ROW_BUCKETS,
            "model",
        )
        self.padding = families.histogram(
            "batch_padding_ratio",
            "Share of padding among the encoder's positions, one observation per engine report with an encoding.",
            RATIO_BUCKETS,
            "model",
        )
        self.encoder = families.counter(
            "encoder_tokens",
            "Positions the encoder computed: of source tokens, and of padding beside them.",
            "model",
            "kind",
        )
        self.steps = families.counter("decode_steps", "Runs of the decoder.", "model")
        self.busy = families.counter(
            "engine_busy_seconds",
            "Time the engines worked, summed over engines: its rate is how many of them are busy.",
            "model",
        )
        self.source_tokens = families.histogram(
            "source_tokens", "Source tokens of an answered text.", TOKEN_BUCKETS, "model"
        )
        self.target_tokens = families.histogram(
            "target_tokens", "Target tokens of an answered text, all its hypotheses together.", TOKEN_BUCKETS, "model"
        )
        self.tokens = families.counter("tokens", "Tokens of answered texts: the goodput.", "model", "direction")
        self.dropped = families.counter("cancelled", "Sentences dropped before they had a result.", "where", "reason")
        self.wasted = families.counter(
            "wasted_steps",
            "Decoder steps of sentences that were then dropped: work whose result nobody received.",
            "reason",
        )
        self.failed = families.counter("failed_texts", "Texts the model gave no usable result for.", "model")
        self.failed_in_streams = families.counter(
            "stream_failed_texts",
            "Texts of streams that were answered with an error of their own, by gRPC status; the stream goes on.",
            "model",
            "code",
        )
        self.nonfinite = families.counter("nonfinite", "Sentences the model gave NaN or infinity for.", "model")
        self.restarts = families.counter("engine_restarts", "Engine processes that were lost.", "model")
        self.info = families.gauge(
            "model_info", "1 for each loaded version of a model.", "model", "version", "sha256_12", "provider"
        )
        self.changes = families.counter(
            "model_reload", "Versions that were loaded, retired or refused.", "model", "result"
        )
        self.loaded_at = families.gauge(
            "model_loaded_timestamp_seconds",
            "When the model was last loaded, as Unix time; gone when no version is left.",
            "model",
        )
        self.watched: dict[str, Gauge] = {
            name: families.gauge(name, description, "model")
            for name, description in (
                ("queue_requests", "Sentences waiting for an engine."),
                ("queue_tokens", "Source tokens waiting for an engine: what to scale by."),
                ("queue_work_seconds", "Seconds of work waiting, as estimated."),
                ("running_jobs", "Sentences the engines hold."),
                ("live_rows", "Hypotheses being decoded, as the engines last reported."),
                ("engines", "Engine processes that take work."),
                ("engines_missing", "Engine processes that were lost and are not replaced yet."),
                (
                    "model_refused",
                    "1 while a version lies there that was refused, above the one that serves if one does.",
                ),
            )
        }
        for stage in STAGES:
            self.stage.labels(stage)
        for reason in DROP_REASONS:
            for where in ("queue", "decode"):
                self.dropped.labels(where, reason)
        self.wasted.labels("dropped")


class ModelMetrics:
    """One model's series, whichever version of it runs; a dispatcher's `EngineObserver`."""

    def __init__(self, model: str, families: WorkFamilies, methods: Sequence[str] = ()) -> None:
        self._model, self._methods = model, methods  # those that its calls are of, as labels
        self._of = families
        self._versions: set[tuple[str, str, str]] = set()  # that answer
        # What is counted for each call and each report of an engine: labels are looked up once.
        self._steps, self._busy = families.steps.labels(model), families.busy.labels(model)
        self._failed, self._nonfinite = families.failed.labels(model), families.nonfinite.labels(model)
        self._restarts, self._rows = families.restarts.labels(model), families.rows.labels(model)
        self._padding = families.padding.labels(model)
        self._wasted = families.wasted.labels("dropped")
        self._source_texts, self._target_texts = (
            families.source_tokens.labels(model),
            families.target_tokens.labels(model),
        )
        self._source_tokens, self._target_tokens = (families.tokens.labels(model, name) for name in DIRECTIONS)
        self._encoded, self._padded = (families.encoder.labels(model, kind) for kind in ENCODER_KINDS)
        self._queue = {key: families.queue.labels(key[0], model, key[1]) for key in product(methods, PRIORITIES)}
        self._stage = {stage: families.stage.labels(stage) for stage in STAGES}
        self._failed_in_streams = {code: families.failed_in_streams.labels(model, code) for code in STREAM_TEXT_CODES}
        for result in CHANGES:
            families.changes.labels(model, result)

    def translated(
        self,
        translations: Sequence[Translation],
        timings: Timings,
        *,
        method: str = OTHER,
        priority: str = "interactive",
    ) -> None:
        """A request, or a text of a stream, was answered."""
        self._stage["tokenize"].observe(timings.tokenize_ms / 1e3)
        self._stage["detokenize"].observe(timings.detokenize_ms / 1e3)
        queue = self._queue.get((method, priority)) or self._queue_of_others(method, priority)
        queue.observe(timings.queue_ms / 1e3)
        for translation in translations:
            self._text_translated(translation)

    def _queue_of_others(self, method: str, priority: str) -> Histogram:
        known_method = method if method in self._methods else OTHER
        return self._of.queue.labels(known_method, self._model, priority if priority in PRIORITIES else OTHER)

    def _text_translated(self, translation: Translation) -> None:
        if isinstance(translation.error, InternalError):
            self._failed.inc()
        if isinstance(translation.error, TooLong):
            self._of.rejected("too_long")
        if translation.error is not None:
            return
        target_tokens = sum(hypothesis.target_tokens for hypothesis in translation.hypotheses)
        self._source_texts.observe(translation.source_tokens)
        self._target_texts.observe(target_tokens)
        self._source_tokens.inc(translation.source_tokens)
        self._target_tokens.inc(target_tokens)

    def stream_text_failed(self, code: str) -> None:
        """A text of a stream was answered with this gRPC status, which is not OK."""
        counter = self._failed_in_streams.get(code) or self._of.failed_in_streams.labels(self._model, OTHER)
        counter.inc()

    def step(self, stats: StepStats) -> None:
        """An engine reported its work since its last report."""
        self._steps.inc(stats.steps)
        self._busy.inc(stats.busy_s)
        self._wasted.inc(stats.wasted_steps)
        self._nonfinite.inc(stats.non_finite_jobs)
        if stats.encoded_sentences:
            self._padding.observe(stats.padding_ratio)
            self._encoded.inc(stats.source_tokens)
            self._padded.inc(stats.padded_source_tokens - stats.source_tokens)
        for rows in stats.step_rows:
            self._rows.observe(rows)
        stages = (("encode", stats.encode_s), ("decode_step", stats.step_decode_s), ("beam", stats.step_beam_s))
        for stage, runs in stages:
            observe = self._stage[stage].observe
            for seconds in runs:
                observe(seconds)

    def engine_lost(self) -> None:
        """An engine process was lost."""
        self._restarts.inc()

    def job_dropped(self, where: Literal["queue", "decode"], reason: str) -> None:
        """A sentence left before it had a result."""
        self._of.dropped.labels(where, reason if reason in DROP_REASONS else OTHER).inc()

    def changed(self, result: str) -> None:
        """A version of it was loaded, retired or refused."""
        self._of.changes.labels(self._model, result if result in CHANGES else OTHER).inc()

    def loaded(self, *, version: str, sha256_12: str, provider: str) -> None:
        """This version answers from now on."""
        self._versions.add((version, sha256_12, provider))
        self._of.info.labels(self._model, version, sha256_12, provider).set(1)
        self._of.loaded_at.labels(self._model).set(time.time())

    def unloaded(self, *, version: str, sha256_12: str, provider: str) -> None:
        """This version answers no more."""
        self._versions.discard((version, sha256_12, provider))
        self._of.info.remove(self._model, version, sha256_12, provider)
        if not self._versions:
            self._of.loaded_at.remove(self._model)

    def watch(self, name: str, read: Callable[[], float]) -> None:
        """Have a gauge of `WorkFamilies.watched` read at each scrape."""
        self._of.watched[name].labels(self._model).set_function(read)
