"""Sign a bundle: `python -m export.sign KEY BUNDLE` writes `manifest.sig`, which servers with the public key ask for.

Ed25519 over the bytes of `manifest.json`, which has the checksums of all other files; the file is the 64 bytes of the
signature alone.  A key pair: `openssl genpkey -algorithm ed25519 -out key.pem`, and its public half for the servers:
`openssl pkey -in key.pem -pubout -out key.pub.pem`.
"""

from pathlib import Path
from typing import Annotated

import typer
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from model.bundle import MANIFEST_NAME, SIGNATURE_NAME, Bundle


def sign_bundle(key_file: Path, directory: Path) -> Path:
    """Write the signature of the bundle and return where.

    Raises:
        BundleError: the bundle is not what its manifest says.
        ValueError: the file holds no Ed25519 private key in PEM without a password.
    """
    bundle = Bundle.load(directory)
    signature = bundle.path(SIGNATURE_NAME)
    signature.write_bytes(_private_key(key_file).sign(bundle.path(MANIFEST_NAME).read_bytes()))
    return signature


def _private_key(file: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(file.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(f"{file} is no private key in PEM without a password") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{file} is {type(key).__name__}, an Ed25519 key is needed")  # noqa: TRY004 - the user's file
    return key


def main(
    key: Annotated[Path, typer.Argument(help="Ed25519 private key, PEM.")],
    bundle: Annotated[Path, typer.Argument(help="The bundle's directory.")],
) -> None:
    """Sign BUNDLE with KEY."""
    try:
        typer.echo(f"signed: {sign_bundle(key, bundle)}")
    except (ValueError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    typer.run(main)
