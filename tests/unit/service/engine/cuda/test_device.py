"""A GPU that is asked for works or is refused with the command that mends it; what its errors mean; its budgets."""

import importlib.metadata
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.budgets import DeviceModel, fitting
from service.engine.cuda import device
from service.engine.cuda.device import CudaFacts, DeviceChoice, choose_device, problem_with_cuda
from service.engine.cuda.device_slots import bucket
from service.engine.faults import DEVICE_LOST_STATUS, DeviceLost, DeviceOutOfMemory, Fault, classify, explained
from service.engine.scheduler import GPU_BUDGETS, Scheduler, SchedulerConfig
from service.engine.slots import CacheShape

# As ONNX Runtime and CUDA were seen to put it, in their issues and in runs.
OUT_OF_MEMORY = (
    "running ReduceSum node. BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 9395",
    "6 : RUNTIME_EXCEPTION : bfc_arena.cc:331 Failed to allocate memory for requested buffer of size 8388608",
    "Available memory of 1024 is smaller than requested bytes of 4096",
    "CUDA failure 2: out of memory ; GPU=0 ; file=cuda_allocator.cc ; line=48 ; expr=cudaMalloc(&p, size);",
    "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0 ; expr=cublasCreate(&cublas_handle_);",
)
LOST = (
    "1 : FAIL : CUDA failure 719: unspecified launch failure ; GPU=0 ; expr=cudaMemcpyAsync(dst, src, bytes);",
    "CUDA failure 700: an illegal memory access was encountered ; GPU=1 ; expr=cudaLaunchHostFunc(stream);",
    "CUDA failure 999: unknown error ; GPU=0 ; expr=cudaSetDevice(info_.device_id);",
    "CUDA failure 46: CUDA-capable device(s) is/are busy or unavailable ; GPU=0 ; expr=cudaSetDevice(0);",
    "Failed to initialize NVML: Unknown error",
    "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
)
OTHER = (
    "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions for input: tokens",
    "CUDA failure 1: invalid argument ; GPU=1 ; expr=cudaMemcpyAsync(output, input, size, stream);",
    "",
)
MODEL = DeviceModel(
    shape=CacheShape(num_layers=6, num_heads=8, d_head=64), vocab_size=32_000, d_ff=2_048, max_target_tokens=256
)
GIB = 1 << 30


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        *((message, Fault.OUT_OF_MEMORY) for message in OUT_OF_MEMORY),
        *((message, Fault.DEVICE_LOST) for message in LOST),
        *((message, Fault.OTHER) for message in OTHER),
    ],
)
def test_errors_are_told_apart_by_their_text(message, fault):
    assert classify(message) is fault


def test_an_explained_error_keeps_its_text_and_others_stay_what_they_are():
    with pytest.raises(DeviceOutOfMemory, match="9395"), explained():
        raise RuntimeError(OUT_OF_MEMORY[0])
    with pytest.raises(DeviceLost) as lost, explained():
        raise RuntimeError(LOST[0])
    with pytest.raises(KeyError), explained():
        raise KeyError("a bug")

    assert lost.value.code == DEVICE_LOST_STATUS != 0
    assert "719" in str(lost.value)


def test_a_lost_device_ends_a_process_whatever_catches_exceptions():
    code = (
        "from service.engine.faults import DeviceLost\n"
        "try:\n    raise DeviceLost('gone')\nexcept Exception:\n    print('caught')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (DEVICE_LOST_STATUS, "")


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (CudaFacts(has_provider=False, has_driver=True), "pip install 'onnxruntime-gpu[cuda,cudnn]'"),
        (CudaFacts(has_provider=True, has_driver=False), "apt install nvidia-driver"),
        (
            CudaFacts(has_provider=True, has_driver=True, missing_libraries=["libcudnn.so.9"]),
            "libcudnn.so.9 cannot be loaded; `pip uninstall -y onnxruntime; pip install 'onnxruntime-gpu[cuda,cudnn]'`",
        ),
        (CudaFacts(has_provider=True, has_driver=True, refusal="CUDA failure 35: too old"), "CUDA failure 35: too old"),
    ],
)
def test_what_is_missing_comes_with_the_command_that_brings_it(facts, expected):
    assert expected in problem_with_cuda(facts)


