"""The weights that the native engines of one model map: packed and written once, before the engines start.

They are a file without a name in memory: sealed once it is written, and gone with this process.  Only
`service/engine/cpu/native` knows what is in it.
"""

import asyncio
import fcntl
import os
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path

from service.engine.wire import EngineSpec
from service.processes.one_shot import run_in_subprocess
from service.telemetry.logs import get_logger

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK


class PackedWeights:
    """The packed weights of one model's engines."""

    def __init__(self, spec: EngineSpec) -> None:
        """Make the file where the spec asks for shared weights; nothing is written yet."""
        self._descriptor: int | None = None
        path: Path | None = None
        if spec.shared_weights:
            self._descriptor = _empty_file()
            weakref.finalize(self, os.close, self._descriptor)
            path = Path(f"/proc/{os.getpid()}/fd/{self._descriptor}")
        self.spec = replace(spec, packed_weights=path)  # what the engines are told

    async def prepare(self, timeout_s: float) -> None:
        """Write the weights; where that fails, the log says why and each engine has its own weights."""
        if self._descriptor is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await run_in_subprocess(partial(_write, self.spec), niceness=0)
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, _SEALS)
        except Exception as error:  # noqa: BLE001 - whatever it is, the engines go on without
            reason = f"weights are not shared between engines: {type(error).__name__}: {error}"
            get_logger().warning("engine_warning", reason=reason)
            self.remove()

    def remove(self) -> None:
        """Have an empty file in place of the weights; engines that have mapped them go on."""
        if self._descriptor is not None:
            empty = _empty_file()
            os.dup2(empty, self._descriptor, inheritable=False)
            os.close(empty)


def _empty_file() -> int:
    return os.memfd_create("dragoman-weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def _write(spec: EngineSpec) -> None:
    """Write the weights; the server itself never loads what does that."""
    from service.engine.cpu.native.pack import write_shared  # noqa: PLC0415

    write_shared(spec)
