"""docs/metrics.md, written from the families that the server defines.

    python -m service.telemetry.reference > docs/metrics.md

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
    Definition,
)
from service.telemetry.metrics import Metrics

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

LABELS: dict[str, str] = {
    "method": "gRPC method in full, `package.Service/Method`, of those served; `_other`",
    "model": (
        "name of a model that is loaded, was retired, or was refused; empty where a call needs none, or ended before "
        "it was known; `_other` where NOT_FOUND was the answer"
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
    "kind": (
        f"`dragoman_encoder_tokens_total`: {', '.join(f'`{name}`' for name in ENCODER_KINDS)}; "
        f"`dragoman_segment_warnings_total`: {', '.join(f'`{name}`' for name in WARNING_KINDS)}, as in "
        "`protos/translation.proto`"
    ),
    "direction": "`source`, `target`",
    "result": ", ".join(f"`{name}`" for name in CHANGES),
    "version": "of the server (`dragoman_build_info`), or of the model",
    "sha256_12": "first twelve digits of the SHA-256 of the bundle's manifest",
    "provider": f"where it runs: {', '.join(f'`{name}`' for name in get_args(Device))}",
    "runtime": "what computes: `native` or `onnxruntime`; ListModels says why",
}


def definitions() -> list[Definition]:
    """Return every family of a server, in the order of their names."""
    return sorted(Metrics().families.definitions, key=lambda definition: definition.name)


def page() -> str:
    """Return the document."""
    families = definitions()
    used = sorted({label for family in families for label in family.labels})
    rows = [f"| `{label}` | {LABELS[label]} |" for label in used]
    table = ["## Labels\n", "| label | values |", "| --- | --- |", *rows, ""]
    return "\n".join([_INTRODUCTION, "## Families\n", *map(_section, families), *table])


def _section(family: Definition) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels) or "none"
    lines = [f"### {family.name}\n", f"{family.description} {family.kind.capitalize()}; labels: {labels}."]
    if family.buckets:
        lines.append(f"Buckets: {' '.join(f'{bound:g}' for bound in family.buckets)}.")
    return "\n".join([*lines, "", f"    {family.query}", ""])


if __name__ == "__main__":
    print(page(), end="")
