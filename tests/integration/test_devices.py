"""A GPU behind a real server that is not there, has too little memory or is lost."""

import importlib.metadata
import json

import grpc
import pytest

from export.onnx_export import ExportOptions, Samples, export_bundle
from export.source import ExportSource
from model.bundle import Bundle
from model.tokenizer import Tokenizer
from service.engine.device_errors import DEVICE_LOST_STATUS
from tests.fakes.calls import calling, code_of, eventually
from tests.fakes.server_process import run_to_end, start
from tests.fakes.tiny_model import write_tiny_checkpoint

REAL_ENGINE = {"DRAGOMAN_ENGINE__RUNNER_FACTORY": "service.engine.worker:create_runner"}


def _has_gpu_build() -> bool:
    return any(entry.metadata["Name"] == "onnxruntime-gpu" for entry in importlib.metadata.distributions())


without_gpu_build = pytest.mark.skipif(_has_gpu_build(), reason="ONNX Runtime's build for GPUs is installed")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Return a bundle of random weights with graphs for CPUs and for a GPU."""
    directory = tmp_path_factory.mktemp("both")
    options = ExportOptions(precisions=("fp32", "fp16"), keep_weights=False)
    source = ExportSource.load(write_tiny_checkpoint(directory / "checkpoint"))
    return export_bundle(source, directory / "bundle", options, Samples())


@without_gpu_build
def test_cuda_without_cuda_is_exit_status_1_and_one_line_with_the_command(both):
    status, errors = run_to_end(both.directory, DRAGOMAN_ENGINE__DEVICE="cuda", **REAL_ENGINE)

    (line,) = [line for line in errors.splitlines() if line.startswith("dragoman:")]
    assert status == 1
    assert "device cuda cannot be used: this build of ONNX Runtime has no CUDA" in line
    assert "pip install 'onnxruntime-gpu[cuda,cudnn]'" in line


@without_gpu_build
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


GOOD, BAD = "one two three", "one two three four five six seven eight"


def num_tokens(bundle) -> str:
    return str(len(Tokenizer.load(bundle / "shared.spm").encode(BAD)))


async def test_too_little_device_memory_is_resource_exhausted_and_the_next_text_is_translated(echo_bundle, tmp_path):
    variables = {"ECHO_DEVICE_FULL": num_tokens(echo_bundle)}
    server = start(echo_bundle, tmp_path, **variables)
    try:
        async with calling(server.address) as calls:
            code = await code_of(calls.translate(BAD))
            texts = await calls.texts(GOOD)
        restarts = server.metric("dragoman_engine_restarts_total")
    finally:
        server.terminate()
        server.wait()

    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert texts == [GOOD]
    assert restarts == 0


async def test_a_lost_device_ends_the_engine_with_its_status_and_another_takes_its_place(echo_bundle, tmp_path):
    variables = {"ECHO_DEVICE_LOST": num_tokens(echo_bundle), "ECHO_LOAD_S": "0"}
    server = start(echo_bundle, tmp_path, **variables)
    try:
        async with calling(server.address) as calls:
            code = await code_of(calls.translate(BAD))
            await eventually(lambda: server.metric("dragoman_engine_restarts_total") == 1)
            texts = await calls.texts(GOOD)
    finally:
        server.terminate()
        server.wait()

    assert code is grpc.StatusCode.UNAVAILABLE
    assert texts == [GOOD]
    assert f"exit status {DEVICE_LOST_STATUS}" in server.log_text()
    assert "CUDA failure 719" in server.log_text()
