"""What `--check-config` finds before anything starts."""

import sys
from pathlib import Path

import pytest

from service.config import EngineConfig, LifecycleConfig, ModelsConfig, SecurityConfig, ServerConfig, TelemetryConfig
from service.server.preflight import check
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.model_repository import ModelRepository, tamper


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_echo_bundle(tmp_path_factory.mktemp("bundle") / "echo")


@pytest.fixture(scope="module")
def engine(bundle: Path) -> EngineConfig:
    return EngineConfig(bundle=bundle)


def test_included_model_with_default_settings_is_fine():
    assert check(ServerConfig()) == []


def test_missing_bundle_is_found(tmp_path):
    (problem,) = check(ServerConfig(engine=EngineConfig(bundle=tmp_path / "none")))

    assert "/none is no directory" in problem


def test_missing_precision_is_found(bundle):
    (problem,) = check(ServerConfig(engine=EngineConfig(bundle=bundle, precision="int8")))

    assert "has no 'int8' graphs" in problem


def test_bad_model_of_a_repository_is_found_and_the_good_one_is_not(tmp_path):
    repository = ModelRepository(tmp_path)
    repository.put("good", "1")
    repository.put_bad("bad", "1", tamper)

    (problem,) = check(ServerConfig(models=ModelsConfig(directory=tmp_path)))

    assert "bad/1/encoder.onnx has another SHA-256" in problem


def test_bad_version_with_a_good_one_below_is_no_problem(tmp_path):
    repository = ModelRepository(tmp_path)
    repository.put("echo", "1")
    repository.put_bad("echo", "2", tamper)

    assert check(ServerConfig(models=ModelsConfig(directory=tmp_path))) == []


def test_model_without_a_good_version_is_found_by_its_newest_one(tmp_path):
    repository = ModelRepository(tmp_path)
    repository.put_bad("echo", "1", tamper)
    repository.put_bad("echo", "2", tamper)

    (problem,) = check(ServerConfig(models=ModelsConfig(directory=tmp_path)))

    assert "echo/2/" in problem


def test_traces_without_their_libraries_are_found(engine, monkeypatch):
    monkeypatch.setitem(sys.modules, "service.telemetry.traces", None)
    telemetry = TelemetryConfig(otlp_endpoint="http://localhost:4317")

    (problem,) = check(ServerConfig(engine=engine, telemetry=telemetry))

    assert "is not installed: `pip install opentelemetry-sdk " in problem


def test_missing_repository_is_found(tmp_path):
    (problem,) = check(ServerConfig(models=ModelsConfig(directory=tmp_path / "none")))

    assert problem == f"model repository {tmp_path}/none cannot be read: No such file or directory"


def test_missing_public_key_is_found(engine, tmp_path):
    (problem,) = check(ServerConfig(engine=engine, models=ModelsConfig(public_key=tmp_path / "key")))

    assert problem == f"models.public_key {tmp_path}/key cannot be read: No such file or directory"


@pytest.mark.parametrize("setting", ["tls_certificate", "tls_key", "tls_client_ca", "api_keys"])
def test_missing_file_of_security_is_found_and_named(engine, tmp_path, setting):
    security = dict.fromkeys(["tls_certificate", "tls_key"], tmp_path / "none") if "tls" in setting else {}

    (problem,) = check(ServerConfig(engine=engine, security=SecurityConfig(**{**security, setting: tmp_path / "none"})))

    assert str(tmp_path / "none") in problem
    assert len(problem.splitlines()) == 1


def test_key_without_certificate_is_found(engine, tmp_path):
    (problem,) = check(ServerConfig(engine=engine, security=SecurityConfig(tls_key=tmp_path / "key")))

    assert "tls_certificate" in problem


def test_ports_file_needs_a_directory(engine, tmp_path):
    lifecycle = LifecycleConfig(ports_file=tmp_path / "none" / "ports.json")

    (problem,) = check(ServerConfig(engine=engine, lifecycle=lifecycle))

    assert "lifecycle.ports_file" in problem
