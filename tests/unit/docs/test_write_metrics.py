"""docs/metrics.md says what the code defines, and the definitions keep Prometheus' rules."""

import re
from pathlib import Path

import pytest

from docs.write.metrics import LABELS, page
from service.telemetry.metrics import Metrics

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"
FAMILIES = {family.name: family for family in Metrics().families}
NOT_BASE_UNITS = ("_ms", "_milliseconds", "_us", "_minutes", "_kb", "_kilobytes", "_mb", "_percent")


@pytest.mark.skipif(not DOCUMENT.exists(), reason="not a checkout: the documents are not installed")
def test_the_document_is_what_the_code_defines():
    assert DOCUMENT.read_text(encoding="utf-8") == page(), "run: python -m docs.write.metrics > docs/metrics.md"


def test_every_label_is_explained_and_nothing_else():
    assert LABELS.keys() == {label for family in FAMILIES.values() for label in family.label_values}


def test_names_queries_and_buckets_follow_prometheus_rules():
    """prometheus.io/docs/practices/naming."""
    for family in FAMILIES.values():
        assert re.fullmatch(r"dragoman_[a-z]+(_[a-z0-9]+)*", family.name)
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name
        assert not family.name.removesuffix("_total").endswith(NOT_BASE_UNITS), family.name
        assert not {"le", "quantile", "job", "instance"} & set(family.label_values), family.name
        assert family.name in family.query
        assert (5 < len(family.buckets) < 20) == (family.kind == "histogram"), family.name
        assert list(family.buckets) == sorted(set(family.buckets)), family.name
