"""docs/metrics.md, written from the families that the server defines.

    python -m service.telemetry.reference > docs/metrics.md

A test compares the file with what this prints.
"""

from collections.abc import Iterable
from typing import get_args

from service.engine.spec import Device
from service.telemetry.families import Definition
from service.telemetry.metrics import CODE_CLASSES, REJECT_REASONS, Metrics
from service.telemetry.model_metrics import (
    CHANGES,
    ENCODER_KINDS,
    PRIORITIES,
    STAGES,
)

_INTRODUCTION = """\
# Metrics

`GET /metrics` on the HTTP port, in Prometheus' text format. Written by `python -m service.telemetry.reference`; change
the code, not this file.

Names and labels are a promise: a quantity that changes its meaning gets a new name. Base units throughout (seconds,
bytes; ratios, of which 1 is the whole). Label values come from closed sets, never from what a caller sent; what is
outside its set counts as `_other`. What can be known before it happens is exported as 0. Beside these there are
`process_*` and `python_gc_*` of the Prometheus client.

At every moment `dragoman_requests_received_total` is `dragoman_requests_total` (all codes) plus
`dragoman_requests_in_flight`.

There is no time to the first token: beam search settles a sentence's tokens when the sentence ends, so that the first
one would come with the last.
"""

# What most queries are about: calls that somebody waits for.  Streams last for hours, and batch work takes its time.
_INTERACTIVE = 'method="dragoman.v1.TranslationService/Translate", priority="interactive"'
_OURS = 'method=~"dragoman.v1.TranslationService/.+"'  # health checks and reflection are not the service

LABELS: dict[str, str] = {
    "method": "gRPC method in full, `package.Service/Method`, of those served; `_other`",
    "model": (
        "name of a model that is loaded, was retired, or was refused; empty where a call needs none; `_other` where "
        "NOT_FOUND was the answer"
    ),
    "code": "gRPC status by name, such as `OK` or `INVALID_ARGUMENT`",
    "code_class": ", ".join(f"`{name}`" for name in CODE_CLASSES),
    "reason": (
        f"`dragoman_rejected_total`: {', '.join(f'`{name}`' for name in REJECT_REASONS)}, `_other`; "
        "`dragoman_cancelled_total`: `cancelled` (its caller left, or another text of its call had no answer), "
        "`deadline` (its call was late, or could not be in time any more); "
        "`dragoman_wasted_steps_total`: `dropped`"
    ),
    "client": "name of an API key; `_other` for everybody without one",
    "where": "`queue`: it had cost nothing; `decode`: it held rows",
    "priority": (
        f"{', '.join(f'`{name}`' for name in PRIORITIES)}; `dragoman_request_duration_seconds`: empty where a call has "
        "none, or was refused before it was known"
    ),
    "stage": ", ".join(f"`{name}`" for name in STAGES),
    "kind": ", ".join(f"`{name}`" for name in ENCODER_KINDS),
    "direction": "`source`, `target`",
    "result": ", ".join(f"`{name}`" for name in CHANGES),
    "version": "of the server (`dragoman_build_info`), or of the model",
    "sha256_12": "first twelve digits of the SHA-256 of the bundle's manifest",
    "provider": f"what computes: {', '.join(f'`{name}`' for name in get_args(Device))}",
}

