"""Files that may be replaced while the server runs: when to look at them, and whether they are others than before.

Reads no content.  Looks by name, so that it sees files renamed into place and links that point elsewhere, which is how
certificates and secrets are replaced.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

_Signature: TypeAlias = tuple[int, int, int]  # device's inode, size, time of change


class WatchedFiles:
    """Looks at the files at most every `period_s`."""

    def __init__(self, files: Sequence[Path], *, period_s: float, now: float) -> None:
        """Remember the files as they are: read them after this, and no change is missed.

        Args:
            now: time.monotonic(), as later in `have_changed`.
        """
        self._files = tuple(files)
        self._period_s = period_s
        self._next_look = now + period_s
        self._seen = self._look()
        self._is_pending = False

    def have_changed(self, now: float) -> bool:
        """True if there is a change that is not taken; said once in a period.

        A file that could not be read may become readable and look the same: a mode that is mended alters no signature.
        """
        if now < self._next_look:
            return False
        self._next_look = now + self._period_s
        before, self._seen = self._seen, self._look()
        self._is_pending = self._is_pending or self._seen != before
        return self._is_pending

    def taken(self) -> None:
        """The files have been read since the latest look."""
        self._is_pending = False

    def _look(self) -> tuple[_Signature | None, ...]:
        return tuple(_signature(file) for file in self._files)


def _signature(file: Path) -> _Signature | None:
    """None where there is no such file, which is a change too."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
