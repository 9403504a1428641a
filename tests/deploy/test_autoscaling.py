"""What autoscalers are told to scale by: numbers that mean a number of replicas, of a service at rest as well."""

import re
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="no PyYAML: make deploy-check installs it")

from tests.deploy.tools import DEPLOY, KUBERNETES, judged  # noqa: E402 - needs PyYAML

pytestmark = pytest.mark.skipif(not DEPLOY.exists(), reason="not in a checkout")

CALLS = 'namespace="dragoman", method="dragoman.v1.TranslationService/Translate"'
BUCKETS = "dragoman_queue_duration_seconds_bucket"


@pytest.fixture
def trigger() -> dict[str, Any]:
    """The one by how long calls wait; the chart's is the same (test_helm_chart.py)."""
    scaled = yaml.safe_load((KUBERNETES / "overlays" / "keda" / "scaledobject.yaml").read_text())
    (found,) = (item for item in scaled["spec"]["triggers"] if BUCKETS in item["metadata"]["query"])
    return dict(found)


@pytest.fixture
def rule() -> dict[str, Any]:
    """The document's, for prometheus-adapter."""
    document = (DEPLOY.parent / "docs" / "deploy.md").read_text()
    (block,) = re.findall(r"^    - seriesQuery:.*\n(?:    .*\n)+", document, re.MULTILINE)
    (found,) = yaml.safe_load(block)
    return dict(found)


def check(query: str, value: float, series: dict[str, str], directory: Path) -> None:
    """Fails if the query does not give this value of these series."""
    check_each(query, {"{}": value}, series, directory)


def check_each(query: str, values: dict[str, float], series: dict[str, str], directory: Path) -> None:
    """Fails if the query does not give these values, by labels, of these series."""
    samples = [{"labels": labels, "value": value} for labels, value in values.items()]
    expected = {"expr": query, "eval_time": "10m", "exp_samples": samples}
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [expected],
    }
    file = directory / "query.yml"
    file.write_text(yaml.safe_dump({"tests": [test]}))
    judged("promtool", "test", "rules", file, comes_with="the Debian package prometheus")


def test_adapter_s_rule_serves_the_metric_of_the_autoscaler(rule):
    autoscaler = yaml.safe_load((KUBERNETES / "overlays" / "cpu" / "horizontalpodautoscaler.yaml").read_text())
    (metric,) = autoscaler["spec"]["metrics"]

    assert rule["seriesQuery"].partition("{")[0] == metric["pods"]["metric"]["name"]
    assert rule["resources"]["overrides"] == {name: {"resource": name} for name in ("namespace", "pod")}


def test_adapter_s_rule_adds_up_the_models_of_each_pod(rule, tmp_path):
    series = rule["seriesQuery"].partition("{")[0]
    filled = {"Series": series, "LabelMatchers": 'namespace="dragoman",pod=~"a|b"', "GroupBy": "pod"}
    waiting = {("a", "en-de"): 700, ("a", "de-en"): 300, ("b", "en-de"): 5, ("c", "en-de"): 9}

    query = re.sub(r"<<\.(\w+)>>", lambda found: filled[found[1]], rule["metricsQuery"])
    values = {
        f'{series}{{namespace="dragoman", pod="{pod}", model="{model}"}}': f"{tokens}x20"
        for (pod, model), tokens in waiting.items()
    }

    check_each(query, {'{pod="a"}': 1_000.0, '{pod="b"}': 5.0}, values, tmp_path)


def test_replicas_grow_by_how_many_times_too_long_calls_wait(trigger):
    """AverageValue, KEDA's default, wants the value over the threshold: 3 replicas where 4 have calls wait for 3 s."""
    assert trigger["metricType"] == "Value"
    assert float(trigger["metadata"]["threshold"]) == 1.0


def test_wait_that_the_query_still_shows_does_not_multiply_the_replicas_at_every_sync():
    """Value multiplies what is there, every 15 s: three syncs of a wait of 2 s would be eight times the replicas."""
    scaled, autoscaler = (
        yaml.safe_load((KUBERNETES / "overlays" / overlay / file).read_text())["spec"]
        for overlay, file in (("keda", "scaledobject.yaml"), ("cpu", "horizontalpodautoscaler.yaml"))
    )

    assert scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == {
        "scaleUp": autoscaler["behavior"]["scaleUp"]
    }
    assert autoscaler["behavior"]["scaleUp"]["policies"] == [{"type": "Pods", "value": 2, "periodSeconds": 30}]


@pytest.mark.parametrize("growth", [None, 0], ids=["before the first call", "without a call"])
def test_service_at_rest_wants_no_replicas_more(trigger, tmp_path, growth):
    name = f'{BUCKETS}{{{CALLS}, model="m", priority="interactive", le="+Inf"}}'

    check(trigger["metadata"]["query"], 0.0, {} if growth is None else {name: f"5+{growth}x20"}, tmp_path)


def test_time_that_batch_work_and_streams_wait_does_not_count(trigger, tmp_path):
    waits = {
        (CALLS, "interactive"): {"0.5": 0, "1": 60, "60": 60},  # 0.975 s
        (CALLS, "batch"): {"0.5": 0, "1": 0, "60": 600},
        (CALLS.replace("/Translate", "/TranslateStream"), "interactive"): {"0.5": 0, "1": 0, "60": 600},
    }
    series = {
        f'{BUCKETS}{{{calls}, model="m", priority="{priority}", le="{bound}"}}': f"0+{growth}x20"
        for (calls, priority), buckets in waits.items()
        for bound, growth in {**buckets, "+Inf": buckets["60"]}.items()
    }

    check(trigger["metadata"]["query"], 0.975, series, tmp_path)
