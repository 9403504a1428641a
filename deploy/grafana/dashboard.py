"""The dashboard, as code: `python deploy/grafana/dashboard.py > deploy/grafana/dashboards/dragoman.json`.

A row of panels for each question an operator asks; every expression is one that docs/metrics.md explains.
"""

import json
from typing import Any, NamedTuple

OURS = '{job="dragoman"}'
WIDTH, HEIGHT = 8, 8  # of a panel, in Grafana's grid of 24 columns
ANSWERED = 'method="dragoman.v1.TranslationService/Translate", priority="interactive", code_class="ok"'
SERVICE = 'method=~"dragoman.v1.TranslationService/.+"'  # health checks and reflection left out
FAULTS = 'code=~"UNKNOWN|INTERNAL|UNAVAILABLE|DEADLINE_EXCEEDED"'


class Panel(NamedTuple):
    """One chart: a title, a unit of Grafana's, and expressions by legend."""

    title: str
    unit: str
    expressions: dict[str, str]


def quantiles(family: str, by: str = "", where: str = "") -> dict[str, str]:
    """The usual percentiles of a histogram."""
    labels = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    rates = rate(f"{family}_bucket", labels, where)
    return {f"p{round(q * 100)}{legend}": f"histogram_quantile({q}, {rates})" for q in (0.5, 0.95, 0.99)}


def rate(family: str, by: str = "", where: str = "") -> str:
    """A counter's rate, summed over replicas."""
    inner = f"rate({family}{{{where}}}[$__rate_interval])" if where else f"rate({family}[$__rate_interval])"
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"


ROWS: dict[str, list[Panel]] = {
    "Is it well?": [
        Panel(
            "Replicas",
            "short",
            {
                "scraped": 'count(up{job="dragoman"} == 1)',
                "ready": "sum(dragoman_ready)",
                "with models": "count(count by (instance) (dragoman_model_info))",
            },
        ),
        Panel(
            "Calls that fail by the server's fault",
            "percentunit",
            {
                "share": f"{rate('dragoman_requests_total', where=f'{SERVICE}, {FAULTS}')}"
                f" / {rate('dragoman_requests_total', where=SERVICE)}",
            },
        ),
        Panel("Versions", "short", {"{{model}} {{version}}": "count by (model, version) (dragoman_model_info)"}),
    ],
    "Calls": [
        Panel("Calls a second", "reqps", {"{{method}}": rate("dragoman_requests_received_total", "method")}),
        Panel("Calls by status", "reqps", {"{{code}}": rate("dragoman_requests_total", "code")}),
        Panel("Duration of interactive calls", "s", quantiles("dragoman_request_duration_seconds", where=ANSWERED)),
    ],
    "Where the time goes": [
        Panel("Waiting for an engine", "s", quantiles("dragoman_queue_duration_seconds", "priority")),
        Panel(
            "Stages, mean",
            "s",
            {
                "{{stage}}": f"{rate('dragoman_stage_duration_seconds_sum', 'stage')}"
                f" / {rate('dragoman_stage_duration_seconds_count', 'stage')}",
            },
        ),
        Panel("Event loop lag", "s", quantiles("dragoman_event_loop_lag_seconds")),
    ],
    "Batching": [
        Panel("Live hypotheses in a step", "short", quantiles("dragoman_batch_rows", "model")),
        Panel(
            "Engines",
            "short",
            {
                "busy {{model}}": rate("dragoman_engine_busy_seconds_total", "model"),
                "up {{model}}": "sum by (model) (dragoman_engines)",
            },
        ),
        Panel(
            "Padding in encoder batches",
            "percentunit",
            {
                "{{model}}": f"{rate('dragoman_batch_padding_ratio_sum', 'model')}"
                f" / {rate('dragoman_batch_padding_ratio_count', 'model')}",
            },
        ),
    ],
    "Work": [
        Panel(
            "Tokens a second",
            "short",
            {"{{model}} {{direction}}": rate("dragoman_tokens_total", "model, direction")},
        ),
        Panel("Waiting work", "s", {"{{model}}": "sum by (model) (dragoman_queue_work_seconds)"}),
        Panel(
            "Texts waiting and running",
            "short",
            {"waiting": "sum(dragoman_queue_requests)", "running": "sum(dragoman_running_jobs)"},
        ),
    ],
    "No, and no longer": [
        Panel("Refused", "reqps", {"{{reason}}": rate("dragoman_rejected_total", "reason")}),
        Panel("Dropped", "reqps", {"{{where}} {{reason}}": rate("dragoman_cancelled_total", "where, reason")}),
        Panel(
            "Changes in 5 minutes",
            "short",
            {
                "engines replaced": "sum(increase(dragoman_engine_restarts_total[5m]))",
                "versions {{result}}": "sum by (result) (increase(dragoman_model_reload_total[5m]))",
                "NaN": "sum(increase(dragoman_nonfinite_total[5m]))",
            },
        ),
    ],
    "Who": [
        Panel("Texts a second by client", "short", {"{{client}}": rate("dragoman_client_texts_total", "client")}),
        Panel("Streams", "short", {"streams": "sum(dragoman_streams)", "their texts": "sum(dragoman_stream_texts)"}),
        Panel("Token budget used", "percentunit", {"{{instance}}": "dragoman_token_budget_used_ratio"}),
    ],
    "The core": [
        Panel("CPUs", "short", {"{{instance}}": f"rate(process_cpu_seconds_total{OURS}[$__rate_interval])"}),
        Panel("Memory", "bytes", {"{{instance}}": f"process_resident_memory_bytes{OURS}"}),
        Panel("Open files", "short", {"{{instance}}": f"process_open_fds{OURS}"}),
    ],
}  # fmt: skip


def dashboard() -> dict[str, Any]:
    """What Grafana imports."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append({"type": "row", "title": title, "collapsed": False, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        for column, panel in enumerate(row):
            place = {"x": column * WIDTH, "y": y + 1, "w": WIDTH, "h": HEIGHT}
            panels.append(_panel(panel, place))
        y += HEIGHT + 1
    for number, drawn in enumerate(panels, start=1):
        drawn["id"] = number
    return {
        "title": "Dragoman",
        "uid": "dragoman",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "tags": ["dragoman"],
        "panels": panels,
    }


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "prometheus"}
    return {
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 10}}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": source, "expr": expression, "legendFormat": legend}
            for index, (legend, expression) in enumerate(panel.expressions.items())
        ],
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=2))
