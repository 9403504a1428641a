"""A server's metrics page read while it works: whether its books balance, and what it holds of memory.

received = answered by code + in flight must be true of every page, because the page is made between two events.
"""

import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil

from tests.fakes.server_process import ServerProcess

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def samples(page: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels and value of each sample of a page."""
    for name, labels, value in _SAMPLE.findall(page):
        yield name, dict(_LABEL.findall(labels)), float(value)


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


@dataclass(frozen=True, slots=True)
class Moment:
    at: float  # time.monotonic()
    scrape_s: float
    front_bytes: int  # resident memory of the core
    engine_bytes: int  # of all its engine processes
    imbalance: dict[str, float]


@dataclass(slots=True)
class Watch:
    moments: list[Moment] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # pages that could not be had

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


def look(server: ServerProcess) -> Moment:
    began = time.monotonic()
    status, page = server.get("/metrics")
    scrape_s = time.monotonic() - began
    assert status == 200
    process = psutil.Process(server.process.pid)
    engines = sum(_resident(engine) for engine in process.children())
    return Moment(began, scrape_s, _resident(process), engines, imbalance(page))


def _resident(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):
        return int(process.memory_info().rss)
    return 0


@contextmanager
def watching(server: ServerProcess, period_s: float = 0.5) -> Iterator[Watch]:
    """Looks at the server again and again, in a thread, until the block ends."""
    watch, ended = Watch(), threading.Event()

    def keep_looking() -> None:
        while not ended.wait(period_s):
            try:
                watch.moments.append(look(server))
            except (OSError, AssertionError, psutil.Error) as error:
                watch.failures.append(repr(error))

    thread = threading.Thread(target=keep_looking, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join(30)
