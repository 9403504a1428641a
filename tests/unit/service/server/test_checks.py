"""What `--check-config` and a start find before anything is started."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from service.config import EngineConfig, LifecycleConfig, ModelsConfig, SecurityConfig, ServerConfig, TelemetryConfig
from service.server.checks import check_bundles, check_files
from tests.fakes.echo_bundle import ModelRepository, tamper, write_echo_bundle

NONE = Path("/none/file")
PAIR: dict[str, Any] = {"tls_certificate": NONE, "tls_key": NONE}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    return EngineConfig(bundle=write_echo_bundle(tmp_path_factory.mktemp("bundle") / "echo"))


def problems(config: ServerConfig) -> list[str]:
    return [*check_files(config), *check_bundles(config)]


def test_included_model_with_default_settings_is_fine():
    assert problems(ServerConfig()) == []


@pytest.mark.parametrize(
    ("settings", "fact"),
    [
        ({"engine": EngineConfig(bundle=NONE)}, "/none/file is no directory"),
        ({"models": ModelsConfig(directory=NONE)}, "model repository /none/file cannot be read"),
        ({"models": ModelsConfig(glossaries=NONE)}, "models.glossaries is /none/file"),
        ({"models": ModelsConfig(uploaded_glossaries=NONE)}, "models.uploaded_glossaries is /none/file"),
        ({"security": SecurityConfig(**PAIR)}, "/none/file"),
        ({"security": SecurityConfig(tls_key=NONE)}, "tls_certificate"),
        ({"security": SecurityConfig(api_keys=NONE)}, "/none/file"),
        ({"lifecycle": LifecycleConfig(ports_file=NONE)}, "lifecycle.ports_file /none/file"),
    ],
)
def test_each_problem_is_one_line_that_names_what_is_wrong(engine, settings: dict[str, Any], fact):
    (problem,) = problems(ServerConfig(**{"engine": engine, **settings}))

    assert fact in problem
    assert len(problem.splitlines()) == 1


@pytest.mark.parametrize("setting", ["api_keys", "tls_key"])
def test_pipe_gives_its_content_once_and_is_refused(engine, tmp_path, setting):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    files = {"tls_certificate": pipe} if setting == "tls_key" else {}

    (problem,) = problems(ServerConfig(engine=engine, security=SecurityConfig(**{setting: pipe}, **files)))

    assert f"{pipe} is a pipe: name a file" in problem


def test_traces_without_their_libraries_are_found(engine, monkeypatch):
    monkeypatch.setitem(sys.modules, "service.telemetry.traces", None)
    telemetry = TelemetryConfig(otlp_endpoint="http://localhost:4317")

    (problem,) = problems(ServerConfig(engine=engine, telemetry=telemetry))

    assert "is not installed: `pip install opentelemetry-sdk " in problem


def test_model_without_a_good_version_is_found_by_its_newest_one_and_no_other_is(tmp_path):
    repository = ModelRepository(tmp_path)
    repository.put("good", "1")
    repository.put_bad("good", "2", tamper)
    repository.put_bad("bad", "1", tamper)
    repository.put_bad("bad", "2", tamper)

    (problem,) = problems(ServerConfig(models=ModelsConfig(directory=tmp_path)))

    assert "bad/2/encoder.onnx has another SHA-256" in problem
