"""One engine process from its start to its end, as the front process sees it.

Knows the pipe and the process; neither jobs nor queues, nor what to do when the engine is lost.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from service.engine.job import (
    FRAME_HEADER_BYTES,
    Command,
    Ready,
    Report,
    StartFailed,
    frame_length,
    from_payload,
    to_frame,
)
from service.engine.process import command_line, environment
from service.engine.spec import EngineSpec
from service.telemetry.logs import get_logger


class EngineStartError(Exception):
    """The process did not become ready; `str(error)` says why."""


async def start_engine(spec: EngineSpec, timeout_s: float) -> "EngineProcess":
    """Return an engine process that is loaded and warm.

    Raises:
        EngineStartError: it could not be made, reported a failure, died, or was not ready in time.
    """
    try:
        process = await _spawn()
    except OSError as error:  # no descriptors, processes or memory left
        raise EngineStartError(f"no process could be made: {error}") from error
    try:
        async with asyncio.timeout(timeout_s):
            await process.greet(spec)
    except BaseException as error:
        killing = asyncio.create_task(process.kill())
        try:
            await asyncio.shield(killing)
        except asyncio.CancelledError:  # as when another engine did not start either: no process is left behind
            await killing
            raise
        if isinstance(error, TimeoutError):
            raise EngineStartError(f"it was not ready within {timeout_s:g} s") from error
        if isinstance(error, Exception) and not isinstance(error, EngineStartError):
            raise EngineStartError(f"it cannot be understood: {type(error).__name__}: {error}") from error
        raise
    return process


async def _spawn() -> "EngineProcess":
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        starting = asyncio.create_task(
            asyncio.create_subprocess_exec(
                *command_line(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sys.__stderr__,  # standard output belongs to the front process
                env=environment(),
            )
        )
        try:
            process = await asyncio.shield(starting)
        except BaseException as error:
            writer.close()
            if isinstance(error, asyncio.CancelledError):  # a process that is half made must not be left behind
                process = await starting
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            raise
    return EngineProcess(process, reader, writer)


class EngineProcess:
    """A running engine process; `start_engine` makes one."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.pid = process.pid
        self._process = process
        self._reader = reader
        self._writer = writer
        self._heard = True
        self._fault: str | None = None  # why this process ended it

    async def greet(self, spec: EngineSpec) -> None:
        """Return when the engine is loaded and warm.

        Raises:
            EngineStartError: it cannot be.
        """
        self._writer.write(to_frame(spec))
        match await self._read():
            case Ready(warnings):
                for warning in warnings:
                    get_logger().warning("engine_warning", pid=self.pid, reason=warning)
            case StartFailed(message):
                raise EngineStartError(message)
            case _:
                raise EngineStartError(f"it died while starting: {await self.describe_end()}")

    def send(self, commands: Sequence[Command]) -> None:
        """Send commands; what the engine cannot take in any more is lost with it."""
        if not self._writer.is_closing():
            self._writer.write(to_frame(tuple(commands)))

    async def listen(self, on_report: Callable[[Report], None], silence_limit_s: float) -> None:
        """Hand on the engine's reports until it is lost; an engine that is silent for too long is killed."""
        reading = asyncio.create_task(self._hand_on(on_report))
        watchdog = asyncio.create_task(self._watch(silence_limit_s))
        try:
            await reading
        finally:
            watchdog.cancel()

    async def _hand_on(self, on_report: Callable[[Report], None]) -> None:
        while isinstance(record := await self._read(), Report):
            self._heard = True
            on_report(record)

    async def describe_end(self) -> str:
        """Return why the process ended, once it has."""
        status = await self._process.wait()
        if self._fault is not None:
            return f"it {self._fault} and was killed"
        return f"exit status {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"

    @property
    def is_condemned(self) -> bool:
        """Whether `condemn` has ended it; its end may not have been read yet."""
        return self._fault is not None

    def condemn(self, fault: str) -> None:
        """Kill a process that is not good any more; `fault` continues a sentence that begins with "it"."""
        self._fault = fault
        self._kill()

    async def finish(self, timeout_s: float) -> str:
        """Wait for a process that is about to end, kill it if it does not, and return why it ended."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            await self.kill()
        return await self.describe_end()

    async def kill(self) -> None:
        """Kill the process; one that has ended is no error."""
        self._kill()
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
        await self._process.wait()

    def _kill(self) -> None:
        if self._process.returncode is None:
            # Not Process.kill: it polls first, and one that just died would lose its exit status to that.
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    async def _watch(self, silence_limit_s: float) -> None:
        """Kill the process after two silent halves in a row: in a single one, this process may have slept."""
        num_silent = 0
        while num_silent < 2:
            self._heard = False
            await asyncio.sleep(silence_limit_s / 2)
            num_silent = 0 if self._heard else num_silent + 1
        self.condemn("stopped answering")

    async def _read(self) -> object | None:
        """Return the next record, None when the process is gone."""
        try:
            header = await self._reader.readexactly(FRAME_HEADER_BYTES)
            return from_payload(await self._reader.readexactly(frame_length(header)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
