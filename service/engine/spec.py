"""What an engine is to run: model, precision, threads, budgets.  Crosses to the engine process as it is."""

from dataclasses import dataclass, field
from pathlib import Path

from service.engine.cuda.device import Device
from service.engine.scheduler import SchedulerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Everything an engine process needs to know."""

    bundle_dir: Path
    device: Device = "cpu"
    cuda_graphs: bool = False  # on a GPU: record steps of one shape and replay them
    precision: str | None = None  # None: the best the bundle has for the device
    num_threads: int = 1  # that compute one operator
    shared_weights: bool = False  # on a CPU: map those that other engines map, too
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    heartbeat_interval_s: float = 0.25
    # "module:function", called with this spec, returns a Runner.
    runner_factory: str = "service.engine.cpu.runner:create_runner"
    # Likewise, called before that; what it raises ends the start.  Empty: nothing is called.
    preflight: str = ""
    manifest_sha256: str = ""  # of the bundle that is meant; empty: whichever lies there
