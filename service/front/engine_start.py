"""Engines that start while the rest of the server is still being loaded.

Imports little on purpose: an engine takes about a second to load its model, and the front process's own libraries load
meanwhile.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from model.bundle import GPU_PRECISION, Bundle
from service.config import EngineConfig, ServerConfig
from service.dispatch.dispatcher import DispatchConfig, Dispatcher
from service.engine.device import Device, DeviceChoice, choose_device
from service.engine.scheduler import GPU_BUDGETS, SchedulerConfig
from service.engine.spec import EngineSpec
from service.telemetry.metrics import Metrics
from service.threads import available_threads

_MOST_ENGINES = 16  # by default: each has a copy of the model
_IDLE_HEARTBEAT_S = 1.0
_SIGNS_PER_SILENCE = 8  # expected while an engine may be silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """Engines on their way, and what they are to serve."""

    bundle: Bundle
    device: DeviceChoice
    metrics: Metrics
    dispatcher: Dispatcher
    starting: "asyncio.Task[None]"  # done when all are warm; raises what `Dispatcher.start` raises

    async def stop(self) -> None:
        """End them, in whatever state they are."""
        self.starting.cancel()
        await asyncio.gather(self.starting, return_exceptions=True)
        await self.dispatcher.close()


def start_engines(config: ServerConfig) -> Engines:
    """Check the bundle and set its engines going.

    Raises:
        BundleError: the bundle cannot be used, or has no graphs of the wanted precision.
    """
    bundle = Bundle.load(config.engine.bundle)
    choice = choose_device(config.engine.device, has_graphs=GPU_PRECISION in bundle.manifest.variants)
    if choice.device == "cpu":
        bundle.variant(config.engine.precision)  # raises if there is none
    metrics = Metrics()
    observer = metrics.model(bundle.manifest.name)
    spec = replace(engine_spec(config.engine, choice.device), heartbeat_interval_s=heartbeat_interval_s(config))
    dispatcher = Dispatcher(spec, dispatch_config(config, choice.device), observer=observer)
    starting = asyncio.create_task(dispatcher.start())
    return Engines(bundle=bundle, device=choice, metrics=metrics, dispatcher=dispatcher, starting=starting)


def engine_spec(config: EngineConfig, device: Device = "cpu") -> EngineSpec:
    """What an engine is told; the engine owns the defaults of what is None here."""
    budgets = _given(max_rows=config.max_rows, max_source_tokens=config.max_source_tokens)
    usual = SchedulerConfig() if device == "cpu" else GPU_BUDGETS
    return EngineSpec(
        bundle_dir=config.bundle,
        device=device,
        cuda_graphs=config.cuda_graphs,
        precision=config.precision,
        num_threads=config.threads or max(1, available_threads() // num_engines(config, device)),
        scheduler=replace(usual, **budgets),
        **_given(runner_factory=config.runner_factory),
    )


def heartbeat_interval_s(config: ServerConfig) -> float:
    """How often an idle engine says that it lives: seldom, as that is all an idle server does, and often enough."""
    return min(_IDLE_HEARTBEAT_S, config.lifecycle.engine_silence_s / _SIGNS_PER_SILENCE)


def num_engines(config: EngineConfig, device: Device = "cpu") -> int:
    """How many engine processes there are: engines of one thread do more together than one of many threads.

    On a GPU one: a second would share its kernels and have a copy of the weights.
    """
    if device == "cuda":
        return config.num_engines or 1
    fitting = available_threads() // (config.threads or 1)
    return config.num_engines or min(_MOST_ENGINES, max(1, fitting))


def dispatch_config(config: ServerConfig, device: Device = "cpu") -> DispatchConfig:
    """How the dispatcher keeps the engines."""
    lifecycle = config.lifecycle
    return DispatchConfig(
        num_engines=num_engines(config.engine, device),
        start_timeout_s=lifecycle.start_timeout_s,
        heartbeat_timeout_s=lifecycle.engine_silence_s,
        batch_aging_s=config.limits.batch_aging_s,
    )


def _given(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}
