"""Whether a bundle comes from who it should: an Ed25519 signature of its manifest, which has the checksums of the rest.

`manifest.sig` holds the 64 bytes of the signature alone.  Checksums tell an accident; they prove no origin, as whoever
changes a file can change them too.
"""

import hashlib
from pathlib import Path

from model.bundle import MANIFEST_NAME, SIGNATURE_NAME, BundleError
from service.extras import how_to_install


class KeyFileError(ValueError):
    """A key that cannot be used; `str(error)` is one line."""


class Signatures:
    """Checks bundles with one public key.

    Raises:
        KeyFileError: the file holds no Ed25519 public key, or cryptography is not installed.
    """

    def __init__(self, public_key: Path) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - an extra
            from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415
        except ImportError as error:
            raise KeyFileError(f"models.public_key needs cryptography: {how_to_install('sign')}") from error
        try:
            key = load_pem_public_key(public_key.read_bytes())
        except OSError as error:
            raise KeyFileError(f"models.public_key {public_key} cannot be read: {error.strerror}") from error
        except Exception as error:  # the library's exceptions for a bad key have no common base
            raise KeyFileError(f"models.public_key {public_key} is no public key in PEM") from error
        if not isinstance(key, Ed25519PublicKey):
            raise KeyFileError(f"models.public_key {public_key} is {type(key).__name__}, an Ed25519 key is needed")
        self._path = public_key
        self._key = key

    def check(self, directory: Path) -> str:
        """The SHA-256 of the manifest, which is signed with the other half of the key.

        Raises:
            BundleError: it has no signature, or one that does not fit.
        """
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

        file = directory / SIGNATURE_NAME
        try:
            signature, manifest = file.read_bytes(), (directory / MANIFEST_NAME).read_bytes()
            self._key.verify(signature, manifest)
        except FileNotFoundError as error:
            raise BundleError(
                f"{error.filename} is missing and models.public_key asks for it; sign the bundle"
            ) from error
        except OSError as error:
            raise BundleError(f"{error.filename} cannot be read: {error.strerror}") from error
        except InvalidSignature as error:
            raise BundleError(
                f"{file} is no signature of the manifest by {self._path}; sign the bundle again"
            ) from error
        return hashlib.sha256(manifest).hexdigest()
