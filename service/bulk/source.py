"""The file that a bulk translation reads, as it was when the run began."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self


class JobError(ValueError):
    """The job cannot be begun or continued; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file and the content that it had; travels to workers, which see that it is still the same."""

    file: Path
    sha256: str
    stamp: tuple[int, int]  # different after a change: as cheap as can be, and the same on all nodes that see the file

    @classmethod
    def of(cls, file: Path) -> Self:
        """The file as it is now.

        Raises:
            JobError: it changed while it was read.
            OSError: it cannot be read.
        """
        stamp = _stamp(file)  # before the first look into it
        source = cls(file, _sha256_of(file), stamp)
        source.require_unchanged()
        return source

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """What is read of the file inside is of the content that was hashed.

        Raises:
            JobError: it has changed.
        """
        try:
            yield
        except (ValueError, OSError):
            self.require_unchanged()  # else it cannot be read for that reason
            raise
        self.require_unchanged()

    def require_unchanged(self) -> None:
        """Make sure that the file is as it was.

        Raises:
            JobError: it has changed.
        """
        if _stamp(self.file) != self.stamp:
            raise JobError(
                f"{self.file} has changed while it was translated; what is done stays: "
                "go on when it is as it was, or begin again with --force"
            )


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def _sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
