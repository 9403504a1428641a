"""All versions of models in a server: those that serve, load or drain, and those that were refused.

Calls find the models that serve in the catalogue of the registry.  The reloader decides which versions come and go.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Protocol

from service.config import ServerConfig
from service.engine.worker import return_freed_memory
from service.errors import DragomanError
from service.models.catalogue import Catalogue
from service.models.model_cache import ModelCache
from service.models.repository import BundleCandidate
from service.models.translation_cache import TranslationCache
from service.models.version import ModelState, ModelVersion
from service.scheduler.pool import EnginePool
from service.telemetry.logs import describe_error, get_logger
from service.telemetry.metrics import Metrics

# Gauges of a model, each of which is a sum over the engines of all its versions.
_GAUGES: dict[str, Callable[[EnginePool], float]] = {
    "queue_requests": lambda engines: engines.queued_jobs,
    "queue_tokens": lambda engines: engines.queued_tokens,
    "queue_work_seconds": lambda engines: engines.queued_work_s,
    "running_jobs": lambda engines: engines.running_jobs,
    "live_rows": lambda engines: engines.live_rows,
    "engines": lambda engines: engines.engines,
    "engines_missing": lambda engines: engines.missing_engines,
}


class Result(StrEnum):
    """The outcome for a version at a reload; the values are those of `admin.proto`."""

    LOADED = "loaded"
    RETIRED = "retired"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChange:
    """The outcome for one version at a reload."""

    name: str
    version: str
    result: Result
    reason: str = ""  # why it was refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A candidate that may not serve."""

    name: str  # of the model that it is a version of
    candidate: BundleCandidate
    error: Exception

    @property
    def is_foreseen(self) -> bool:
        """Whether the error says by itself what is wrong with the bundle."""
        return isinstance(self.error, (ValueError, DragomanError))

    @property
    def reason(self) -> str:
        """The error in one line, with its kind if it is an unforeseen one."""
        text = " ".join(str(self.error).split())
        return text if self.is_foreseen else f"{type(self.error).__name__}: {text}"


class ModelUsers(Protocol):
    """The frontends in processes of their own; their calls find the models that the registry offers."""

    async def offer(self, models: Sequence[ModelVersion]) -> None:
        """Return when calls find these models, and no others."""
        ...

    async def drained(self, model: ModelVersion) -> None:
        """Return when no call uses a model that is offered no more."""
        ...


