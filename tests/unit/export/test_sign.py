"""`python -m export.sign`: the signature of a bundle's manifest."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from export.sign import main, sign_bundle
from model.bundle import SIGNATURE_NAME
from service.registry.bundle_check import Signatures
from tests.fakes.certificates import write_keys
from tests.fakes.echo_bundle import write_echo_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_echo_bundle(tmp_path / "bundle")


def test_command_signs(bundle, tmp_path):
    private, public = write_keys(tmp_path)
    app = typer.Typer()
    app.command()(main)

    result = CliRunner().invoke(app, [str(private), str(bundle)])

    assert (result.exit_code, result.output.strip()) == (0, f"signed: {bundle / SIGNATURE_NAME}")
    Signatures(public).check(bundle)


def test_damaged_bundle_is_not_signed(bundle, tmp_path):
    private, _ = write_keys(tmp_path)
    (bundle / "encoder.onnx").write_bytes(b"")

    with pytest.raises(ValueError, match=r"encoder.onnx has 0 bytes"):
        sign_bundle(private, bundle)


def test_new_bundle_does_not_keep_the_signature_of_the_old_one(bundle, tmp_path):
    sign_bundle(write_keys(tmp_path)[0], bundle)

    write_echo_bundle(bundle, version="2")

    assert not (bundle / SIGNATURE_NAME).exists()
