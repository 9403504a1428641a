"""Certificates that live as long as a test."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import trustme

NAMES = ("localhost", "127.0.0.1")
LONG_AGO, NOT_SO_LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Pair:
    """A certificate with its key, in files."""

    certificate: Path
    key: Path

    def replace(self, other: "Pair") -> None:
        """Move copies of the other's files over these, as an operator would: each at once, one after the other."""
        for old, new in ((self.certificate, other.certificate), (self.key, other.key)):
            draft = old.with_suffix(".new")
            draft.write_bytes(new.read_bytes())
            draft.replace(old)


class Authority:
    """Signs certificates into a directory."""

    def __init__(self, directory: Path, name: str) -> None:
        self._authority = trustme.CA()
        self._directory = directory
        self.name = name
        self.certificate = directory / f"{name}.ca.pem"
        self._authority.cert_pem.write_to_path(self.certificate)

    @property
    def pem(self) -> bytes:
        return self.certificate.read_bytes()

    def issue(self, name: str, *names: str, is_expired: bool = False) -> Pair:
        """A certificate for these names, those of the loopback interface without any."""
        begin, end = (LONG_AGO, NOT_SO_LONG_AGO) if is_expired else (None, None)
        issued = self._authority.issue_cert(*(names or NAMES), not_before=begin, not_after=end)
        pair = Pair(self._directory / f"{self.name}.{name}.pem", self._directory / f"{self.name}.{name}.key")
        pair.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(pair.key)
        return pair
