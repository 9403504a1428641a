"""A server's metrics page read while it works: whether its books balance, and what it holds of memory.

received = answered by code + in flight must be true of every page, because the page is made between two events.
"""

import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil

from service.telemetry.metrics import Metrics
from tests.fakes.server_process import ServerProcess

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def samples(page: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels and value of each sample of a page."""
    for name, labels, value in _SAMPLE.findall(page):
        yield name, dict(_LABEL.findall(labels)), float(value)


def sample_of(metrics: Metrics, name: str, labels: Mapping[str, str] | None = None) -> float | None:
    """The value of a sample on the page of this process; None where there is none."""
    page = b"".join(metrics.exposition()).decode()
    wanted = (name, dict(labels or {}))
    return next((value for name, labels, value in samples(page) if (name, labels) == wanted), None)


def imbalance(page: str) -> dict[str, float]:
    """Methods whose calls are not all accounted for: received - answered - in flight."""
    difference: dict[str, float] = defaultdict(float)
    signs = {
        "dragoman_requests_received_total": 1.0,
        "dragoman_requests_total": -1.0,
        "dragoman_requests_in_flight": -1.0,
    }
    for name, labels, value in samples(page):
        if name in signs:
            difference[labels["method"]] += signs[name] * value
    return {method: value for method, value in difference.items() if value}


def counted(page: str) -> dict[str, float]:
    """What only grows, by the series as the page writes it."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    growing = [name for name, kind in kinds.items() if kind in {"counter", "histogram"}]
    names = {name + suffix for name in growing for suffix in ("", "_bucket", "_sum", "_count")}
    lines = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _, value in lines if series.partition("{")[0] in names}


@dataclass(frozen=True, slots=True)
class Moment:
    at: float  # time.monotonic()
    scrape_s: float
    front_bytes: int  # resident memory of core and edges
    engine_bytes: int  # of all its engine processes
    imbalance: dict[str, float]


@dataclass(slots=True)
class Watch:
    moments: list[Moment] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # pages that could not be had
    last: dict[str, float] = field(default_factory=dict)  # what was counted at the last moment
    falls: list[str] = field(default_factory=list)  # series that were lower, or gone, a moment later

    def add(self, moment: Moment, page: str) -> None:
        """Note one more look at the server."""
        before, self.last = self.last, counted(page)
        self.falls += [series for series, value in before.items() if self.last.get(series, -1.0) < value]
        self.moments.append(moment)

    @property
    def imbalances(self) -> list[dict[str, float]]:
        return [moment.imbalance for moment in self.moments if moment.imbalance]

    @property
    def slowest_scrape_s(self) -> float:
        return max(moment.scrape_s for moment in self.moments)

    def growth_bytes(self, *, part: str = "front_bytes", skip: float = 0.25) -> int:
        """Median of the last quarter less median of the quarter after `skip` of the time."""
        values = [getattr(moment, part) for moment in self.moments]
        first = values[int(skip * len(values)) :]
        quarter = max(1, len(first) // 4)
        return _median(first[-quarter:]) - _median(first[:quarter])


def _median(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]


def look(server: ServerProcess) -> tuple[Moment, str]:
    """What is to be seen of the server now, and its page."""
    began = time.monotonic()
    status, page = server.get("/metrics")
    scrape_s = time.monotonic() - began
    assert status == 200
    front = sum(map(_resident, (server.process.pid, *server.edge_pids())))
    return Moment(began, scrape_s, front, sum(map(_resident, server.engine_pids())), imbalance(page)), page


def _resident(pid: int) -> int:
    with suppress(psutil.NoSuchProcess):
        return int(psutil.Process(pid).memory_info().rss)
    return 0


@contextmanager
def watching(server: ServerProcess, period_s: float = 0.5) -> Iterator[Watch]:
    """Looks at the server again and again, in a thread, until the block ends."""
    watch, ended = Watch(), threading.Event()

    def keep_looking() -> None:
        while not ended.wait(period_s):
            try:
                watch.add(*look(server))
            except (OSError, AssertionError, psutil.Error) as error:
                watch.failures.append(repr(error))

    thread = threading.Thread(target=keep_looking, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join(30)
