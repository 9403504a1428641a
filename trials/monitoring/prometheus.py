"""A real Prometheus that scrapes a server every second: `apt-get install prometheus`, or any binary on the PATH."""

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import numpy.typing as npt

from tests.fakes.server_process import ROOT

SCRAPE_S = 1
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
START_S = 30.0
_CONFIG = """\
global: {{scrape_interval: {scrape}s, evaluation_interval: {scrape}s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: dragoman
    static_configs: [targets: ["127.0.0.1:{port}"]]
"""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart."""

    labels: dict[str, str]
    times: npt.NDArray[np.float64]  # Unix
    values: npt.NDArray[np.float64]  # NaN where it was none

    @property
    def finite(self) -> npt.NDArray[np.float64]:
        return self.values[np.isfinite(self.values)]


@dataclass(frozen=True, slots=True)
class Prometheus:
    url: str

    def range_query(self, expression: str, began: float, ended: float, step_s: float) -> list[Series]:
        """What a chart of this expression shows.

        Raises:
            ValueError: Prometheus does not understand it.
        """
        query = {"query": expression, "start": f"{began:.3f}", "end": f"{ended:.3f}", "step": f"{step_s:g}"}
        try:
            data = self._get(f"/api/v1/query_range?{urllib.parse.urlencode(query)}")["data"]
        except URLError as error:
            raise ValueError(f"{expression}: {error}") from error
        return [
            Series(
                found["metric"],
                np.array([at for at, _ in found["values"]], float),
                np.array([float(value) for _, value in found["values"]]),
            )
            for found in data["result"]
        ]

    def broken_rules(self) -> list[str]:
        """Rules of deploy/prometheus that it could not evaluate."""
        groups = self._get("/api/v1/rules")["data"]["groups"]
        return [rule["name"] for group in groups for rule in group["rules"] if rule["health"] == "err"]

    def is_ready(self) -> bool:
        """Whether it takes queries and has scraped the server."""
        try:
            return bool(self._get("/api/v1/query?query=up")["data"]["result"])
        except OSError:
            return False

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as answer:
            return json.load(answer)


@contextmanager
def scraping(http_port: int, directory: Path) -> Iterator[Prometheus]:
    """One that scrapes the server with this HTTP port, and evaluates the rules of deploy/prometheus.

    Raises:
        FileNotFoundError: there is no binary.
    """
    binary = shutil.which("prometheus")
    if binary is None:
        raise FileNotFoundError("there is no prometheus on the PATH; on Debian: apt-get install prometheus")
    config = directory / "prometheus.yml"
    config.write_text(_CONFIG.format(scrape=SCRAPE_S, rules=RULES, port=http_port))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    command = [
        *(binary, f"--config.file={config}", f"--storage.tsdb.path={directory / 'tsdb'}"),
        *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"),
    ]
    with (directory / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        running = Prometheus(f"http://127.0.0.1:{port}")
        deadline = time.monotonic() + START_S
        while not running.is_ready():  # another process: there is nothing to await
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"prometheus did not start:\n{(directory / 'prometheus.log').read_text()}")
            time.sleep(0.05)
        yield running
    finally:
        process.kill()
        process.wait()
