"""What decoder steps cost a GPU, counted on one that is not there."""

import ctypes
import gc
from collections.abc import Callable

import numpy as np
import pytest

from bench.gpu_counted.counters import Measured, total
from bench.gpu_counted.loads import Cost, loop_of, made_up_sources, opened, settled, sources, stream, twin
from bench.gpu_counted.scripted import ScriptedRunner
from service.engine.cuda import cudart
from service.engine.cuda.memory import Bytes, CudaDevice, Device, Piece, Rows
from service.engine.cuda.runner import CudaRunner
from service.engine.cuda.session import free_memory
from service.engine.logits import Edits
from service.engine.runner import FULL_LANE
from service.engine.wire import EngineSpec
from tests.fakes.host_device import HostDevice

KERNELS = {"included": 62, "base": 154, "nllb": 293}  # of a step, as docs/gpu.md says


def show(name: str, cost: Cost) -> None:
    print(f"{name}: {cost.line()}")


@pytest.mark.parametrize("beam_size", [1, 4, 5])
def test_a_settled_step_is_one_launch_one_upload_one_download_and_one_wait(bundle, beam_size):
    runner = opened(CudaRunner, bundle)

    cost = settled(runner, 64, beam_size)

    show(f"settled, beam {beam_size}", cost)
    assert cost.is_clean()
    assert (cost.number("plan"), cost.new_bindings, cost.number("launch")) == (0, 0, 0)
    assert_one_launch_a_step(cost)
    assert total(cost.counts, "graph launch").amount == KERNELS["included"] * cost.steps


def assert_one_launch_a_step(cost: Cost) -> None:
    """And one for the sentences that join."""
    assert cost.number("graph launch") == cost.steps + cost.encoder_runs
    assert cost.number("launch") == 0
    for name in ("copy pinned to device", "copy device to pinned"):
        assert cost.each(name) == 1, name
    assert cost.each("blocking copy") == 0
    # The encoder waits until the device has read what it was given before, which is long ago; and memory that is given
    # back at the end is waited for.
    assert cost.steps <= cost.number("synchronise") <= cost.steps + cost.encoder_runs + 2


@pytest.mark.parametrize("beam_size", [1, 5])
def test_sentences_that_join_and_leave_bind_nothing_anew_once_shapes_are_known(bundle, beam_size):
    runner, texts = twin(bundle), sources(bundle, 200)
    loop = loop_of(runner)
    first = stream(loop, runner, texts, beam_size, arrivals=4)

    again = stream(loop, runner, texts, beam_size, arrivals=4)

    show(f"stream, beam {beam_size}, first time", first)
    show(f"stream, beam {beam_size}, again", again)
    assert first.is_clean()
    assert first.new_bindings < 20
    assert again.is_clean()
    assert (again.number("plan"), again.new_bindings, again.number("graph captured")) == (0, 0, 0)
    assert_one_launch_a_step(again)


def test_from_the_start_on_every_step_of_a_usual_search_is_one_launch(bundle):
    """No sentence has come before these: what they need was recorded when the engine opened."""
    runner = twin(bundle)

    cost = stream(loop_of(runner), runner, sources(bundle, 600), 4, arrivals=4)

    show("stream, beam 4, the first sentences", cost)
    assert cost.is_clean()
    assert (cost.number("plan"), cost.new_bindings, cost.number("graph captured")) == (0, 0, 0)
    assert_one_launch_a_step(cost)
    assert runner.there.take_unrecorded() == 0


def test_lanes_that_take_turns_launch_what_was_recorded(bundle):
    """More sentences than a lane has: each step of either lane is one launch, from the first one on."""
    runner = opened(ScriptedRunner, bundle, max_rows=4 * 300)
    loop = loop_of(runner, 4 * 300)

    cost = stream(loop, runner, made_up_sources(900), 4, arrivals=40)

    show("stream, two lanes", cost)
    assert {key.lane for key in loop._groups} == {0, 1}
    assert cost.rows > 4 * FULL_LANE / 2
    assert cost.is_clean()
    assert (cost.number("plan"), cost.new_bindings, cost.number("graph captured")) == (0, 0, 0)
    assert cost.number("graph launch") >= cost.steps
    assert cost.each("copy pinned to device") == cost.each("copy device to pinned") == 1
    assert runner.take_unrecorded() == 0


