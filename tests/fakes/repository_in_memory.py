"""A bundle source in memory with a registry and a reloader; models start when the test lets them: no processes."""

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from service.config import LimitsConfig, ServerConfig
from service.models.catalogue import UseCount
from service.models.registry import ModelChange, Registry, Result
from service.models.reloader import Reloader
from service.models.repository import BundleCandidate, BundleCandidates, RepositoryError, version_order
from service.models.version import ModelState
from service.records import ModelInfo
from service.telemetry.metrics import Metrics
from tests.fakes.books import sample_of
from tests.fakes.model_info import model_info

GAUGES = ("queued_jobs", "queued_tokens", "queued_work_s", "running_jobs", "live_rows", "engines", "missing_engines")


def idle_engines(load: int = 0) -> Any:
    """A pool that takes work and has this much of everything that is measured of it."""
    return SimpleNamespace(**dict.fromkeys(GAUGES, load), is_ready=True)


@dataclass(eq=False)
class FakeModel:
    """A version that serves as soon as `gate` is open."""

    candidate: BundleCandidate
    info: ModelInfo
    gate: asyncio.Event
    error: Exception | None = None
    sha256_12: str = "abc"
    number: int = 0
    state: ModelState = ModelState.LOADING
    has_begun: bool = False
    is_closed: bool = False
    is_loaded: bool = True
    in_use: UseCount = field(default_factory=UseCount)
    pool: Any = field(default_factory=idle_engines)

    async def start(self) -> None:
        self.has_begun = True
        await self.gate.wait()
        if self.error:
            raise self.error
        self.state = ModelState.SERVING

    async def close(self) -> None:
        self.is_closed = True


class Directory:
    """A model repository in memory, and everything that looks after it."""

    def __init__(self, *versions: str) -> None:
        self.content: dict[str, str] = dict.fromkeys(versions, "1")  # "name/version" -> its manifest
        self.bad: dict[str, Exception] = {}  # that fail the check
        self.broken: dict[str, Exception] = {}  # that fail the start
        self.are_required = False  # whether each of them must serve
        self.gate = asyncio.Event()
        self.gate.set()
        self.made: list[FakeModel] = []
        self.checked: list[str] = []
        self.were_daemons: list[bool] = []  # the threads that scanned and checked
        self.metrics = Metrics()
        self.registry = Registry(ServerConfig(limits=LimitsConfig(max_request_seconds=600.0)), self.metrics)
        make_model: Any = self.make_model
        self.reloader = Reloader(self.registry, self.scan, self.check, make_model, watch_period_s=0.001)

    def scan(self) -> BundleCandidates:
        self.were_daemons.append(threading.current_thread().daemon)
        if not self.content:
            raise RepositoryError("model repository is empty")
        names = sorted({key.partition("/")[0] for key in self.content})
        return {name: tuple(self.candidates(name)) for name in names}

    def candidates(self, name: str) -> list[BundleCandidate]:
        versions = [key.partition("/")[2] for key in self.content if key.startswith(f"{name}/")]
        return [
            BundleCandidate(
                directory=Path(name) / version,
                name=name,
                version=version,
                manifest_sha256=self.content[f"{name}/{version}"],
                fingerprint=self.content[f"{name}/{version}"],
                is_required=self.are_required,
            )
            for version in sorted(versions, key=version_order, reverse=True)
        ]

    def check(self, candidate: BundleCandidate) -> Any:
        self.checked.append(candidate.label)
        self.were_daemons.append(threading.current_thread().daemon)
        if candidate.label not in self.content:
            raise ValueError(f"{candidate.label} is not a bundle")
        if error := self.bad.get(candidate.label):
            raise error
        return SimpleNamespace()

    def make_model(self, candidate: BundleCandidate, bundle: object) -> FakeModel:
        info = model_info(candidate.name, candidate.version)
        self.made.append(FakeModel(candidate, info, self.gate, self.broken.get(candidate.label)))
        return self.made[-1]

    async def load(self) -> None:
        await self.reloader.prepare()
        await self.reloader.load()

    def serving(self) -> list[str]:
        """Name and version of each model that serves."""
        return [f"{host.info.name}/{host.info.version}" for host in self.registry.models]

    def refused(self) -> dict[str, str]:
        """The reason of each refusal, by name and version."""
        return {refusal.candidate.label: refusal.reason for refusal in self.registry.refusals}

    def counted(self, name: str, result: Result) -> float:
        """How many versions of a model the metrics have with this result."""
        labels = {"model": name, "result": result.value}
        return sample_of(self.metrics, "dragoman_model_reload_total", labels) or 0.0


def change(label: str, result: Result, reason: str = "") -> ModelChange:
    """Of the version that is called so: NAME/VERSION."""
    name, _, version = label.partition("/")
    return ModelChange(name=name, version=version, result=result, reason=reason)


def registry_of(*infos: ModelInfo, pool: Any = None) -> Registry:
    """A registry in which these models serve, in the order of their names; none of them can translate."""
    registry = Registry(ServerConfig(limits=LimitsConfig(max_request_seconds=5.0)), Metrics())
    for info in infos:
        candidate = BundleCandidate(directory=Path(info.name), name=info.name)
        host: Any = FakeModel(candidate, info, asyncio.Event(), pool=pool)
        registry.publish(host)
    return registry
