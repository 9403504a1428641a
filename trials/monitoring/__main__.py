"""`make try-monitoring`: the real server under load, a real Prometheus, and every expression of the dashboard.

    python -m trials.monitoring --seconds 60

Held: each expression has data, and each that should move under this load has moved (expressions.STILL names the
others); the rules of deploy/prometheus can be evaluated.  `prometheus` must be on the PATH (Debian: apt-get install
prometheus).
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.fakes.load import Load
from trials.monitoring.expressions import Panel, asked, failures
from trials.monitoring.prometheus import SCRAPE_S, scraping
from trials.monitoring.scene import staged


def watch(seconds: float, scratch: Path) -> tuple[list[Panel], list[str], Load]:
    """Return the panels, what is wrong, and the load."""
    with staged(scratch) as scene, scraping(scene.server.http_port, scratch) as prometheus:
        began = time.time()
        load = asyncio.run(scene.play(seconds, scratch))
        time.sleep(3 * SCRAPE_S)  # what has ended is seen to have
        panels = asked(prometheus, began, time.time())
        wrong = [*failures(panels), *(f"rule {name} cannot be evaluated" for name in prometheus.broken_rules())]
    return panels, wrong, load


def show(panels: list[Panel]) -> None:
    """A line for each expression."""
    table = Table("panel", "legend", "series", "least", "most", title="Dashboard")
    for panel in panels:
        for target in panel.targets:
            values = [value for series in target.series for value in series.finite]
            ends = (f"{min(values):.4g}", f"{max(values):.4g}") if values else ("-", "-")
            table.add_row(panel.title, target.legend, str(len(target.series)), *ends)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def main() -> int:
    """0 if the dashboard works, else 1."""
    parser = argparse.ArgumentParser(prog="python -m trials.monitoring")
    parser.add_argument("--seconds", type=float, default=60.0, help="of load")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        panels, wrong, load = watch(options.seconds, Path(scratch))
    show(panels)
    print("\n".join(f"WRONG: {line}" for line in wrong) or "every expression has data and moves")
    num = sum(len(panel.targets) for panel in panels)
    print(json.dumps({"expressions": num, "calls": len(load.records), "codes": load.codes, "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