def test_edited_logits_are_part_of_the_recording(bundle):
    runner = opened(CudaRunner, bundle, max_rows=64)
    state = runner.new_state(4)
    state.append(runner.encode([(7, 8, 9, 3)] * 8), range(8))
    tokens, scores = np.full((8, 4), 7), np.zeros((8, 4), np.float32)

    def step(num_edits: int) -> None:
        some = np.arange(num_edits)
        edits = Edits(some % 32, some + 5, np.zeros(num_edits, np.float32), np.ones(num_edits, np.float32))
        runner.decode_step(tokens, scores, state, edits, num_candidates=8)

    step(3)
    measured = Measured()
    for number in (200, 1, 77):
        step(number)

    assert measured.since()["graph launch"].number == 3
    assert total(measured.since(), "launch").number == 0


@pytest.mark.parametrize("place", ["begin", "kernel"])
def test_a_step_that_cannot_be_recorded_runs_unrecorded(bundle, monkeypatch, place):
    runner = opened(CudaRunner, bundle, max_rows=64)
    monkeypatch.setenv("COUNTED_GPU_NO_CAPTURE", place)

    with pytest.warns(RuntimeWarning, match="cuda_graphs is off from now on"):
        cost = settled(runner, 4, 3, steps=5)  # a beam that is not the model's own

    assert cost.is_clean()
    assert cost.number("graph launch") == 0


def test_sentences_that_join_are_copied_in_one_launch_and_those_that_move_in_two(bundle):
    runner = opened(CudaRunner, bundle, max_rows=64)
    state = runner.new_state(4)
    state.reserve(64, 64, 64)
    encoded = runner.encode([(7, 8, 9, 3)] * 60)

    def copies(change: Callable[[], None]) -> int:
        measured = Measured()
        change()
        return total(measured.since(), "copy device to device").number

    assert copies(lambda: state.append(encoded, range(60))) == 1
    for _ in range(40):
        state.remove(state.num_sentences - 2)  # the last ones stay where they are
    assert copies(state.prepare) == 2  # of self-attention and of cross-attention


@pytest.mark.parametrize("seed", range(4))
def test_the_kernel_copies_what_numpy_copies(monkeypatch, seed):
    """Compiled for this machine: rows of any width, from anywhere to anywhere, of more slots than a launch takes."""
    monkeypatch.setenv("COUNTED_GPU_COPIES", "1")
    random = np.random.default_rng(seed)
    num_slots, (num_arrays, num_rows) = int(random.choice([1, 3, 300])), random.integers(1, 4, 2).tolist()
    unit = int(random.choice([1, 16]))
    widths = unit * random.integers(1, 70, num_slots)
    slots = np.stack([random.permutation(num_slots), random.permutation(num_slots), widths], axis=1)

    def rows_of(memory: Piece, gaps: list[int]) -> Rows:
        row = unit * (70 + gaps[0])
        slot = num_rows * row + unit * gaps[1]
        return Rows(memory.address + unit, row, slot, num_slots * slot + unit * gaps[2])

    gaps, found = random.integers(0, 5, (2, 3)).tolist(), list[Bytes]()
    devices: list[Device] = [CudaDevice(), HostDevice()]
    for device in devices:
        source, target = device.allocate(1 << 24), device.allocate(1 << 24)
        bytes_of(source)[:] = np.random.default_rng(seed).integers(0, 256, source.size)
        device.copy(rows_of(source, gaps[0]), rows_of(target, gaps[1]), (num_arrays, num_rows), slots)
        found.append(bytes_of(target).copy())

    assert found[1].any()
    assert np.array_equal(found[0], found[1])


def bytes_of(memory: Piece) -> Bytes:
    """Return memory of either device as an array that shares it."""
    return np.ctypeslib.as_array(ctypes.cast(memory.address, ctypes.POINTER(ctypes.c_uint8)), (memory.size,))


def test_a_kernel_that_the_driver_does_not_take_is_named(tmp_path):
    kernel = tmp_path / "other.ptx"
    kernel.write_text("// of another version")

    with pytest.raises(cudart.CudaError, match=r"the driver cannot compile .*other\.ptx: CUDA failure 218: "):
        cudart.kernel(kernel, "copy_rows")


def test_twenty_loads_of_a_model_leave_nothing_behind(bundle):
    spec, free = EngineSpec(bundle_dir=bundle.directory, device="cuda"), []
    for _ in range(20):
        settled(CudaRunner.open(spec), 64, 4, steps=2)
        gc.collect()
        free.append(free_memory())

    assert free[-1] >= free[2]
