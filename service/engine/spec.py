"""What an engine is to run: model, device, precision, threads, budgets.  Crosses to the engine process as it is."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from service.engine.scheduler import SchedulerConfig

Device = Literal["cpu", "cuda"]
Runtime = Literal["auto", "native", "onnxruntime"]  # of a CPU; auto: the native engine where it can serve the model
ONNX_RUNTIME = "service.engine.process:create_runner"  # the runner of exported graphs


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Everything an engine process needs to know."""

    bundle_dir: Path
    device: Device = "cpu"
    runtime: Runtime = "auto"
    cuda_graphs: bool = True  # on a GPU: record the step of each shape and replay it
    precision: str | None = None  # None: the best the bundle has for the device
    num_threads: int = 1  # that compute one operator
    shared_weights: bool = False  # of the native engine: the engines of a model map one copy of its weights ...
    prepared_dir: Path | None = None  # ... which lies here
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    heartbeat_interval_s: float = 0.25
    runner_factory: str = ONNX_RUNTIME  # "module:function", called with this spec
    preflight: str = ""  # "module:function", called with this spec before; its error ends the start.  Empty: nothing
    manifest_sha256: str = ""  # of the bundle to load; empty: any bundle in that directory
