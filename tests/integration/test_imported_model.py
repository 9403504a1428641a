"""A model of another framework, from its files to an answer over gRPC."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from export.importers.command import app
from model.bundle import Bundle
from tests.component.models.test_models_on_demand import put
from tests.fakes.calls import calling
from tests.fakes.server_process import ROOT, start


def import_command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run_program(package: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", package, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def model() -> Path:
    if "DRAGOMAN_TEST_MODELS" not in os.environ:
        pytest.skip("DRAGOMAN_TEST_MODELS names no folder")
    return Path(os.environ["DRAGOMAN_TEST_MODELS"]) / "ctranslate2" / "v2" / "aren-transliteration-i8"


@pytest.mark.slow
async def test_one_command_adds_a_model_to_a_server_that_runs(model, tmp_path):
    repository = tmp_path / "models"
    put(repository, "tiny")
    factory = {"DRAGOMAN_ENGINE__RUNNER_FACTORY": "service.engine.worker:create_runner"}
    server = start(None, tmp_path, "--models", str(repository), "--admin-port", "0", **factory)
    command = ["models", "add", model, "--models", repository, "--server", server.admin_address]
    options = ["--name", "aren", "--source-language=ar", "--target-language=en"]
    try:
        done = await asyncio.to_thread(run_program, "service", *command, *options)
        async with calling(server.address) as calls:
            texts = await calls.texts("\u0622 \u062a \u0632 \u0645 \u0648 \u0646", model="aren")
    finally:
        server.process.kill()
        server.process.wait()

    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "aren 1: loaded"), done.stderr
    assert texts == ["a t z m o n"]
    assert ".add-" not in done.stdout + done.stderr  # the draft, which is gone
    assert sorted(path.name for path in repository.iterdir()) == ["aren", "tiny"]


def test_text_beside_the_model_becomes_its_self_test_and_its_int8_scales(model, tmp_path):
    text = tmp_path / "words.txt"
    text.write_text("\u0645 \u062d \u0645 \u062f\n\u0628 \u0627 \u0628\n\u0646 \u0648 \u0631\n" * 20)
    done = import_command(
        model, tmp_path / "bundle", "--calibration", text, "--source-language=ar", "--target-language=en"
    )
    assert done.exit_code == 0, done.stderr

    bundle = Bundle.load(tmp_path / "bundle")

    assert set(bundle.manifest.variants) == {"int8", "fp32"}
    assert bundle.golden_sentences("fp32")[0].source == "\u0645 \u062d \u0645 \u062f"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "has neither model.bin"),
        (lambda path: (path / "model.bin").write_bytes(b"\x06\0\0\0\xff\xff"), "the file is cut or damaged"),
        (
            lambda path: (path / "config.json").write_text('{"model_type": "marian"}'),
            "vocab.json does not exist",
        ),
        (lambda path: (path / "config.json").write_text('{"model_type": "bart"}'), "has neither model.bin"),
        (lambda path: (path / "config.json").write_text('{"model_type": "umt5"}'), "or mt5; it is 'umt5'"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(tmp_path, make, message):
    (tmp_path / "model").mkdir()
    make(tmp_path / "model")

    done = import_command(tmp_path / "model", tmp_path / "bundle")

    assert done.exit_code == 1
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "bundle").exists()