# What one asks of a family; of one that is not here, what its kind suggests.
QUERIES: dict[str, str] = {
    "dragoman_requests_received_total": "sum(rate(dragoman_requests_received_total[5m])) by (method)",
    "dragoman_requests_total": (
        f'sum(rate(dragoman_requests_total{{{_OURS}, code=~"UNKNOWN|INTERNAL|UNAVAILABLE|DEADLINE_EXCEEDED"}}[5m]))'
        f" / sum(rate(dragoman_requests_total{{{_OURS}}}[5m]))"
    ),
    "dragoman_requests_in_flight": "sum(dragoman_requests_in_flight)",
    "dragoman_request_duration_seconds": (
        "histogram_quantile(0.99,"
        f" sum(rate(dragoman_request_duration_seconds_bucket{{{_INTERACTIVE}}}[5m])) by (le, model))"
    ),
    "dragoman_rejected_total": "sum(rate(dragoman_rejected_total[5m])) by (reason)",
    "dragoman_slow_requests_total": "increase(dragoman_slow_requests_total[1h])",
    "dragoman_event_loop_lag_seconds": ("histogram_quantile(0.99, rate(dragoman_event_loop_lag_seconds_bucket[5m]))"),
    "dragoman_build_info": "count(dragoman_build_info) by (version)",
    "dragoman_log_dropped_total": "increase(dragoman_log_dropped_total[15m]) > 0",
    "dragoman_queue_duration_seconds": (
        "histogram_quantile(0.95, sum(rate(dragoman_queue_duration_seconds_bucket[5m])) by (le, priority))"
    ),
    "dragoman_stage_duration_seconds": "sum(rate(dragoman_stage_duration_seconds_sum[5m])) by (stage)",
    "dragoman_batch_rows": "rate(dragoman_batch_rows_sum[5m]) / rate(dragoman_batch_rows_count[5m])",
    "dragoman_batch_padding_ratio": ("histogram_quantile(0.9, rate(dragoman_batch_padding_ratio_bucket[5m]))"),
    "dragoman_encoder_tokens_total": (
        'rate(dragoman_encoder_tokens_total{kind="padding"}[5m])'
        " / ignoring(kind) group_left sum(rate(dragoman_encoder_tokens_total[5m])) without (kind)"
    ),
    "dragoman_decode_steps_total": "rate(dragoman_decode_steps_total[5m])",
    "dragoman_engine_busy_seconds_total": "rate(dragoman_engine_busy_seconds_total[5m])",
    "dragoman_source_tokens": "rate(dragoman_source_tokens_sum[1h]) / rate(dragoman_source_tokens_count[1h])",
    "dragoman_target_tokens": "rate(dragoman_target_tokens_sum[1h]) / rate(dragoman_target_tokens_count[1h])",
    "dragoman_tokens_total": "sum(rate(dragoman_tokens_total[5m])) by (model, direction)",
    "dragoman_cancelled_total": "sum(rate(dragoman_cancelled_total[5m])) by (where, reason)",
    "dragoman_wasted_steps_total": "rate(dragoman_wasted_steps_total[5m])",
    "dragoman_failed_texts_total": "increase(dragoman_failed_texts_total[5m]) > 0",
    "dragoman_stream_failed_texts_total": "sum(rate(dragoman_stream_failed_texts_total[5m])) by (model, code)",
    "dragoman_nonfinite_total": "increase(dragoman_nonfinite_total[5m]) > 0",
    "dragoman_engine_restarts_total": "increase(dragoman_engine_restarts_total[5m]) > 0",
    "dragoman_engines": "sum(dragoman_engines) by (model)",
    "dragoman_engines_missing": "dragoman_engines_missing > 0",
    "dragoman_ready": "sum(dragoman_ready)",
    "dragoman_model_info": "count(count(dragoman_model_info) by (model, sha256_12)) by (model) > 1",
    "dragoman_model_refused": "dragoman_model_refused > 0",
    "dragoman_model_reload_total": "sum by (model, result) (increase(dragoman_model_reload_total[1d]))",
    "dragoman_model_loaded_timestamp_seconds": "time() - dragoman_model_loaded_timestamp_seconds",
    "dragoman_queue_requests": "sum(dragoman_queue_requests) by (model)",
    "dragoman_queue_tokens": "sum(dragoman_queue_tokens) by (model)",
    "dragoman_running_jobs": "sum(dragoman_running_jobs) by (model)",
    "dragoman_live_rows": "sum(dragoman_live_rows) by (model)",
    "dragoman_token_budget_used_ratio": "max(dragoman_token_budget_used_ratio) > 0.9",
}


def definitions() -> list[Definition]:
    """Every family of a server, in the order of their names."""
    metrics = Metrics()
    return sorted(metrics.definitions, key=lambda definition: definition.name)


def page() -> str:
    """The document."""
    families = definitions()
    used = sorted({label for family in families for label in family.labels})
    parts = [_INTRODUCTION, "## Families\n", *map(_section, families), "## Labels\n", _label_table(used)]
    return "\n".join(parts)


def _section(family: Definition) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels) or "none"
    lines = [f"### {family.name}\n", f"{family.description} {family.kind.capitalize()}; labels: {labels}."]
    if family.buckets:
        lines.append(f"Buckets: {_numbers(family.buckets)}.")
    return "\n".join([*lines, "", f"    {query_of(family)}", ""])


def query_of(family: Definition) -> str:
    """An example in PromQL."""
    if family.name in QUERIES:
        return QUERIES[family.name]
    match family.kind:
        case "counter":
            return f"rate({family.name}[5m])"
        case "gauge":
            return family.name
        case "histogram":
            return f"histogram_quantile(0.99, rate({family.name}_bucket[5m]))"


def _label_table(labels: Iterable[str]) -> str:
    rows = (f"| `{label}` | {LABELS[label]} |" for label in labels)
    return "\n".join(["| label | values |", "| --- | --- |", *rows, ""])


def _numbers(values: Iterable[float]) -> str:
    return " ".join(f"{value:g}" for value in values)


if __name__ == "__main__":
    print(page(), end="")
