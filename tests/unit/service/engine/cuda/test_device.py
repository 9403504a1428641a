"""A GPU that is asked for works or is refused with the command that helps."""

import onnxruntime as ort
import pytest

from service.cli import doctor
from service.engine import choice
from service.engine.choice import DeviceChoice, DeviceError, choose_device
from service.engine.cuda import cudart, session
from service.engine.cuda.session import find_problem, require_cuda


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
