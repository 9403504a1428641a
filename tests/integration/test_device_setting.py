"""`engine.device` of the real server where there is no GPU: refused with the command, or the CPU and one warning."""

import importlib.metadata
import json

import pytest

from export.onnx_export import ExportOptions, Samples, export_bundle
from export.source import ExportSource
from model.bundle import Bundle
from tests.fakes.calls import calling
from tests.fakes.server_process import run_to_end, start
from tests.fakes.tiny_model import write_tiny_checkpoint

REAL_ENGINE = {"DRAGOMAN_ENGINE__RUNNER_FACTORY": "service.engine.worker:create_runner"}


def _has_gpu_build() -> bool:
    return any(entry.metadata["Name"] == "onnxruntime-gpu" for entry in importlib.metadata.distributions())


pytestmark = pytest.mark.skipif(_has_gpu_build(), reason="ONNX Runtime's build for GPUs is installed")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Return a bundle of random weights with graphs for CPUs and for a GPU."""
    directory = tmp_path_factory.mktemp("both")
    options = ExportOptions(precisions=("fp32", "fp16"), keep_weights=False)
    source = ExportSource.load(write_tiny_checkpoint(directory / "checkpoint"))
    return export_bundle(source, directory / "bundle", options, Samples())


def test_cuda_without_cuda_is_exit_status_1_and_one_line_with_the_command(both):
    status, errors = run_to_end(both.directory, DRAGOMAN_ENGINE__DEVICE="cuda", **REAL_ENGINE)

    (line,) = [line for line in errors.splitlines() if line.startswith("dragoman:")]
    assert status == 1
    assert "device cuda cannot be used: this build of ONNX Runtime has no CUDA" in line
    assert "pip install 'onnxruntime-gpu[cuda,cudnn]'" in line


async def test_auto_without_cuda_serves_on_the_cpu_and_warns_once(both, tmp_path):
    server = start(both.directory, tmp_path, DRAGOMAN_ENGINE__DEVICE="auto", **REAL_ENGINE)
    try:
        async with calling(server.address) as calls:
            texts = await calls.texts("The cat sleeps.")
        provider = server.metric("dragoman_model_info", provider="cpu")
    finally:
        server.terminate()
        server.wait()

    entries = [json.loads(line) for line in server.log_text().splitlines() if line.startswith("{")]
    (warning,) = [entry for entry in entries if entry["event"] == "device_not_used"]
    assert texts != [""]
    assert provider == 1
    assert (warning["level"], warning["asked"], warning["used"]) == ("warning", "auto", "cpu")
    assert "pip install" in warning["reason"]
