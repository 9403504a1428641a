"""How the engines of a model are run, from the settings: how many, with how many threads, and how patient to be."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from service.config import EngineConfig, ServerConfig
from service.engine.cuda.device import Device
from service.engine.scheduler import GPU_BUDGETS, SchedulerConfig
from service.engine.spec import EngineSpec
from service.engines.dispatcher import DispatchConfig
from service.threads import available_threads

_MOST_ENGINES = 16  # by default: each has caches and buffers of its own
_IDLE_HEARTBEAT_S = 1.0
_SIGNS_PER_SILENCE = 8  # expected while an engine may be silent


def engine_spec(bundle_dir: Path, config: EngineConfig, device: Device = "cpu") -> EngineSpec:
    """What an engine of this bundle is told; the engine owns the defaults of what is None here."""
    budgets = _given(max_rows=config.max_rows, max_source_tokens=config.max_source_tokens)
    usual = SchedulerConfig() if device == "cpu" else GPU_BUDGETS
    engines = num_engines(config, device)
    return EngineSpec(
        bundle_dir=bundle_dir,
        device=device,
        cuda_graphs=config.cuda_graphs,
        precision=config.precision,
        num_threads=config.threads or max(1, available_threads() // engines),
        shared_weights=config.shared_weights and device == "cpu" and engines > 1,
        scheduler=replace(usual, **budgets),
        **_given(runner_factory=config.runner_factory),
    )


def heartbeat_interval_s(config: ServerConfig) -> float:
    """How often an idle engine says that it lives: seldom, as that is all an idle server does, and often enough."""
    return min(_IDLE_HEARTBEAT_S, config.lifecycle.engine_silence_s / _SIGNS_PER_SILENCE)


def num_engines(config: EngineConfig, device: Device = "cpu") -> int:
    """How many engine processes a model has: engines of one thread do more together than one of many threads.

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
