"""What decoder steps cost a GPU, counted on one that is not there."""

import gc
import json
import os
from pathlib import Path

import pytest

from service.engine.cuda.memory import CudaDevice
from service.engine.cuda.runner import GRAPHS, CudaRunner, graph_paths
from service.engine.cuda.session import free_memory, open_on_cuda
from service.engine.scheduler import SchedulerConfig
from service.engine.spec import EngineSpec
from tests.gpu_counted.loads import Cost, loop_of, settled, sources, stream, twin


def show(name: str, cost: Cost) -> None:
    print(f"{name}: {cost.line()}")


@pytest.mark.parametrize("beam_size", [1, 4, 5])
def test_a_settled_step_is_one_launch_one_upload_one_download_and_one_wait(bundle, beam_size):
    runner = CudaRunner.open(EngineSpec(bundle_dir=bundle.directory, device="cuda", cuda_graphs=True))

    cost = settled(runner, 64, beam_size)

    show(f"settled, beam {beam_size}", cost)
    assert cost.is_clean()
    assert (cost.number("plan"), cost.new_bindings, cost.number("launch")) == (0, 0, 0)
    for name in ("graph launch", "copy pinned to device", "copy device to pinned", "synchronise"):
        assert cost.each(name) == 1, name
    assert cost.each("blocking copy") == 0


@pytest.mark.parametrize("beam_size", [1, 4, 5])
def test_sentences_that_join_and_leave_bind_nothing_anew_once_shapes_are_known(bundle, beam_size):
    runner, texts = twin(bundle, cuda_graphs=True), sources(bundle, 200)
    loop = loop_of(runner)
    first = stream(loop, runner, texts, beam_size, arrivals=4)  # memory grows to what the load needs

    stream(loop, runner, texts, beam_size, arrivals=4)  # and is that large from the first sentence on
    again = stream(loop, runner, texts, beam_size, arrivals=4)

    show(f"stream, beam {beam_size}, first time", first)
    show(f"stream, beam {beam_size}, again", again)
    assert first.is_clean()
    assert first.new_bindings < 30
    assert again.is_clean()
    assert (again.number("plan"), again.new_bindings, again.number("graph captured")) == (0, 0, 0)
    assert again.each("graph launch") == 1
    assert again.each("copy device to pinned") == 1
    assert again.each("blocking copy") == 0
    assert again.each("copy pinned to device") <= 2  # of the step, and of the encoder where sentences join
    assert again.each("synchronise") < 1.05


def test_a_machine_that_refuses_to_record_runs_steps_unrecorded(bundle):
    runner = CudaRunner.open(EngineSpec(bundle_dir=bundle.directory, device="cuda", cuda_graphs=True))
    os.environ["COUNTED_GPU_NO_CAPTURE"] = "1"
    try:
        with pytest.warns(RuntimeWarning, match="cuda_graphs is off from now on"):
            cost = settled(runner, 16, 4)
    finally:
        del os.environ["COUNTED_GPU_NO_CAPTURE"]

    assert cost.number("graph launch") == 0
    assert cost.number("launch") > 0


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
