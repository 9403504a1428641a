"""A model of another framework, from its files to an answer over gRPC."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from model.bundle import Bundle
from tests.fakes.calls import calling
from tests.fakes.server_process import ROOT, start


def import_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "export", "import", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def model() -> Path:
    if "DRAGOMAN_TEST_MODELS" not in os.environ:
        pytest.skip("DRAGOMAN_TEST_MODELS names no folder")
    return Path(os.environ["DRAGOMAN_TEST_MODELS"]) / "ctranslate2" / "v2" / "aren-transliteration-i8"


async def test_two_commands_from_a_model_to_an_answer(model, tmp_path):
    bundle = tmp_path / "bundle"
    done = import_command(model, bundle, "--source-language", "ar", "--target-language", "en", "--name", "aren")
    assert done.returncode == 0, done.stderr

    server = start(bundle, tmp_path, DRAGOMAN_ENGINE__RUNNER_FACTORY="service.engine.process:create_runner")
    try:
        async with calling(server.address) as calls:
            word = "\u0622 \u062a \u0632 \u0645 \u0648 \u0646"
            answer = await calls.translate(word, "</s>", source_language="ar", target_language="en")
    finally:
        server.process.kill()
        server.process.wait()

    assert answer.model == "aren"
    assert answer.translations[0].hypotheses[0].text == "a t z m o n"


def test_text_beside_the_model_becomes_its_self_test_and_its_int8_scales(model, tmp_path):
    text = tmp_path / "words.txt"
    text.write_text("\u0645 \u062d \u0645 \u062f\n\u0628 \u0627 \u0628\n\u0646 \u0648 \u0631\n" * 20)
    done = import_command(
        model, tmp_path / "bundle", "--calibration", text, "--source-language=ar", "--target-language=en"
    )
    assert done.returncode == 0, done.stderr

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
            "the model does not say its languages",
        ),
        (lambda path: (path / "config.json").write_text('{"model_type": "bart"}'), "has neither model.bin"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(tmp_path, make, message):
    (tmp_path / "model").mkdir()
    make(tmp_path / "model")

    done = import_command(tmp_path / "model", tmp_path / "bundle")

    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "bundle").exists()