def test_nothing_is_wrong_when_all_is_there():
    assert problem_with_cuda(CudaFacts(has_provider=True, has_driver=True)) == ""


def test_the_device_that_is_asked_for_is_not_looked_for(monkeypatch):
    monkeypatch.setattr(device, "_probe", lambda: pytest.fail("looked"))

    assert choose_device("cpu", has_graphs=True) == DeviceChoice("cpu")
    assert choose_device("cuda", has_graphs=False) == DeviceChoice("cuda")


def test_auto_takes_the_gpu_where_it_works_and_says_why_not_elsewhere(monkeypatch):
    monkeypatch.setattr(device, "_probe", lambda: "")
    assert choose_device("auto", has_graphs=True) == DeviceChoice("cuda")

    without_graphs = choose_device("auto", has_graphs=False)
    monkeypatch.setattr(device, "_probe", lambda: "no driver")
    without_driver = choose_device("auto", has_graphs=True)

    assert (without_graphs.device, without_driver.device) == ("cpu", "cpu")
    assert "--precision fp16" in without_graphs.reason
    assert without_driver.reason == "no driver"


def _has_cpu_build() -> bool:
    names = {distribution.metadata["Name"] for distribution in importlib.metadata.distributions()}
    return "onnxruntime-gpu" not in names


@pytest.mark.skipif(not _has_cpu_build(), reason="ONNX Runtime's build for GPUs is installed")
def test_the_build_for_cpus_is_found_out_by_a_process_of_its_own():
    choice = choose_device("auto", has_graphs=True)

    assert choice.device == "cpu"
    assert choice.reason.startswith("this build of ONNX Runtime has no CUDA; `pip ")


def test_a_large_gpu_takes_the_budgets_as_they_are():
    assert fitting(GPU_BUDGETS, 130 * GIB, MODEL) == GPU_BUDGETS


@given(st.integers(0, 200 * GIB), st.integers(1, 64 * GIB))
def test_budgets_never_grow_beyond_the_wish_nor_shrink_with_more_memory(free, more):
    small, large = fitting(GPU_BUDGETS, free, MODEL), fitting(GPU_BUDGETS, free + more, MODEL)

    for name in GPU_BUDGETS.__slots__:
        assert 1 <= getattr(small, name) <= getattr(large, name) <= getattr(GPU_BUDGETS, name)


@given(st.integers(GIB, 200 * GIB))
def test_what_the_budgets_allow_fits_into_the_free_memory(free):
    config = fitting(SchedulerConfig(max_rows=1 << 20, max_source_tokens=1 << 30), free, MODEL)

    taken = config.max_rows * MODEL.row_bytes + config.max_source_tokens * MODEL.source_token_bytes
    assert taken + config.encoder_run_tokens * MODEL.encoded_token_bytes <= free


def test_a_row_is_its_columns_in_all_layers_and_its_logits():
    assert MODEL.column_bytes == 2 * 6 * 8 * 64 * 2  # keys and values, layers, heads, width, bytes
    assert MODEL.row_bytes > 256 * MODEL.column_bytes + 32_000 * 14


def test_halving_stops_at_one():
    scheduler = Scheduler(SchedulerConfig(max_rows=3))

    scheduler.halve(now=0.0)
    assert scheduler.config.max_rows == 1
    scheduler.halve(now=0.0)
    assert scheduler.config.max_rows == 1


@given(st.integers(1, 5_000))
def test_a_bucket_holds_its_slots_and_wastes_an_eighth_at_most(num_slots):
    size = bucket(num_slots)

    assert num_slots <= size <= max(num_slots + 3, num_slots * 9 / 8)
    assert bucket(size) == size


def test_there_are_few_buckets():
    assert len({bucket(number) for number in range(1, 1_025)}) <= 56
