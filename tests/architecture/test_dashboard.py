"""The committed dashboard is what its code gives, and asks only for metrics that exist."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from service.telemetry.metrics import Metrics

DEPLOY = Path(__file__).parents[2] / "deploy"
SUFFIXES = ("_total", "_bucket", "_sum", "_count", "")


@pytest.fixture(scope="module")
def dashboard() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dashboard", DEPLOY / "grafana" / "dashboard.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\bdragoman_[a-z0-9_]+", text))


def known() -> set[str]:
    return {definition.name.removesuffix("_total") + suffix for definition in Metrics().families for suffix in SUFFIXES}


def test_the_committed_dashboard_is_current(dashboard):
    committed = json.loads((DEPLOY / "grafana" / "dashboards" / "dragoman.json").read_text())

    assert committed == dashboard.dashboard()


def test_dashboard_and_alerts_ask_for_metrics_that_exist(dashboard):
    asked = metrics_in(json.dumps(dashboard.dashboard())) | metrics_in(
        (DEPLOY / "prometheus" / "alerts.yml").read_text()
    )

    assert asked - known() == set()
    assert len(asked) > 20


def test_every_alert_has_its_paragraph_in_the_runbook():
    alerts = (DEPLOY / "prometheus" / "alerts.yml").read_text()
    headings = re.findall(r"^## (\w+)$", (DEPLOY / "RUNBOOK.md").read_text(), re.MULTILINE)

    named = set(re.findall(r"RUNBOOK\.md#(\w+)", alerts))
    assert named == {heading.lower() for heading in headings}
