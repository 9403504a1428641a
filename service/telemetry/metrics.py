"""What a server counts: its calls, its clients and its process; of each model its texts, engines and versions."""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from prometheus_client import CollectorRegistry, GCCollector, Metric, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from service.engine.job import StepStats
from service.errors import InternalError, TooLong
from service.records import Call, Translation
from service.telemetry.families import (
    CHANGES,
    DROP_REASONS,
    OTHER,
    REJECT_REASONS,
    STREAM_TEXT_CODES,
    Families,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST
_LAGS_KEPT = 50  # of which the worst is shown as the recent one
_CLIENT_ERRORS = frozenset(
    {
        *("INVALID_ARGUMENT", "NOT_FOUND", "CANCELLED", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED"),
        *("UNAUTHENTICATED", "PERMISSION_DENIED", "FAILED_PRECONDITION"),
    }
)


class Metrics:
    """The metrics of one server.  Only for the event loop's thread."""

    def __init__(self, *, methods: Sequence[str] = ()) -> None:
        """Nothing has happened; `methods` are those of calls for a model, as labels."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each one, which nobody asked for
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.families = Families(self.registry, methods)
        self.families.build_info.labels(server_version()).set(1)
        self._methods = methods
        self._lags: deque[float] = deque(maxlen=_LAGS_KEPT)
        self._models: dict[str, ModelMetrics] = {}

    def model(self, name: str) -> "ModelMetrics":
        if name not in self._models:
            self._models[name] = ModelMetrics(name, self.families, self._methods)
        return self._models[name]

    def call_received(self, method: str) -> None:
        self.families.requests_received.labels(method).inc()
        self.families.requests_in_flight.labels(method).inc()

    def call_answered(self, method: str, model: str, code: str, duration_s: float, *, priority: str = "") -> None:
        """Count the end of a call; `priority` is empty where it has no work, or ended before its priority was known."""
        if code == "NOT_FOUND" and not model:  # whatever its name was
            model = OTHER
        code_class = "ok" if code == "OK" else "client_error" if code in _CLIENT_ERRORS else "server_error"
        self.families.requests_in_flight.labels(method).dec()
        self.families.requests.labels(method, model, code).inc()
        self.families.request_duration.labels(method, model, priority, code_class).observe(duration_s)

    def rejected(self, reason: str) -> None:
        self.families.rejected.labels(_one_of(REJECT_REASONS, reason)).inc()

    def client_used(
        self, client: str, *, texts: int, characters: int, source_tokens: int, target_tokens: int, row_steps: int
    ) -> None:
        """Count what was translated for a client, by its label ("_other" without a key)."""
        self.families.client_texts.labels(client).inc(texts)
        self.families.client_characters.labels(client).inc(characters)
        self.families.client_row_steps.labels(client).inc(row_steps)
        self.families.client_tokens.labels(client, "source").inc(source_tokens)
        self.families.client_tokens.labels(client, "target").inc(target_tokens)

    def observe_lag(self, seconds: float) -> None:
        self.families.event_loop_lag.observe(seconds)
        self._lags.append(seconds)

    @property
    def recent_lag_s(self) -> float:
        """The worst lag of the last few seconds."""
        return max(self._lags, default=0.0)

    def watch(self, name: str, read: Callable[[], float]) -> None:
        """Have a gauge of `Families.watched` read at each scrape."""
        self.families.watched[name].set_function(read)

    def exposition(self) -> Iterator[bytes]:
        """Yield everything in Prometheus' text format, a family at a time.

        All numbers are of the moment when the first is asked for; to write them takes longer than to read them, and
        calls can be let through meanwhile.
        """
        for family in list(self.registry.collect()):
            yield generate_latest(_Single(family))


class ModelMetrics:
    """The metrics of one model, whichever version of it runs; a dispatcher's `EngineObserver`."""

    def __init__(self, model: str, families: Families, methods: Collection[str]) -> None:
        families.export_zeros(model=model)
        self._model = model
        self._families = families
        self._methods = methods
        self._versions: set[tuple[str, str, str]] = set()  # that answer

    def translated(self, translations: Sequence[Translation], call: Call) -> None:
        """Count a request, or a text of a stream, that was answered."""
        families = self._families
        families.stage_duration.labels("tokenize").observe(call.tokenize_s)
        families.stage_duration.labels("detokenize").observe(call.detokenize_s)
        priority = call.priority.label if call.priority is not None else OTHER
        labels = _one_of(self._methods, call.method), self._model, priority
        families.queue_duration.labels(*labels).observe(call.queue_s)
        for translation in translations:
            if translation.error is None:
                target_tokens = sum(hypothesis.target_tokens for hypothesis in translation.hypotheses)
                families.source_tokens.labels(self._model).observe(translation.source_tokens)
                families.target_tokens.labels(self._model).observe(target_tokens)
                families.tokens.labels(self._model, "source").inc(translation.source_tokens)
                families.tokens.labels(self._model, "target").inc(target_tokens)
            elif isinstance(translation.error, InternalError):
                families.failed_texts.labels(self._model).inc()
            elif isinstance(translation.error, TooLong):
                families.rejected.labels("too_long").inc()

    def stream_text_failed(self, code: str) -> None:
        """Count a text of a stream that was answered with this gRPC status, which is not OK."""
        self._families.stream_failed_texts.labels(self._model, _one_of(STREAM_TEXT_CODES, code)).inc()

    def step(self, stats: StepStats) -> None:
        families, model = self._families, self._model
        families.decode_steps.labels(model).inc(stats.steps)
        families.engine_busy_seconds.labels(model).inc(stats.busy_s)
        families.wasted_steps.labels("dropped").inc(stats.wasted_steps)
        families.nonfinite.labels(model).inc(stats.non_finite_jobs)
        if stats.encoded_sentences:
            families.batch_padding_ratio.labels(model).observe(1 - stats.source_tokens / stats.padded_source_tokens)
            families.encoder_tokens.labels(model, "source").inc(stats.source_tokens)
            families.encoder_tokens.labels(model, "padding").inc(stats.padded_source_tokens - stats.source_tokens)
        for rows in stats.step_rows:
            families.batch_rows.labels(model).observe(rows)
        stages = (("encode", stats.encode_s), ("decode_step", stats.step_decode_s), ("beam", stats.step_beam_s))
        for stage, runs in stages:
            for seconds in runs:
                families.stage_duration.labels(stage).observe(seconds)

    def engine_lost(self) -> None:
        self._families.engine_restarts.labels(self._model).inc()

    def job_dropped(self, where: Literal["queue", "decode"], reason: str) -> None:
        """Count a sentence that left before it had a result."""
        self._families.cancelled.labels(where, _one_of(DROP_REASONS, reason)).inc()

    def changed(self, result: str) -> None:
        self._families.model_reload.labels(self._model, _one_of(CHANGES, result)).inc()

    def loaded(self, *, version: str, sha256_12: str, provider: str) -> None:
        """Note a version that answers from now on."""
        self._versions.add((version, sha256_12, provider))
        self._families.model_info.labels(self._model, version, sha256_12, provider).set(1)
        self._families.model_loaded_timestamp.labels(self._model).set(time.time())

    def unloaded(self, *, version: str, sha256_12: str, provider: str) -> None:
        """Note a version that answers no more."""
        self._versions.discard((version, sha256_12, provider))
        self._families.model_info.remove(self._model, version, sha256_12, provider)
        if not self._versions:
            self._families.model_loaded_timestamp.remove(self._model)

    def watch(self, name: str, read: Callable[[], float]) -> None:
        """Have a gauge of `Families.watched` read at each scrape."""
        self._families.watched[name].labels(self._model).set_function(read)


@dataclass(frozen=True, slots=True)
class _Single(Collector):
    """A registry of one family that was read before."""

    family: Metric

    def collect(self) -> Iterable[Metric]:
        return (self.family,)


def _one_of(values: Collection[str], value: str) -> str:
    return value if value in values else OTHER


def server_version() -> str:
    try:
        return version("dragoman")
    except PackageNotFoundError:
        return "unknown"
