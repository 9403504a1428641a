"""Every family of metrics of a server: its name, its labels, and a query that people ask of it.

Names and labels are a promise to dashboards.  Label values come from closed sets, never from what a caller sent; what
is outside its set counts as `_other`.  Base units throughout; a new quantity is a new name.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TypeAlias, TypeVar

from service.records import WarningKind
from service.telemetry.series import CounterFamily, GaugeFamily, HistogramFamily

AnyFamily: TypeAlias = CounterFamily | GaugeFamily | HistogramFamily
_Family = TypeVar("_Family", CounterFamily, GaugeFamily, HistogramFamily)

OTHER = "_other"
UNKNOWN: tuple[str, ...] = ()  # values of a label that are not known before they occur

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60)
QUEUE_BUCKETS = (0.001, *LATENCY_BUCKETS)
STAGE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
TOKEN_BUCKETS = (8, 16, 32, 64, 128, 256, 512, 1024)
ROW_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
RATIO_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

# Codes that have a series from the start.  Prometheus has no rate of what was not there: with these, a share of
# failures is 0 before the first failure, and 1 where nothing else has ever been.
FIRST_CODES = ("OK", "UNKNOWN", "INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED")
CODE_CLASSES = ("ok", "client_error", "server_error")
STREAM_TEXT_CODES = (  # that a text of a stream can end with by itself
    *("INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNAVAILABLE"),
    "INTERNAL",
)
REJECT_REASONS = (
    *("queue_full", "token_budget", "client_budget", "queue_seconds", "deadline_unattainable"),
    *("out_of_memory", "model_memory", "streams", "files", "glossaries", "starting", "draining", "too_long"),
)
DROP_REASONS = ("cancelled", "deadline")
STAGES = ("tokenize", "encode", "decode_step", "beam", "score", "detokenize")
UNLOAD_REASONS = ("idle", "memory")
DIRECTIONS = ("source", "target")
PRIORITIES = ("interactive", "batch")
ENCODER_KINDS = ("source", "padding")
CACHE_RESULTS = ("hit", "miss")
CHANGES = ("loaded", "retired", "refused")
WARNING_KINDS = tuple(kind.value for kind in WarningKind)

# What most queries are about: calls that somebody waits for.  Streams last for hours, and batch work takes its time.
_INTERACTIVE = 'method="dragoman.v1.TranslationService/Translate", priority="interactive"'
_OURS = 'method=~"dragoman.v1.TranslationService/.+"'  # health checks and reflection are not the service


class Families:
    """The families of one server."""

    def __init__(self, methods: Sequence[str] = ()) -> None:
        """Define the families; `methods` are those of calls for a model, as labels."""
        self._families: list[AnyFamily] = []
        self.watched: dict[str, GaugeFamily] = {}  # those that are read at each scrape, by name
        self._define_calls(methods)
        self._define_texts(methods)
        self._define_engines()
        self._define_models()
        self._define_process()
        self.export_zeros()

    def export_zeros(self, **known: str) -> None:
        """Export as 0 every series with these labels whose other labels are of closed sets."""
        for family in self._families:
            if family.kind != "gauge" and family.label_values.keys() >= known.keys():
                for values in product(*({**family.label_values, **{name: (known[name],) for name in known}}.values())):
                    family.labels(*values)

    def __iter__(self) -> Iterator[AnyFamily]:
        return iter(self._families)

    def amounts(self) -> Iterator[AnyFamily]:
        """Yield the families that add up over processes."""
        return (family for family in self._families if family.is_amount)

    def _define_calls(self, methods: Sequence[str]) -> None:
        self.requests_received = self._counter("requests_received", "Calls that reached a handler.", method=UNKNOWN)
        self.requests = self._counter(
            "requests",
            "Calls that ended, by gRPC status.",
            f'sum(rate(dragoman_requests_total{{{_OURS}, code=~"UNKNOWN|INTERNAL|UNAVAILABLE|DEADLINE_EXCEEDED"}}[5m]))'
            f" / sum(rate(dragoman_requests_total{{{_OURS}}}[5m]))",
            method=methods,
            model=UNKNOWN,
            code=FIRST_CODES,
        )
        self.requests_in_flight = self._gauge("requests_in_flight", "Calls received and not ended.", "method")
        self.request_duration = self._histogram(
            "request_duration_seconds",
            "Time of whole calls in the server.",
            LATENCY_BUCKETS,
            "histogram_quantile(0.99,"
            f" sum(rate(dragoman_request_duration_seconds_bucket{{{_INTERACTIVE}}}[5m])) by (le, model))",
            **dict.fromkeys(("method", "model", "priority", "code_class"), UNKNOWN),
        )
        self.rejected = self._counter(
            "rejected", "Calls, and too long texts, that were refused.", reason=REJECT_REASONS
        )
        self.slow_requests = self._counter(
            "slow_requests", "Calls that took longer than telemetry.slow_request_s."
        ).labels()
        client = (OTHER,)
        self.client_texts = self._counter("client_texts", "Texts answered.", client=client)
        self.client_characters = self._counter("client_characters", "Characters of answered texts.", client=client)
        self.client_row_steps = self._counter("client_row_steps", "Beam x decoder steps.", client=client)
        self.client_tokens = self._counter(
            "client_tokens", "Tokens of answered texts.", client=client, direction=DIRECTIONS
        )
        self._watch("streams", "TranslateStream calls in flight.")
        self._watch("stream_texts", "Texts that streams hold: taken in, and no answer sent.")
        self._watch(
            "token_budget_used_ratio",
            "Admitted source tokens / limits.max_queued_tokens; up to 2 for clients below their share.",
            query="max(dragoman_token_budget_used_ratio) > 0.9",
            is_amount=False,
        )

    def _define_texts(self, methods: Sequence[str]) -> None:
        self.queue_duration = self._histogram(
            "queue_duration_seconds",
            "Longest wait of a request's texts for an engine.",
            QUEUE_BUCKETS,
            method=methods,
            model=UNKNOWN,
            priority=PRIORITIES,
        )
        self.source_tokens = self._histogram(
            "source_tokens",
            "Source tokens of an answered text.",
            TOKEN_BUCKETS,
            _mean_of("source_tokens"),
            model=UNKNOWN,
        )
        self.target_tokens = self._histogram(
            "target_tokens",
            "Target tokens of an answered text, all its hypotheses together.",
            TOKEN_BUCKETS,
            _mean_of("target_tokens"),
            model=UNKNOWN,
        )
        self.tokens = self._counter(
            "tokens", "Tokens of answered texts: the goodput.", model=UNKNOWN, direction=DIRECTIONS
        )
        self.cancelled = self._counter(
            "cancelled", "Sentences dropped before they had a result.", where=("queue", "decode"), reason=DROP_REASONS
        )
        self.failed_texts = self._counter("failed_texts", "Texts the model gave no usable result for.", model=UNKNOWN)
        self.stream_failed_texts = self._counter(
            "stream_failed_texts",
            "Texts of streams that were answered with an error, by gRPC status.",
            model=UNKNOWN,
            code=STREAM_TEXT_CODES,
        )
        self.segments = self._counter("segments", "Segments of answered texts.", model=UNKNOWN)
        self.segment_warnings = self._counter(
            "segment_warnings",
            "Warnings of answered texts, by what went wrong.",
            "sum(rate(dragoman_segment_warnings_total[5m])) by (model, kind)"
            " / on (model) group_left sum(rate(dragoman_segments_total[5m])) by (model)",
            model=UNKNOWN,
            kind=WARNING_KINDS,
        )
        self.segment_retries = self._counter(
            "segment_retries", "Segments that were translated once more, in a safer way.", model=UNKNOWN
        )
        self.nonfinite = self._counter("nonfinite", "Sentences the model gave NaN or infinity for.", model=UNKNOWN)
        self.translation_cache_sentences = self._counter(
            "translation_cache_sentences",
            "Sentences looked up in the translation cache.",
            'sum(rate(dragoman_translation_cache_sentences_total{result="hit"}[5m]))'
            " / sum(rate(dragoman_translation_cache_sentences_total[5m]))",
            result=CACHE_RESULTS,
        )
        self.translation_cache_evictions = self._counter(
            "translation_cache_evictions", "Sentences evicted from the translation cache."
        ).labels()
        self._watch("translation_cache_bytes", "Size of the translation cache.")
        self._watch("queue_requests", "Sentences waiting for an engine.", "model")
        self._watch("queue_tokens", "Source tokens waiting for an engine: what to scale by.", "model")
        self._watch("queue_work_seconds", "Seconds of work waiting, as estimated.", "model")

    def _define_engines(self) -> None:
        self.stage_duration = self._histogram(
            "stage_duration_seconds",
            "Time in one stage of a request, or of one run of a graph.",
            STAGE_BUCKETS,
            "sum(rate(dragoman_stage_duration_seconds_sum[5m])) by (stage)",
            stage=STAGES,
        )
        self.batch_rows = self._histogram(
            "batch_rows",
            "Live hypotheses in one run of the decoder.",
            ROW_BUCKETS,
            _mean_of("batch_rows"),
            model=UNKNOWN,
        )
        self.batch_padding_ratio = self._histogram(
            "batch_padding_ratio",
            "Share of padding among the encoder's positions.",
            RATIO_BUCKETS,
            model=UNKNOWN,
        )
        self.encoder_tokens = self._counter(
            "encoder_tokens",
            "Positions that the encoder computed.",
            'rate(dragoman_encoder_tokens_total{kind="padding"}[5m])'
            " / ignoring(kind) group_left sum(rate(dragoman_encoder_tokens_total[5m])) without (kind)",
            model=UNKNOWN,
            kind=ENCODER_KINDS,
        )
        self.decode_steps = self._counter("decode_steps", "Runs of the decoder.", model=UNKNOWN)
        self.unrecorded_steps = self._counter(
            "unrecorded_steps",
            "Runs of the decoder on a GPU without a recording of their shape.",
            "rate(dragoman_unrecorded_steps_total[5m]) / rate(dragoman_decode_steps_total[5m])",
            model=UNKNOWN,
        )
        self.engine_busy_seconds = self._counter(
            "engine_busy_seconds",
            "Time the engines worked; its rate is how many are busy.",
            model=UNKNOWN,
        )
        self.wasted_steps = self._counter(
            "wasted_steps",
            "Decoder steps of sentences that were then dropped.",
            reason=("dropped",),
        )
        self.engine_restarts = self._counter("engine_restarts", "Engine processes that were lost.", model=UNKNOWN)
        self._watch("running_jobs", "Sentences the engines hold.", "model")
        self._watch("live_rows", "Hypotheses being decoded, as the engines last reported.", "model")
        self._watch("engines", "Engine processes that take work.", "model")
        self._watch("engines_missing", "Engine processes that were lost and are not replaced yet.", "model")

    def _define_models(self) -> None:
        self.model_info = self._gauge(
            "model_info",
            "1 for each loaded version of a model.",
            *("model", "version", "sha256_12", "provider", "runtime"),
            query="count(count(dragoman_model_info) by (model, sha256_12)) by (model) > 1",
            is_amount=False,
        )
        self.model_reload = self._counter(
            "model_reload", "Versions that were loaded, retired or refused.", model=UNKNOWN, result=CHANGES
        )
        self.model_loaded_timestamp = self._gauge(
            "model_loaded_timestamp_seconds",
            "When the model was last loaded, as Unix time.",
            "model",
            query="time() - dragoman_model_loaded_timestamp_seconds",
            is_amount=False,
        )
        self.model_load = self._histogram(
            "model_load_seconds", "Time from the start of a model's engine to its first job.", LATENCY_BUCKETS
        ).labels()
        self.model_unloads = self._counter(
            "model_unloads", "Models that were unloaded for room or idleness.", reason=UNLOAD_REASONS
        )
        self._watch("models_loaded", "Models that have engines.", is_amount=False)
        self._watch(
            "memory_bytes",
            "Memory of all processes; 0 without models.max_memory_mb.",
            is_amount=False,
        )
        self._watch(
            "model_refused",
            "1 while a version above the one that serves is refused.",
            "model",
            is_amount=False,
        )

    def _define_process(self) -> None:
        self._watch("edges_missing", "Frontends that were lost and are not replaced yet.", is_amount=False)
        self._watch(
            "ready",
            "1 while /readyz succeeds: every model has an engine, and nothing drains.",
            is_amount=False,
        )
        self.event_loop_lag = self._histogram(
            "event_loop_lag_seconds", "How late the event loop wakes up.", LAG_BUCKETS
        ).labels()
        self.build_info = self._gauge(
            "build_info",
            "1 for the version that runs.",
            "version",
            query="count(dragoman_build_info) by (version)",
            is_amount=False,
        )
        self.log_dropped = self._counter("log_dropped", "Log lines that could not be written.").labels()

    def _counter(self, name: str, description: str, query: str = "", **labels: Sequence[str]) -> CounterFamily:
        return self._add(CounterFamily(f"dragoman_{name}_total", description, labels, query))

    def _histogram(
        self, name: str, description: str, buckets: Sequence[float], query: str = "", **labels: Sequence[str]
    ) -> HistogramFamily:
        return self._add(HistogramFamily(f"dragoman_{name}", description, labels, query, buckets=buckets))

    def _gauge(self, name: str, description: str, *labels: str, query: str = "", is_amount: bool = True) -> GaugeFamily:
        values = dict.fromkeys(labels, UNKNOWN)
        return self._add(GaugeFamily(f"dragoman_{name}", description, values, query, is_amount=is_amount))

    def _add(self, family: _Family) -> _Family:
        self._families.append(family)
        return family

    def _watch(self, name: str, description: str, *labels: str, query: str = "", is_amount: bool = True) -> None:
        self.watched[name] = self._gauge(name, description, *labels, query=query, is_amount=is_amount)


def _mean_of(name: str) -> str:
    return f"rate(dragoman_{name}_sum[1h]) / rate(dragoman_{name}_count[1h])"
