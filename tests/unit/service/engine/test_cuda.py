"""A GPU that is asked for works or is refused with the command that helps; budgets and copies fit its memory."""

import re
import shutil
import subprocess
from functools import partial

import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.config import ModelConfig
from service.cli import doctor
from service.engine import choice
from service.engine.choice import DeviceChoice, DeviceError, choose_device
from service.engine.cuda import cudart, session
from service.engine.cuda.memory import _COPY_ROWS, _SLOTS_AT_ONCE
from service.engine.cuda.runner import fitting_budgets
from service.engine.cuda.session import find_problem, require_cuda
from service.engine.wire import GPU_BUDGETS, SchedulerConfig


def refuse(array: object, device: str) -> None:
    raise RuntimeError("CUDA failure 35: too old")


CASES = [
    ({"has_provider": False}, "pip install 'onnxruntime-gpu[cuda,cudnn]'"),
    ({"missing": "libcuda.so.1"}, "apt install nvidia-driver"),
    ({"missing": "libcudnn.so.9"}, "libcudnn.so.9 cannot be loaded; `pip uninstall -y onnxruntime; pip install"),
    ({"driver": 12_040}, "the NVIDIA driver is made for CUDA 12.4, 13.0 or newer is needed: driver 580 or newer"),
    (
        {"architecture": 70},
        "no kernels for Some card (sm_70), only for sm_75, sm_80, sm_86, sm_89, sm_90, sm_120",
    ),
    ({"architecture": 100}, "no kernels for Some card (sm_100)"),
    ({"refuses": True}, "CUDA failure 35: too old"),
    ({"maps_memory": False}, "Some card cannot give reserved addresses memory"),
]


@pytest.mark.parametrize(("machine", "expected"), CASES, ids=[str(machine) for machine, _ in CASES])
def test_what_is_missing_comes_with_what_helps(monkeypatch, machine, expected):
    pretend(monkeypatch, **machine)

    assert expected in find_problem()
    with pytest.raises(DeviceError, match="device cuda cannot be used"):
        require_cuda()


def pretend(
    monkeypatch,
    *,
    has_provider=True,
    missing="",
    refuses=False,
    driver=13_000,
    architecture=90,
    maps_memory=True,
) -> None:
    """As on a machine where this is so."""
    monkeypatch.setattr(cudart, "maps_memory", lambda: maps_memory)
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider"] * has_provider)
    monkeypatch.setattr(ort, "preload_dlls", lambda: None, raising=False)
    monkeypatch.setattr(session, "_loads", lambda library: library != missing)
    monkeypatch.setattr(cudart, "driver_version", lambda: driver)
    monkeypatch.setattr(cudart, "compute_capability", lambda: architecture)
    monkeypatch.setattr(cudart, "card_name", lambda: "Some card")
    monkeypatch.setattr(session, "on_device", refuse if refuses else (lambda array, device: None))


@pytest.mark.parametrize(
    ("setting", "level", "begins"), [("cuda", "fail", "CUDA cannot"), ("auto", "warn", "the server")]
)
def test_doctor_says_what_keeps_cuda_from_being_used(monkeypatch, setting, level, begins):
    monkeypatch.setattr(doctor, "probe", lambda: "no driver")

    finding = doctor.check_device(setting)

    assert (finding.level, finding.subject) == (level, "device")
    assert finding.detail.startswith(begins)
    assert finding.detail.endswith("no driver")


def test_auto_takes_the_gpu_where_it_works_and_says_why_not_elsewhere(monkeypatch):
    monkeypatch.setattr(choice, "probe", lambda: "")
    assert choose_device("auto", has_graphs=True) == DeviceChoice("cuda")

    without_graphs = choose_device("auto", has_graphs=False)
    monkeypatch.setattr(choice, "probe", lambda: "no driver")
    without_driver = choose_device("auto", has_graphs=True)

    assert (without_graphs.device, without_driver.device) == ("cpu", "cpu")
    assert "--precision fp16" in without_graphs.reason
    assert without_driver.reason == "no driver"


MODEL = ModelConfig(vocab_size=32_000, d_model=512, d_ff=2_048, num_heads=8, num_decoder_layers=6)
COLUMN_BYTES = 2 * 6 * 8 * 64 * 2  # keys and values, layers, heads, width, bytes
ROW_BYTES = 256 * COLUMN_BYTES + 32_000 * 14  # at least: its columns in all layers and its logits
GIB = 1 << 30

fitting = partial(fitting_budgets, config=MODEL, max_target_tokens=256)


@given(st.integers(0, 200 * GIB), st.integers(1, 64 * GIB))
def test_budgets_never_grow_beyond_the_wish_nor_shrink_with_more_memory(free, more):
    small, large = fitting(GPU_BUDGETS, free), fitting(GPU_BUDGETS, free + more)

    for name in GPU_BUDGETS.__slots__:
        assert 1 <= getattr(small, name) <= getattr(large, name) <= getattr(GPU_BUDGETS, name)


@given(st.integers(GIB, 200 * GIB))
def test_what_the_budgets_allow_fits_into_the_free_memory(free):
    config = fitting(SchedulerConfig(max_rows=1 << 20, max_source_tokens=1 << 30), free)

    taken = config.max_rows * 2 * ROW_BYTES + config.max_source_tokens * 2 * COLUMN_BYTES
    assert 0.3 * free < taken + config.encoder_run_tokens * COLUMN_BYTES <= free


PTX = _COPY_ROWS.read_text(encoding="ascii")
MADE_BY = re.search(r"Cuda compilation tools, .*", PTX)
LARGEST_ARGUMENT = 4_096  # bytes


def nvcc(*arguments: str) -> str:
    return subprocess.run(["nvcc", *arguments], capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc here")
def test_the_kernel_is_what_its_source_gives(tmp_path):
    assert MADE_BY
    if MADE_BY[0] not in nvcc("--version"):
        pytest.skip(f"another nvcc than that of the kernel: {MADE_BY[0]}")

    nvcc("-ptx", "-arch=compute_75", "-o", str(tmp_path / "copy.ptx"), str(_COPY_ROWS.with_suffix(".cu")))

    assert (tmp_path / "copy.ptx").read_text(encoding="ascii") == PTX


def test_the_kernels_argument_is_as_long_as_the_engine_fills_it():
    size = 2 * 4 * 8 + _SLOTS_AT_ONCE * 3 * 4  # of two `Rows`, and of all slots

    assert f"copy_rows_param_0[{size}]" in PTX
    assert size <= LARGEST_ARGUMENT
    assert f"Slot slots[{_SLOTS_AT_ONCE}];" in _COPY_ROWS.with_suffix(".cu").read_text(encoding="utf-8")
