"""What decoder steps cost a GPU, counted on one that is not there."""

import gc
import json
from pathlib import Path

import pytest

from service.engine.cuda.memory import CudaDevice
from service.engine.cuda.runner import GRAPHS, CudaRunner, graph_paths
from service.engine.cuda.session import free_memory, open_on_cuda
from service.engine.scheduler import SchedulerConfig
from service.engine.spec import EngineSpec
from tests.gpu_counted.loads import Cost, settled, sources, stream, twin


def show(name: str, cost: Cost) -> None:
    print(f"{name}: {cost.line()}")


@pytest.mark.parametrize("beam_size", [1, 4, 5])
def test_a_settled_step_builds_no_plan_and_binds_nothing_anew(bundle, beam_size):
    runner = CudaRunner.open(EngineSpec(bundle_dir=bundle.directory, device="cuda"))

    cost = settled(runner, 64, beam_size)

    show(f"settled, beam {beam_size}", cost)
    assert (cost.number("plan"), cost.new_bindings) == (0, 0)
    assert cost.is_clean()


@pytest.mark.parametrize("records", [False, True])
def test_a_stream_builds_no_plan(bundle, records):
    runner, texts = twin(bundle, cuda_graphs=records), sources(bundle, 300)

    for turn in ("first", "second"):
        cost = stream(runner, texts, 4, arrivals=3)
        show(f"stream, {turn} time, {'recorded' if records else 'launched'}", cost)

        assert cost.number("plan") == 0
        assert cost.is_clean()


def test_every_node_runs_on_the_gpu(bundle, tmp_path):
    device = CudaDevice()
    sessions = {
        name: open_on_cuda(path, device.stream, profile=tmp_path / name) for name, path in graph_paths(bundle).items()
    }

    settled(CudaRunner(bundle, sessions, device), 8, 4)

    for name in GRAPHS:
        events = json.loads(Path(sessions[name].end_profiling()).read_text(encoding="utf-8"))
        nodes = [event["args"] for event in events if event.get("cat") == "Node" and "provider" in event["args"]]
        assert {node["provider"] for node in nodes} == {"CUDAExecutionProvider"}
        assert not [node for node in nodes if node["op_name"].startswith("Memcpy")]


def test_budgets_fit_the_memory_that_is_free(bundle):
    runner = CudaRunner.open(EngineSpec(bundle_dir=bundle.directory, device="cuda"))

    found = runner.budgets(SchedulerConfig(max_rows=1 << 30, max_source_tokens=1 << 30))

    assert 1_024 < found.max_rows < 1 << 30


def test_twenty_loads_of_a_model_leave_nothing_behind(bundle):
    spec, free = EngineSpec(bundle_dir=bundle.directory, device="cuda"), []
    for _ in range(20):
        settled(CudaRunner.open(spec), 64, 4, steps=2)
        gc.collect()
        free.append(free_memory())

    assert free[-1] >= free[2]
