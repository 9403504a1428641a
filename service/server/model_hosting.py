"""Makes the models of a server from its settings: their source, and the engines, threads and budgets of each.

This module imports little: the first engines start as soon as it is loaded, and the other libraries of the scheduler
process load in the meantime.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from model.bundle import Bundle
from service.api import http
from service.api.grpc import (
    dragoman,
    google,
    kserve,
)
from service.config import EngineConfig, ServerConfig
from service.engine.choice import RuntimeChoice, choose_runtime
from service.engine.wire import GPU_BUDGETS, Device, EngineSpec, Runtime, SchedulerConfig
from service.models.info import describe
from service.models.registry import Registry
from service.models.reloader import Reloader
from service.models.repository import IN_ENGINE, BundleCandidate, BundleChecker, bundle_source, device_for
from service.models.version import ModelVersion
from service.scheduler.pool import EnginePool, PoolConfig
from service.telemetry.logs import get_logger
from service.telemetry.metrics import Metrics
from service.threads import available_threads

TOKENIZER_THREADS = 2
# Each engine has caches and buffers of its own.  Native ones have one thread, so that every CPU wants its own.
_MAX_DEFAULT_ENGINES, _MAX_DEFAULT_NATIVE_ENGINES = 16, 64
_IDLE_HEARTBEAT_S = 1.0
_HEARTBEATS_PER_SILENCE = 8  # within the time that an engine may be silent


class ModelParts:
    """The parts of the scheduler process that load and run models."""

    def __init__(self, config: ServerConfig) -> None:
        """Load nothing yet."""
        self._config = config
        self.metrics = Metrics(methods=counted_methods())
        self.registry = Registry(config, self.metrics)
        self.reloader = Reloader(
            self.registry,
            bundle_source(config),
            BundleChecker(config),
            self.make_model,
            watch_period_s=config.models.watch_period_s if config.models.watch else None,
        )
        # For texts that are too long for the event loop.
        self.executor = ThreadPoolExecutor(TOKENIZER_THREADS, thread_name_prefix="tokenizer")

    def make_model(self, candidate: BundleCandidate, bundle: Bundle) -> ModelVersion:
        """Make a model that runs this bundle as the settings say; it is not started."""
        config, asked = self._config, self._config.engine.device
        choice = device_for(bundle, asked)
        if choice.reason:
            get_logger().warning("device_not_used", asked=asked, used=choice.device, reason=choice.reason)
        runtime = runtime_for(bundle, config.engine, choice.device)
        get_logger().info("engine_runtime", model=bundle.manifest.name, runtime=runtime.runtime, detail=runtime.detail)
        pool = EnginePool(
            engine_spec(bundle, config, choice.device),
            PoolConfig(
                num_engines=num_engines(config.engine, choice.device, runtime.runtime),
                start_timeout_s=config.lifecycle.start_timeout_s,
                heartbeat_timeout_s=config.lifecycle.engine_silence_s,
                batch_aging_s=config.limits.batch_aging_s,
            ),
            observer=self.metrics.model(bundle.manifest.name),
        )
        info = describe(bundle, config.engine.precision, choice.device, max_beam_size=config.limits.max_beam_size)
        info = replace(info, runtime=runtime.runtime, runtime_detail=runtime.detail)
        return ModelVersion(candidate, bundle, info, pool, config, self.registry.model_cache)

    async def close(self) -> None:
        """End everything, in whatever state it is."""
        await self.reloader.close()
        self.executor.shutdown(wait=False, cancel_futures=True)


def runtime_for(bundle: Bundle, config: EngineConfig, device: Device) -> RuntimeChoice:
    """Return what computes this bundle's model."""
    if device == "cuda":
        return RuntimeChoice("onnxruntime", "")
    return choose_runtime(config.runtime, bundle, config.precision, config.threads or 1)


def engine_spec(bundle: Bundle, config: ServerConfig, device: Device = "cpu") -> EngineSpec:
    """Return what an engine of this bundle is told; settings that are None leave the engine's own defaults."""
    engine = config.engine
    runtime = runtime_for(bundle, engine, device).runtime
    engines = num_engines(engine, device, runtime)
    usual = SchedulerConfig() if device == "cpu" else GPU_BUDGETS
    return EngineSpec(
        bundle_dir=bundle.directory,
        manifest_sha256=bundle.manifest_sha256,
        preflight=IN_ENGINE,
        device=device,
        runtime=engine.runtime,
        cuda_graphs=engine.cuda_graphs,
        precision=engine.precision,
        num_threads=engine.threads or (1 if runtime == "native" else max(1, available_threads() // engines)),
        is_one_of_several=engines > 1,
        # With limited memory engines come one by one, and to pack the weights takes as long as to start an engine.
        shared_weights=engine.shared_weights
        and runtime == "native"
        and not engine.runner_factory
        and engines > 1
        and config.models.max_memory_mb is None,
        scheduler=replace(usual, **_given(max_rows=engine.max_rows, max_source_tokens=engine.max_source_tokens)),
        heartbeat_interval_s=min(_IDLE_HEARTBEAT_S, config.lifecycle.engine_silence_s / _HEARTBEATS_PER_SILENCE),
        **_given(runner_factory=engine.runner_factory),
    )


def num_engines(config: EngineConfig, device: Device = "cpu", runtime: Runtime = "onnxruntime") -> int:
    """Return how many engine processes a model has: by default one per thread on a CPU, and one on a GPU.

    Engines of one thread do more together than one engine of many threads.  A second engine on a GPU would share its
    kernels and have a copy of the weights.
    """
    if config.num_engines:
        return config.num_engines
    if device == "cuda":
        return 1
    most = _MAX_DEFAULT_NATIVE_ENGINES if runtime == "native" else _MAX_DEFAULT_ENGINES
    return min(most, max(1, available_threads() // (config.threads or 1)))


def counted_methods() -> tuple[str, ...]:
    """Return the methods of calls for a model, as labels."""
    return (
        dragoman.TRANSLATE,
        dragoman.SCORE,
        dragoman.TRANSLATE_STREAM,
        google.TRANSLATE,
        kserve.INFER,
        *http.METHODS,
    )


def _given(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}
