"""Each check finds what it is there for."""

import json
import socket
from dataclasses import replace
from importlib import metadata
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest

from service.cli import doctor
from service.cli.doctor import (
    Finding,
    Level,
    check_model,
    check_native_engine,
    check_runtime,
    examine,
)
from service.config import EngineConfig, ListenConfig, ModelsConfig, SecurityConfig, ServerConfig
from service.engine.wire import FinishReason
from service.local import LocalTranslator
from service.records import TranslatedText, TranslateOptions, Translation
from tests.fakes.command_line import run
from tests.fakes.echo_bundle import ModelRepository, tamper


def test_ports_and_files_are_looked_at_as_a_start_does(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listen = replace(LISTEN, metrics_port=port)
        settings = ServerConfig(listen=listen, security=SecurityConfig(api_keys=tmp_path / "none"))
        found = {finding.subject: finding for finding in islice(examine(settings), 7)}

    assert found["ports"].level is found["files"].level is Level.FAIL
    assert f"127.0.0.1:{port} (listen.metrics_port): Address already in use" in found["ports"].detail
    assert found["files"].detail.startswith("security.api_keys: ")
    good = {finding.subject: finding for finding in islice(examine(ServerConfig(listen=LISTEN)), 7)}
    assert good["ports"].level is good["files"].level is Level.PASS


@pytest.mark.parametrize(
    ("installed", "level", "words"),
    [
        ([], Level.FAIL, "`pip install onnxruntime` (extra `cpu`)"),
        (["onnxruntime"], Level.PASS, "on the CPU"),
        (["onnxruntime-gpu"], Level.PASS, "with CUDA for models that have fp16 graphs"),
        (["onnxruntime", "onnxruntime-gpu"], Level.FAIL, "overwrite each other"),
    ],
)
def test_the_runtime_must_be_there_once(monkeypatch, installed, level, words):
    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(metadata, "version", version)
    finding = check_runtime()

    assert finding.level is level
    assert words in finding.detail


LISTEN = ListenConfig(grpc_port=0, http_port=0)


def test_a_check_that_breaks_is_a_failure_and_the_others_go_on(tmp_path):
    settings = ServerConfig(engine=EngineConfig(bundle=tmp_path), listen=LISTEN)

    findings = {finding.subject: finding for finding in examine(settings)}

    assert findings["bundle"].level is Level.FAIL
    assert str(tmp_path) in findings["bundle"].detail
    assert "model" not in findings  # there is nothing to translate with
    assert findings["threads"].level is Level.PASS


def test_a_repository_is_looked_at_down_to_the_version_that_would_serve(monkeypatch, tmp_path):
    opened: list[str] = []

    def check(directory: Path, precision: str | None) -> Finding:
        opened.append(str(directory.relative_to(tmp_path)))
        return Finding(Level.PASS, "model", "")

    monkeypatch.setattr(doctor, "check_model", check)
    repository = ModelRepository(tmp_path)
    repository.put("a", "1")
    repository.put("a", "2")
    repository.put_bad("a", "3", tamper)
    repository.put("b", "1")

    settings = ServerConfig(models=ModelsConfig(directory=tmp_path), listen=LISTEN)
    levels = [finding.level for finding in examine(settings) if finding.subject == "bundle"]

    assert levels == [Level.FAIL, Level.PASS, Level.PASS]
    assert opened == ["a/2", "b/1"]


@pytest.mark.parametrize(
    ("levels", "exit_code"),
    [([Level.PASS, Level.WARN], 0), ([Level.FAIL, Level.PASS], 1)],
)
def test_the_command_fails_only_for_failures_and_prints_one_line_a_finding(monkeypatch, levels, exit_code):
    findings = [Finding(level, f"check {index}", "detail") for index, level in enumerate(levels)]
    monkeypatch.setattr(doctor, "examine", lambda _: iter(findings))

    result = run("doctor")

    assert result.exit_code == exit_code
    assert result.stdout.splitlines() == [f"{item.level.upper()}  {item.subject}: detail" for item in findings]
    assert [row["level"] for row in json.loads(run("doctor", "--json").stdout)] == [str(level) for level in levels]


@pytest.mark.parametrize(
    ("reason", "level"), [(FinishReason.END_OF_SENTENCE, Level.PASS), (FinishReason.LENGTH, Level.WARN)]
)
def test_a_model_whose_sentence_never_ends_is_a_warning(monkeypatch, reason, level):
    class OneAnswer:
        info = SimpleNamespace(
            precision="int8",
            source_language="de",
            default_options=TranslateOptions(max_target_tokens=20),
            runtime="native",
            runtime_detail="avx2",
        )

        def translate_all(self, texts: list[str], options: TranslateOptions) -> list[Translation]:
            assert options.max_target_tokens == 20
            assert texts == ["Das Wetter ist heute schön."]  # in the model's language
            text = TranslatedText(text="Today " * 50, score=-1.0, finish_reason=reason, target_tokens=20)
            return [Translation(hypotheses=(text,)) for _ in texts]

    monkeypatch.setattr(LocalTranslator, "open", lambda *_, **__: OneAnswer())
    finding = check_model(Path("anywhere"), None)

    assert finding.level is level
    assert "Today" in finding.detail
    assert len(finding.detail) < 200


@pytest.mark.parametrize(
    ("setting", "level"), [("onnxruntime", Level.PASS), ("auto", Level.WARN), ("native", Level.FAIL)]
)
def test_a_native_engine_that_is_not_there_matters_as_much_as_it_was_asked_for(monkeypatch, setting, level):
    monkeypatch.setattr(doctor, "library_problem", lambda: "it is not built")

    finding = check_native_engine(setting)

    assert finding.level is level
    assert "it is not built" in finding.detail
