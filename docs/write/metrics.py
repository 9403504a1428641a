"""Writes docs/metrics.md, the page of all metrics that the server defines.

    python -m docs.write.metrics > docs/metrics.md

A test compares the file with what this prints.
"""

from typing import get_args

from service.engine.wire import Device
from service.telemetry.families import (
    CHANGES,
    CODE_CLASSES,
    ENCODER_KINDS,
    PRIORITIES,
    REJECT_REASONS,
    STAGES,
    WARNING_KINDS,
    AnyFamily,
)
from service.telemetry.metrics import Metrics

_INTRODUCTION = """\
# Metrics

Written by `python -m docs.write.metrics`; change the code, not this file.

    curl -s 127.0.0.1:8080/metrics

Names and labels are stable: a quantity that changes its meaning gets a new name. Units are seconds, bytes and ratios.
Labels have a closed set of values; others count as `_other`. Series that can be known beforehand begin at 0.

At every moment `dragoman_requests_received_total` is `dragoman_requests_total` plus `dragoman_requests_in_flight`.
There is no time to the first token, because beam search decides all tokens of a sentence when it ends.
"""

LABELS: dict[str, str] = {
    "method": "gRPC method in full, `package.Service/Method`, of those served; `_other`",
    "model": ("name of a model that is or was known; empty where a call has none; `_other` where it is NOT_FOUND"),
    "code": "gRPC status by name, such as `OK` or `INVALID_ARGUMENT`",
    "code_class": ", ".join(f"`{name}`" for name in CODE_CLASSES),
    "reason": (
        f"`dragoman_rejected_total`: {', '.join(f'`{name}`' for name in REJECT_REASONS)}, `_other`; "
        "`dragoman_cancelled_total`: `cancelled`, `deadline`; `dragoman_model_unloads_total`: `idle`, `memory`; "
        "`dragoman_wasted_steps_total`: `dropped`"
    ),
    "client": "name of an API key; `_other` for everybody without one",
    "where": "`queue`: before it cost anything; `decode`: while an engine decoded it",
    "priority": (f"{', '.join(f'`{name}`' for name in PRIORITIES)}; empty where a call has none"),
    "stage": ", ".join(f"`{name}`" for name in STAGES),
    "kind": (
        f"`dragoman_encoder_tokens_total`: {', '.join(f'`{name}`' for name in ENCODER_KINDS)}; "
        f"`dragoman_segment_warnings_total`: {', '.join(f'`{name}`' for name in WARNING_KINDS)}"
    ),
    "direction": "`source`, `target`",
    "result": f"{', '.join(f'`{name}`' for name in CHANGES)}; of the translation cache: `hit`, `miss`",
    "version": "of the server (`dragoman_build_info`), or of the model",
    "sha256_12": "first twelve digits of the SHA-256 of the bundle's manifest",
    "provider": f"device of its engines: {', '.join(f'`{name}`' for name in get_args(Device))}",
    "runtime": "what computes on it: `native` or `onnxruntime`; ListModels says why",
}


def page() -> str:
    """Return the document."""
    families: list[AnyFamily] = sorted(Metrics().families, key=lambda family: family.name)
    used = sorted({label for family in families for label in family.label_values})
    kinds = {"counter": "Counters", "gauge": "Gauges", "histogram": "Histograms"}
    parts = [_INTRODUCTION]
    for kind, title in kinds.items():
        rows = [_row(family) for family in families if family.kind == kind]
        parts += [f"## {title}\n", "| metric | labels | meaning |", "| --- | --- | --- |", *rows, ""]
    rows = [f"| `{label}` | {LABELS[label]} |" for label in used]
    parts += ["## Labels\n", "| label | values |", "| --- | --- |", *rows, ""]
    queries = [f"    {family.query}" for family in families if family.has_own_query]
    return "\n".join([*parts, "## Queries\n", *queries, ""])


def _row(family: AnyFamily) -> str:
    labels = ", ".join(f"`{label}`" for label in family.label_values)
    return f"| `{family.name}` | {labels} | {family.description} |"


if __name__ == "__main__":
    print(page(), end="")
