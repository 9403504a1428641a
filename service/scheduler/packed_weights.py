"""Packed weights that the native engines of one model map: written once, before the engines start.

Knows the directory and the process that fills it; what lies there is known to `service/engine/cpu/native` alone.
"""

import asyncio
import fcntl
import os
import re
import secrets
import shutil
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from service.engine.wire import EngineSpec
from service.processes.apart import run_apart
from service.telemetry.logs import get_logger

_NAME = re.compile(r"dragoman-weights-(\d{1,10})-[0-9a-f]{16}")  # with the process id of the server that has made it
_in_use: dict[Path, int | None] = {}  # directories of this process, with the descriptors that lock them


class PackedWeights:
    """The packed weights of one model's engines, in a private temporary directory."""

    def __init__(self, spec: EngineSpec) -> None:
        """Choose a directory where the spec asks for shared weights; nothing is written yet."""
        self._directory: Path | None = None
        if spec.shared_weights:
            # `tempfile` would take the first of several directories in which it can write, the working one at last.
            parent = Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - the name cannot be guessed
            self._directory = parent / f"dragoman-weights-{os.getpid()}-{secrets.token_hex(8)}"
        self.spec = replace(spec, prepared_dir=self._directory)  # what the engines are told

    async def prepare(self, timeout_s: float) -> None:
        """Write the weights; where that fails, the log says why and each engine has its own weights."""
        if self._directory is None:
            return
        try:
            _remove_abandoned(self._directory.parent)
            self._directory.mkdir(mode=0o700)
            _in_use[self._directory] = _locked(self._directory)
            async with asyncio.timeout(timeout_s):
                await run_apart(partial(_write, self.spec), niceness=0)
        except Exception as error:  # noqa: BLE001 - whatever it is, the engines go on without
            reason = f"weights are not shared between engines: {type(error).__name__}: {error}"
            get_logger().warning("engine_warning", reason=reason)
            self._empty()

    def remove(self) -> None:
        """Remove the weights; engines that have mapped them go on."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            if (lock := _in_use.pop(self._directory, None)) is not None:
                os.close(lock)

    def _empty(self) -> None:
        """Remove the weights and keep the directory, so that nobody else can take its name."""
        if self._directory in _in_use:
            for path in self._directory.iterdir():
                if path.is_file():
                    path.unlink()
                shutil.rmtree(path, ignore_errors=True)


def _write(spec: EngineSpec) -> None:
    """Write the weights; the server itself never loads what does that."""
    from service.engine.cpu.native.pack import write_shared  # noqa: PLC0415

    write_shared(spec)


def _locked(directory: Path) -> int | None:
    """Return a descriptor that locks the directory until it is closed or the process ends; None if another one does.

    Process ids do not tell whose it is: the servers of two containers that share it can have the same.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_abandoned(parent: Path) -> None:
    """Remove directories of processes that were killed, which nobody locks.

    Only what bears exactly such a name and belongs to this user: the parent is full of other people's files.
    """
    for path in parent.iterdir():
        if not _NAME.fullmatch(path.name) or path in _in_use or path.lstat().st_uid != os.getuid():
            continue
        with suppress(OSError):  # removed by another server in this moment, or no directory
            if (lock := _locked(path)) is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)
