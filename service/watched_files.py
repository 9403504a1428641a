"""What files say that may be replaced while the server runs: read again when they change.

Files are looked at by name, so that files renamed into place and links that point elsewhere are seen, which is how
certificates and secrets are replaced.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from model.files import kind_of
from service.config import ConfigError
from service.telemetry.logs import get_logger

_MAX_BYTES = 1 << 20  # of a file of keys or certificates
_Value = TypeVar("_Value")
_Signature: TypeAlias = tuple[int, int, int]  # device's inode, size, time of change
Files: TypeAlias = Sequence[Path] | Callable[[], Iterable[Path]]  # those of a directory come and go


def read_again(setting: str, file: Path) -> bytes:
    """Return the content of a file that will be read again; raises ConfigError with the setting, the file and why."""
    try:
        if kind := kind_of(file):  # a pipe, as the shell's <(...) is one, would give it once, and then nothing
            raise ConfigError(f"{setting}: {file} is {kind}: name a file, which can be read again when it changes")
        if (size := file.stat().st_size) > _MAX_BYTES:  # whoever reads it, other calls wait for
            raise ConfigError(f"{setting}: {file} has {size:,} bytes, at most {_MAX_BYTES:,} are accepted")
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{setting}: {file} cannot be read: {error.strerror}") from error


class WatchedFiles(Generic[_Value]):
    """The newest value that the files gave; may be asked from any thread.

    While changed files cannot be read, the value before them stays, they are tried again each period, and each reason
    is logged once.
    """

    def __init__(
        self,
        files: Files,
        read: Callable[[], _Value],
        *,
        name: str,
        facts: Callable[[_Value], Mapping[str, object]],
        period_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the files; `read` may raise ConfigError or OSError.  Events are NAME_reloaded and NAME_not_reloaded."""
        self._files = files
        self._read = read
        self._name = name
        self._facts = facts
        self._period_s = period_s
        self._clock = clock
        self._lock = threading.Lock()
        self._next_look = clock() + period_s
        self._seen = self._look()  # before they are read, so that no change is missed
        self._is_pending = False  # a change that is not read yet
        self._problem: str | None = None  # that is logged already
        self._value = read()

    def current(self) -> _Value:
        """Return the value, after a look at the files if a period is over."""
        with self._lock:
            now = self._clock()
            if now >= self._next_look:
                self._next_look = now + self._period_s
                before, self._seen = self._seen, self._look()
                # A file that could not be read may become readable and look the same: its mode is in no signature.
                self._is_pending = self._is_pending or self._seen != before
                if self._is_pending:
                    self._reload()
            return self._value

    def _reload(self) -> None:
        try:
            self._value = self._read()
        except (ConfigError, OSError) as error:
            if str(error) != self._problem:
                self._problem = str(error)
                get_logger().error(f"{self._name}_not_reloaded", reason=self._problem, **self._facts(self._value))
            return
        self._is_pending, self._problem = False, None
        get_logger().info(f"{self._name}_reloaded", **self._facts(self._value))

    def _look(self) -> dict[Path, _Signature | None]:
        files = self._files() if callable(self._files) else self._files
        return {file: _signature(file) for file in files}


def _signature(file: Path) -> _Signature | None:
    """None where there is no such file, which is a change too."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
