"""A GPU that is asked for works or is refused with the command that helps."""

import importlib.metadata

import onnxruntime as ort
import pytest

from service.engine.cuda import device, session
from service.engine.cuda.device import DeviceChoice, DeviceError, choose_device
from service.engine.cuda.session import find_problem, require_cuda


def refuse(array: object, device: str) -> None:
    raise RuntimeError("CUDA failure 35: too old")


@pytest.mark.parametrize(
    ("has_provider", "missing", "put", "expected"),
    [
        (False, "", None, "pip install 'onnxruntime-gpu[cuda,cudnn]'"),
        (True, "libcuda.so.1", None, "apt install nvidia-driver"),
        (True, "libcudnn.so.9", None, "libcudnn.so.9 cannot be loaded; `pip uninstall -y onnxruntime; pip install"),
        (True, "", refuse, "CUDA failure 35: too old"),
    ],
)
def test_what_is_missing_comes_with_the_command_that_brings_it(monkeypatch, has_provider, missing, put, expected):
    pretend(monkeypatch, has_provider=has_provider, missing=missing, put=put)

    assert expected in find_problem()
    with pytest.raises(DeviceError, match="device cuda cannot be used"):
        require_cuda()


def pretend(monkeypatch, *, has_provider=True, missing="", put=None) -> None:
    """As on a machine where this is so."""
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider"] * has_provider)
    monkeypatch.setattr(ort, "preload_dlls", lambda: None, raising=False)
    monkeypatch.setattr(session, "_loads", lambda library: library != missing)
    monkeypatch.setattr(session, "on_device", put or (lambda array, device: None))


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
