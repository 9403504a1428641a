"""How the engines of a model are run, from the settings: how many, with how many threads, and how patient to be."""

from typing import Any

from service.config import EngineConfig, ServerConfig
from service.dispatch.dispatcher import DispatchConfig
from service.engine.scheduler import SchedulerConfig
from service.engine.spec import EngineSpec
from service.threads import available_threads

_MOST_ENGINES = 16  # by default: each has a copy of the model


def engine_spec(config: EngineConfig) -> EngineSpec:
    """What an engine is told; the engine owns the defaults of what is None here."""
    budgets = _given(max_rows=config.max_rows, max_source_tokens=config.max_source_tokens)
    return EngineSpec(
        bundle_dir=config.bundle,
        precision=config.precision,
        num_threads=config.threads or max(1, available_threads() // num_engines(config)),
        scheduler=SchedulerConfig(**budgets),
        **_given(runner_factory=config.runner_factory),
    )


def num_engines(config: EngineConfig) -> int:
    """How many engine processes there are: engines of one thread do more together than one of many threads."""
    fitting = available_threads() // (config.threads or 1)
    return config.num_engines or min(_MOST_ENGINES, max(1, fitting))


def dispatch_config(config: ServerConfig) -> DispatchConfig:
    """How the dispatcher keeps the engines."""
    lifecycle = config.lifecycle
    return DispatchConfig(
        num_engines=num_engines(config.engine),
        start_timeout_s=lifecycle.start_timeout_s,
        heartbeat_timeout_s=lifecycle.engine_silence_s,
    )


def _given(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}
