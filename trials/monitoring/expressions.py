"""The committed dashboard's expressions, what Prometheus gives for each, and whether that is what an operator needs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.fakes.server_process import ROOT
from trials.monitoring.prometheus import SCRAPE_S, Prometheus, Series

DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "dragoman.json"
STEP_S = 1.0
RATE_INTERVAL_S = 5  # Grafana's least is four scrapes; one more, as a chart's step is no shorter than a scrape

# By panel and legend, those that this scene leaves as they are.
STILL = {
    ("Replicas", "scraped"): "there is one from beginning to end",
    ("Replicas", "with models"): "likewise",
    ("Changes in 5 minutes", "NaN"): "the fake engine's numbers are all finite",
}
# Those that may move here or not.
UNCERTAIN = {
    ("Replicas", "ready"): "the engine that dies can be back before the next scrape",
    ("Engines", "up {{model}}"): "likewise",
}


@dataclass(frozen=True, slots=True)
class Target:
    """One expression of a panel, with what came of it."""

    legend: str  # with {{label}} in it
    expression: str
    series: tuple[Series, ...]

    @property
    def has_values(self) -> bool:
        return any(len(series.finite) for series in self.series)

    @property
    def has_moved(self) -> bool:
        """Whether a value changed, or a series came or went."""
        longest = max((len(series.times) for series in self.series), default=0)
        return any(
            len(series.times) < longest or (len(series.finite) and np.ptp(series.finite) > 0) for series in self.series
        )


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    targets: tuple[Target, ...]


def asked(prometheus: Prometheus, began: float, ended: float) -> list[Panel]:
    """The panels with their data between these Unix times, titles of rows included.

    Raises:
        ValueError: Prometheus does not understand an expression.
    """
    return [
        Panel(panel["title"], tuple(_ask(prometheus, target, began, ended) for target in panel.get("targets", ())))
        for panel in json.loads(DASHBOARD.read_text())["panels"]
    ]


def _ask(prometheus: Prometheus, target: dict[str, Any], began: float, ended: float) -> Target:
    expression = target["expr"].replace("$__rate_interval", f"{RATE_INTERVAL_S * SCRAPE_S}s")
    if "$" in expression:
        raise ValueError(f"{expression} has a variable that nothing replaces")
    return Target(target["legendFormat"], expression, tuple(prometheus.range_query(expression, began, ended, STEP_S)))


def failures(panels: list[Panel]) -> Iterator[str]:
    """What is wrong, one line each."""
    seen = {(panel.title, target.legend): target for panel in panels for target in panel.targets}
    for (title, legend), target in seen.items():
        name = f"{title}, {legend}"
        if not target.has_values:
            yield f"{name}: no data: {target.expression}"
        elif (title, legend) in UNCERTAIN:
            continue
        elif not target.has_moved and (title, legend) not in STILL:
            yield f"{name}: did not move: {target.expression}"
        elif target.has_moved and (title, legend) in STILL:
            yield f"{name}: moved, though {STILL[title, legend]}"
    yield from (f"{title}, {legend}: is in no panel" for title, legend in (STILL | UNCERTAIN).keys() - seen.keys())