class Registry:
    """Owns all versions of models and says which of them serve; only for the event loop's thread."""

    def __init__(self, config: ServerConfig, metrics: Metrics) -> None:
        """Start without any model; raise ValueError as `ModelCache`."""
        self._metrics = metrics
        self.model_cache = ModelCache(config, metrics, self)
        self._drain_s = config.limits.max_request_seconds  # no call uses a version for longer that was replaced
        self.catalogue = Catalogue()
        self.translation_cache = TranslationCache(config.limits.translation_cache_mb << 20, metrics)
        self.frontends: ModelUsers | None = None  # in processes of their own; None: there are none
        self._serving: dict[
            str, ModelVersion
        ] = {}  # by the candidate's name; the default first, then in order of names
        self._loading: set[ModelVersion] = set()
        self._leaving: dict[ModelVersion, asyncio.Task[None]] = {}
        self._refusals: dict[Path, Refusal] = {}  # by directory, in the order in which they were refused

    @property
    def models(self) -> list[ModelVersion]:
        return list(self._serving.values())

    @property
    def versions(self) -> list[ModelVersion]:
        return [*self._serving.values(), *self._loading, *self._leaving]

    @property
    def refusals(self) -> list[Refusal]:
        """What was refused at the last look, the latest refusal last."""
        return list(self._refusals.values())

    @property
    def is_ready(self) -> bool:
        """Whether every model that is loaded has an engine that takes work."""
        return bool(self._serving) and all(one.pool.is_ready for one in self.models if one.is_loaded)

    def is_refused(self, name: str) -> bool:
        """Whether the source has a version of this model, above the one that serves, that was refused."""
        return any(refusal.name == name for refusal in self._refusals.values())

    def serving(self, candidate: BundleCandidate) -> ModelVersion | None:
        """Return the model that serves this very bundle."""
        model = self._serving.get(candidate.name)
        if model is None or model.candidate.directory != candidate.directory:
            return None
        return model if model.candidate.manifest_sha256 == candidate.manifest_sha256 else None

    async def start(self, model: ModelVersion) -> None:
        """Start a version that is to serve next; where that fails, end it.  At most one other of its model runs."""
        if leaving := [task for old, task in self._leaving.items() if old.candidate.name == model.candidate.name]:
            await asyncio.wait(leaving)  # never three versions of a model at once
        self._loading.add(model)
        try:
            await self.model_cache.load(model)
        except BaseException:
            await model.close()
            raise
        finally:
            self._loading.discard(model)

    def publish(self, model: ModelVersion) -> list[ModelChange]:
        """Have later requests find this version, which has started, in place of an earlier one."""
        name, info = model.candidate.name, model.info
        retired = [self.retire(name)] if name in self._serving else []
        self._serving[name] = model
        self._serving = dict(
            sorted(self._serving.items(), key=lambda item: (not item[1].candidate.is_default, item[0]))
        )
        self.catalogue.replace(self._serving.values())
        of_model = self._metrics.model(info.name)
        of_model.loaded(version=info.version, sha256_12=model.sha256_12, provider=info.device, runtime=info.runtime)
        for gauge, read in _GAUGES.items():
            of_model.watch(gauge, partial(self._sum, info.name, read))
        event = "model_loaded" if model.is_loaded else "model_known"
        get_logger().info(event, model=info.name, version=info.version, sha256_12=model.sha256_12)
        return [self._changed(info.name, info.version, Result.LOADED), *retired]

    def retire(self, name: str) -> ModelChange:
        """Have no later request find the model of this name; it ends when the calls that have found it are done."""
        model = self._serving.pop(name)
        self.catalogue.replace(self._serving.values())
        model.state = ModelState.DRAINING
        info = model.info
        self._metrics.model(info.name).unloaded(
            version=info.version, sha256_12=model.sha256_12, provider=info.device, runtime=info.runtime
        )
        self._leaving[model] = asyncio.create_task(self._end(model))
        return self._changed(info.name, info.version, Result.RETIRED)

    async def spread(self) -> None:
        """Return when the calls in all frontends find what was published, and no longer what was retired."""
        if self.frontends is not None:
            await self.frontends.offer(self.models)

    def refuse(self, candidate: BundleCandidate, error: Exception) -> ModelChange:
        """Remember that this candidate may not serve, and why."""
        # A single bundle of any name replaces the model that serves.
        name = candidate.name or next((one.info.name for one in self.models), candidate.directory.name)
        refusal = Refusal(name=name, candidate=candidate, error=error)
        self._refusals.pop(candidate.directory, None)
        self._refusals[candidate.directory] = refusal
        digits = candidate.manifest_sha256[:12]
        get_logger().error("model_refused", model=candidate.label, sha256_12=digits, reason=refusal.reason)
        if not refusal.is_foreseen:
            get_logger().error("model_refused_unexpectedly", **describe_error(error))
        # The frames hold the model that failed, with its tokenizer and all else.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return self._changed(name, candidate.version, Result.REFUSED, refusal.reason)

    def forget_refusals(self, directories: Iterable[Path]) -> None:
        for directory in directories:
            self._refusals.pop(directory, None)

    async def close(self) -> None:
        """End all engines; calls that still use them fail with Unavailable."""
        leaving = list(self._leaving.values())
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        await asyncio.gather(*map(self.model_cache.forget, self.versions))
        await asyncio.gather(*(one.close() for one in self.versions))

    async def _end(self, model: ModelVersion) -> None:
        which = {"model": model.info.name, "version": model.info.version}
        try:
            async with asyncio.timeout(self._drain_s):
                if self.frontends is not None:
                    await self.spread()  # no call finds it from now on
                    await self.frontends.drained(model)
                await model.in_use.wait_idle()
        except TimeoutError:
            get_logger().warning("model_still_used", **which, calls=model.in_use.calls)
        self.translation_cache.forget(model.number)
        try:
            await self.model_cache.forget(model)
            await model.close()
        finally:  # otherwise its engines would be counted for ever
            del self._leaving[model]
            self.model_cache.wake()
        return_freed_memory()
        get_logger().info("model_retired", **which)

    def _changed(self, name: str, version: str, result: Result, reason: str = "") -> ModelChange:
        of_model = self._metrics.model(name)
        of_model.changed(result)
        of_model.watch("model_refused", lambda: float(self.is_refused(name)))
        return ModelChange(name=name, version=version, result=result, reason=reason)

    def _sum(self, name: str, read: Callable[[EnginePool], float]) -> float:
        return float(sum(read(one.pool) for one in self.versions if one.info.name == name))
