"""What `--check-config` finds before anything starts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from service.config import EngineConfig, LifecycleConfig, ModelsConfig, SecurityConfig, ServerConfig
from service.front.preflight import check
from tests.fakes.echo_bundle import write_echo_bundle
from tests.fakes.model_repository import ModelRepository, tamper


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_echo_bundle(tmp_path_factory.mktemp("bundle") / "echo")


@pytest.fixture(scope="module")
def engine(bundle: Path) -> EngineConfig:
    return EngineConfig(bundle=bundle)


def write_pair(directory: Path, password: bytes | None = None) -> tuple[Path, Path]:
    """A certificate that signed itself, and its key."""
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, None)
    )
    files = directory / "certificate.pem", directory / "key.pem"
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return files


def test_included_model_with_default_settings_is_fine():
    assert check(ServerConfig()) == []


def test_missing_bundle_is_found(tmp_path):
    (problem,) = check(ServerConfig(engine=EngineConfig(bundle=tmp_path / "none")))

    assert "/none is not a bundle" in problem


def test_missing_precision_is_found(bundle):
    (problem,) = check(ServerConfig(engine=EngineConfig(bundle=bundle, precision="int8")))

    assert "has no 'int8' graphs" in problem


def test_bad_model_of_a_repository_is_found_and_the_good_one_is_not(tmp_path):
    repository = ModelRepository(tmp_path)
    repository.put("good", "1")
    repository.put_bad("bad", "1", tamper)

    (problem,) = check(ServerConfig(models=ModelsConfig(directory=tmp_path)))

    assert "bad/1/encoder.onnx has another SHA-256" in problem


def test_missing_repository_is_found(tmp_path):
    (problem,) = check(ServerConfig(models=ModelsConfig(directory=tmp_path / "none")))

    assert problem == f"model repository {tmp_path}/none cannot be read: No such file or directory"


def test_missing_public_key_is_found(engine, tmp_path):
    (problem,) = check(ServerConfig(engine=engine, models=ModelsConfig(public_key=tmp_path / "key")))

    assert problem == f"models.public_key {tmp_path}/key cannot be read: No such file or directory"


def test_certificate_with_its_key_is_fine(engine, tmp_path):
    certificate, key = write_pair(tmp_path)
    security = SecurityConfig(tls_certificate=certificate, tls_key=key, tls_client_ca=certificate)

    assert check(ServerConfig(engine=engine, security=security)) == []


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"tls_certificate": "certificate.pem"}, "security.tls_certificate is set without security.tls_key"),
        ({"tls_key": "key.pem"}, "security.tls_key is set without security.tls_certificate"),
        ({"tls_client_ca": "certificate.pem"}, "security.tls_client_ca is set without"),
        ({"tls_certificate": "none.pem", "tls_key": "key.pem"}, "none.pem cannot be read: No such file"),
        ({"tls_certificate": "key.pem", "tls_key": "key.pem"}, "key.pem cannot be used together"),
        ({"tls_certificate": "certificate.pem", "tls_key": "encrypted/key.pem"}, "cannot be used together"),
        (
            {"tls_certificate": "certificate.pem", "tls_key": "key.pem", "tls_client_ca": "key.pem"},
            "key.pem has no certificates in PEM",
        ),
        ({"api_keys": "none.toml"}, "security.api_keys "),
    ],
)
def test_file_that_cannot_be_used_is_found(engine, tmp_path, settings, problem):
    write_pair(tmp_path)
    (tmp_path / "encrypted").mkdir()
    write_pair(tmp_path / "encrypted", password=b"secret")

    problems = check(
        ServerConfig(
            engine=engine, security=SecurityConfig(**{name: tmp_path / file for name, file in settings.items()})
        )
    )

    assert len(problems) == 1
    assert problem in problems[0]
    assert len(problems[0].splitlines()) == 1


def test_ports_file_needs_a_directory(engine, tmp_path):
    lifecycle = LifecycleConfig(ports_file=tmp_path / "none" / "ports.json")

    (problem,) = check(ServerConfig(engine=engine, lifecycle=lifecycle))

    assert "lifecycle.ports_file" in problem
