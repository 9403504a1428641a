"""Pairs of keys for signatures of bundles."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


def write_keys(directory: Path, key: Ed25519PrivateKey | EllipticCurvePrivateKey | None = None) -> tuple[Path, Path]:
    """Write a private and a public key in PEM; a new Ed25519 pair unless `key` is given."""
    key = key or Ed25519PrivateKey.generate()
    directory.mkdir(exist_ok=True)
    private, public = directory / "key.pem", directory / "key.pub.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public
