"""What a server counts: its calls, its clients and its process; of each model its texts, engines and versions."""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from service.call import Call, Usage
from service.engine.wire import StepStats
from service.errors import DragomanError, InternalError, TooLong
from service.records import Priority, Translation
from service.telemetry.families import (
    CACHE_RESULTS,
    CHANGES,
    DIRECTIONS,
    DROP_REASONS,
    ENCODER_KINDS,
    OTHER,
    REJECT_REASONS,
    STAGES,
    STREAM_TEXT_CODES,
    Families,
)
from service.telemetry.series import Counter, Gauge, Histogram, Labels, Numbers

Snapshot = Mapping[str, Mapping[Labels, Numbers]]  # what one process counts, by the names of families
CONTENT_TYPE = CONTENT_TYPE_LATEST
_LAGS_KEPT = 50  # of which the worst is shown as the recent one
_CLIENT_ERRORS = frozenset(
    {
        *("INVALID_ARGUMENT", "NOT_FOUND", "CANCELLED", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED"),
        *("UNAUTHENTICATED", "PERMISSION_DENIED", "FAILED_PRECONDITION"),
    }
)


class Metrics:
    """The metrics of one process, and on its page those of others beside it.  Only for the event loop's thread.

    received = answered + in flight holds on every page: snapshots are made, and heard, between two events.
    """

    def __init__(self, *, methods: Sequence[str] = ()) -> None:
        """Nothing has happened; `methods` are those of calls for a model, as labels."""
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        GCCollector(registry=self._process)
        self.families = Families(methods)
        self.families.build_info.labels(server_version()).set(1)
        self._cache_hits, self._cache_misses = map(self.families.translation_cache_sentences.labels, CACHE_RESULTS)
        self._methods = methods
        self._lags: deque[float] = deque(maxlen=_LAGS_KEPT)
        self._models: dict[str, ModelMetrics] = {}
        # Series that are counted together, by the values of their labels: one look-up for all of them.
        self._of_start = cache(self._series_of_start)
        self._of_end = cache(self._series_of_end)
        self._of_client = cache(self._series_of_client)

    def model(self, name: str) -> "ModelMetrics":
        if name not in self._models:
            self._models[name] = ModelMetrics(name, self.families, self._methods)
        return self._models[name]

    def call_received(self, method: str) -> None:
        received, in_flight = self._of_start(method)
        received.value += 1
        in_flight.value += 1

    def call_answered(self, method: str, model: str, code: str, duration_s: float, *, priority: str = "") -> None:
        """Count the end of a call; `priority` is empty where it has no work, or ended before its priority was known."""
        in_flight, answered, duration = self._of_end(method, model, code, priority)
        in_flight.value -= 1
        answered.value += 1
        duration.observe(duration_s)

    def rejected(self, reason: str) -> None:
        self.families.rejected.labels(_one_of(REJECT_REASONS, reason)).inc()

    def client_used(self, client: str, used: Usage) -> None:
        """Count what was translated for a client, by its label ("_other" without a key)."""
        of_texts, of_characters, of_source_tokens, of_target_tokens, of_row_steps = self._of_client(client)
        of_texts.value += used.texts
        of_characters.value += used.characters
        of_source_tokens.value += used.source_tokens
        of_target_tokens.value += used.target_tokens
        of_row_steps.value += used.row_steps

    def characters_of(self, client: str) -> int:
        """Return how many characters were translated for a client, by its label, in all processes."""
        (number,) = self.families.client_characters.sums().get((client,), (0.0,))
        return int(number)

    def observe_lag(self, seconds: float) -> None:
        self.families.event_loop_lag.observe(seconds)
        self._lags.append(seconds)

    @property
    def recent_lag_s(self) -> float:
        """The worst lag of the last few seconds."""
        return max(self._lags, default=0.0)

    def translation_cache_asked(self, *, is_hit: bool) -> None:
        """Count a sentence that was looked up in the translation cache."""
        (self._cache_hits if is_hit else self._cache_misses).value += 1

    def translation_cache_evicted(self) -> None:
        """Count a sentence that made room for another one."""
        self.families.translation_cache_evictions.inc()

    def watch(self, name: str, read: Callable[[], float]) -> None:
        """Have a gauge of `Families.watched` read at each scrape."""
        self.families.watched[name].labels().set_function(read)

    def snapshot(self) -> Snapshot:
        """Return what this process counts, for the process that has the page; plain data."""
        return {family.name: family.numbers() for family in self.families.amounts()}

    def heard(self, source: str, snapshot: Snapshot) -> None:
        """Show this snapshot of another process instead of its last one."""
        for family in self.families.amounts():
            family.heard(source, snapshot[family.name])

    def lost(self, source: str) -> None:
        """Keep what a process that has ended had counted, and count its last calls in flight as UNAVAILABLE.

        Their model and duration are not known.  The process that takes its place has the same name.
        """
        for (method,), (number,) in self.families.requests_in_flight.lost(source).items():
            if number:
                self.families.requests.labels(method, "", "UNAVAILABLE").inc(number)
        for family in self.families.amounts():
            family.lost(source)

    def exposition(self) -> Iterator[bytes]:
        """Yield everything in Prometheus' text format, a family at a time.

        All numbers are of the moment when the first is asked for; to write them takes longer than to read them, and
        calls can be let through meanwhile.
        """
        sums = [(family, family.sums()) for family in self.families]
        yield generate_latest(self._process)
        for family, of_family in sums:
            yield family.text(of_family).encode()

    def _series_of_start(self, method: str) -> tuple[Counter, Gauge]:
        return self.families.requests_received.labels(method), self.families.requests_in_flight.labels(method)

    def _series_of_end(self, method: str, model: str, code: str, priority: str) -> tuple[Gauge, Counter, Histogram]:
        if code == "NOT_FOUND" and not model:  # whatever its name was
            model = OTHER
        code_class = "ok" if code == "OK" else "client_error" if code in _CLIENT_ERRORS else "server_error"
        return (
            self.families.requests_in_flight.labels(method),
            self.families.requests.labels(method, model, code),
            self.families.request_duration.labels(method, model, priority, code_class),
        )

    def _series_of_client(self, client: str) -> tuple[Counter, Counter, Counter, Counter, Counter]:
        return (
            self.families.client_texts.labels(client),
            self.families.client_characters.labels(client),
            self.families.client_tokens.labels(client, "source"),
            self.families.client_tokens.labels(client, "target"),
            self.families.client_row_steps.labels(client),
        )


class ModelMetrics:
    """The metrics of one model, whichever version of it runs; a pool's `EngineObserver`."""

    def __init__(self, model: str, families: Families, methods: Collection[str]) -> None:
        families.export_zeros(model=model)
        self._model = model
        self._families = families
        self._methods = methods
        self._versions: set[tuple[str, str, str, str]] = set()  # that answer
        self._queue_duration = cache(self._queue_duration_of)
        # Series that each call or each report of an engine counts in: looked up once.
        self._stage_duration = {stage: families.stage_duration.labels(stage) for stage in STAGES}
        self._source_length = families.source_tokens.labels(model)
        self._target_length = families.target_tokens.labels(model)
        self._source_tokens, self._target_tokens = (families.tokens.labels(model, name) for name in DIRECTIONS)
        self._segments = families.segments.labels(model)
        self._decode_steps = families.decode_steps.labels(model)
        self._engine_busy_seconds = families.engine_busy_seconds.labels(model)
        self._batch_rows = families.batch_rows.labels(model)
        self._padding_ratio = families.batch_padding_ratio.labels(model)
        self._encoder_tokens, self._encoder_padding = (
            families.encoder_tokens.labels(model, kind) for kind in ENCODER_KINDS
        )

    def answered(self, call: Call) -> None:
        """Count where the time of a request, or of a text of a stream, went that was answered."""
        self._stage_duration["tokenize"].observe(call.tokenize_s)
        self._stage_duration["detokenize"].observe(call.detokenize_s)
        self._queue_duration(call.method, call.priority).observe(call.queue_s)

    def text_translated(self, translation: Translation, target_tokens: int) -> None:
        """Count a text, its segments and what they are warned of."""
        self._source_length.observe(translation.source_tokens)
        self._target_length.observe(target_tokens)
        self._source_tokens.value += translation.source_tokens
        self._target_tokens.value += target_tokens
        self._segments.value += len(translation.segments)
        for segment in translation.segments:
            for warning in segment.warnings:
                self._families.segment_warnings.labels(self._model, warning.kind.value).inc()
        if translation.retries:
            self._families.segment_retries.labels(self._model).inc(translation.retries)

    def text_failed(self, error: DragomanError) -> None:
        """Count a text that has an error in the place of its translation."""
        if isinstance(error, InternalError):
            self._families.failed_texts.labels(self._model).inc()
        elif isinstance(error, TooLong):
            self._families.rejected.labels("too_long").inc()

    def _queue_duration_of(self, method: str, priority: Priority | None) -> Histogram:
        label = OTHER if priority is None else priority.label
        return self._families.queue_duration.labels(_one_of(self._methods, method), self._model, label)

    def stream_text_failed(self, code: str) -> None:
        """Count a text of a stream that was answered with this gRPC status, which is not OK."""
        self._families.stream_failed_texts.labels(self._model, _one_of(STREAM_TEXT_CODES, code)).inc()

    def step(self, stats: StepStats) -> None:
        families, model = self._families, self._model
        self._decode_steps.value += stats.steps
        self._engine_busy_seconds.value += stats.busy_s
        if stats.unrecorded_steps:
            families.unrecorded_steps.labels(model).inc(stats.unrecorded_steps)
        if stats.wasted_steps:
            families.wasted_steps.labels("dropped").inc(stats.wasted_steps)
        if stats.non_finite_jobs:
            families.nonfinite.labels(model).inc(stats.non_finite_jobs)
        if stats.encoded_sentences:
            self._padding_ratio.observe(1 - stats.source_tokens / stats.padded_source_tokens)
            self._encoder_tokens.value += stats.source_tokens
            self._encoder_padding.value += stats.padded_source_tokens - stats.source_tokens
        self._batch_rows.observe_all(stats.step_rows)
        self._stage_duration["encode"].observe_all(stats.encode_s)
        self._stage_duration["decode_step"].observe_all(stats.step_decode_s)
        self._stage_duration["beam"].observe_all(stats.step_beam_s)
        self._stage_duration["score"].observe_all(stats.score_s)

    def engine_lost(self) -> None:
        self._families.engine_restarts.labels(self._model).inc()

    def job_dropped(self, where: Literal["queue", "decode"], reason: str) -> None:
        """Count a sentence that left before it had a result."""
        self._families.cancelled.labels(where, _one_of(DROP_REASONS, reason)).inc()

    def changed(self, result: str) -> None:
        self._families.model_reload.labels(self._model, _one_of(CHANGES, result)).inc()

    def loaded(self, *, version: str, sha256_12: str, provider: str, runtime: str) -> None:
        """Note a version that answers from now on."""
        labels = version, sha256_12, provider, runtime
        self._versions.add(labels)
        self._families.model_info.labels(self._model, *labels).set(1)
        self._families.model_loaded_timestamp.labels(self._model).set(time.time())

    def unloaded(self, *, version: str, sha256_12: str, provider: str, runtime: str) -> None:
        """Note a version that answers no more."""
        labels = version, sha256_12, provider, runtime
        self._versions.discard(labels)
        self._families.model_info.remove(self._model, *labels)
        if not self._versions:
            self._families.model_loaded_timestamp.remove(self._model)

    def watch(self, name: str, read: Callable[[], float]) -> None:
        """Have a gauge of `Families.watched` read at each scrape."""
        self._families.watched[name].labels(self._model).set_function(read)


def _one_of(values: Collection[str], value: str) -> str:
    return value if value in values else OTHER


def server_version() -> str:
    try:
        return version("dragoman")
    except PackageNotFoundError:
        return "unknown"
