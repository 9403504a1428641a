"""A bundle's signature: who may have made it."""

import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from typer.testing import CliRunner

from export.sign import sign_bundle
from model.bundle import MANIFEST_NAME, SIGNATURE_NAME, Bundle, BundleError
from service.config import ModelsConfig, ServerConfig
from service.registry.repository import Candidate
from service.registry.signature import KeyFileError, Signatures
from service.server.model_hosting import BundleChecker
from tests.fakes.echo_bundle import write_echo_bundle


def write_keys(directory: Path, name: str, key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> tuple[Path, Path]:
    private, public = directory / f"{name}.pem", directory / f"{name}.pub.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return write_keys(tmp_path, "ours", Ed25519PrivateKey.generate())


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_echo_bundle(tmp_path / "bundle")


def test_signed_bundle_is_accepted(bundle, keys):
    private, public = keys

    sign_bundle(private, bundle)

    assert Signatures(public).check(bundle) == Bundle.load(bundle).manifest_sha256


def test_signature_can_be_made_with_openssl(bundle, keys):
    """Whoever signs bundles needs no program of ours."""
    private, public = keys
    command = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", private, "-in", bundle / MANIFEST_NAME]
    try:
        subprocess.run([*command, "-out", bundle / SIGNATURE_NAME], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl here")

    Signatures(public).check(bundle)


def test_bundle_without_a_signature_is_refused(bundle, keys):
    with pytest.raises(BundleError, match=r"manifest.sig is missing and models.public_key asks for it"):
        Signatures(keys[1]).check(bundle)


def test_signature_by_another_key_is_refused(bundle, keys, tmp_path):
    sign_bundle(write_keys(tmp_path, "theirs", Ed25519PrivateKey.generate())[0], bundle)

    with pytest.raises(BundleError, match=r"manifest.sig is no signature of the manifest by .*ours.pub.pem"):
        Signatures(keys[1]).check(bundle)


@pytest.mark.parametrize("content", [b"", b"short", b"0" * 64, b"0" * 65])
def test_signature_that_is_none_is_refused(bundle, keys, content):
    (bundle / SIGNATURE_NAME).write_bytes(content)

    with pytest.raises(BundleError, match="no signature of the manifest"):
        Signatures(keys[1]).check(bundle)


def test_changed_manifest_is_refused(bundle, keys):
    sign_bundle(keys[0], bundle)
    (bundle / MANIFEST_NAME).write_text((bundle / MANIFEST_NAME).read_text() + " ")

    with pytest.raises(BundleError, match="no signature of the manifest"):
        Signatures(keys[1]).check(bundle)


def test_new_bundle_does_not_keep_the_signature_of_the_old_one(bundle, keys):
    sign_bundle(keys[0], bundle)

    write_echo_bundle(bundle, version="2")

    assert not (bundle / SIGNATURE_NAME).exists()


def test_damaged_bundle_is_not_signed(bundle, keys):
    (bundle / "encoder.onnx").write_bytes(b"")

    with pytest.raises(BundleError, match=r"encoder.onnx has 0 bytes"):
        sign_bundle(keys[0], bundle)


def test_key_of_another_kind_is_refused(bundle, tmp_path):
    private, public = write_keys(tmp_path, "curve", ec.generate_private_key(ec.SECP256R1()))

    with pytest.raises(KeyFileError, match="an Ed25519 key is needed"):
        Signatures(public)
    with pytest.raises(ValueError, match="an Ed25519 key is needed"):
        sign_bundle(private, bundle)


@pytest.mark.parametrize(
    ("content", "message"), [(None, "cannot be read: No such file"), (b"x", "no public key in PEM")]
)
def test_file_without_a_key_is_refused(tmp_path, content, message):
    path = tmp_path / "key.pem"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(KeyFileError, match=message):
        Signatures(path)


def test_command_signs(bundle, keys):
    import typer

    from export.sign import main

    app = typer.Typer()
    app.command()(main)

    result = CliRunner().invoke(app, [str(keys[0]), str(bundle)])

    assert (result.exit_code, result.output.strip()) == (0, f"signed: {bundle / SIGNATURE_NAME}")
    Signatures(keys[1]).check(bundle)


def test_server_with_a_public_key_accepts_signed_bundles_only(bundle, keys):
    check = BundleChecker(ServerConfig(models=ModelsConfig(public_key=keys[1])))
    with pytest.raises(BundleError, match=r"manifest.sig is missing"):
        check(Candidate(directory=bundle))

    sign_bundle(keys[0], bundle)

    assert check(Candidate(directory=bundle)).manifest.name == "echo"


def test_bundle_that_is_replaced_behind_the_check_of_its_signature_is_refused(bundle, keys, monkeypatch):
    sign_bundle(keys[0], bundle)
    check_signature = Signatures.check

    def check_and_replace(signatures: Signatures, directory: Path) -> str:
        signed = check_signature(signatures, directory)
        write_echo_bundle(directory, version="2")
        return signed

    monkeypatch.setattr(Signatures, "check", check_and_replace)
    check = BundleChecker(ServerConfig(models=ModelsConfig(public_key=keys[1])))

    with pytest.raises(BundleError, match="holds another bundle than when this one was checked"):
        check(Candidate(directory=bundle))
