"""A child process from its start to its end, as its parent sees it, and the supervisor that keeps one running.

`ChildProcess` knows the socket and the process; `Supervisor` starts it, watches it, and replaces it when it is lost.
Neither knows what the process is for.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from service.child_process import Ready, StartFailed, environment
from service.processes.rpc import FrameChannel
from service.telemetry.logs import describe_error, get_logger, keep_stderr_ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a child process runs."""

    name: str  # in the log and in messages
    command_line: Callable[[int], list[str]]  # for the descriptor of its end of the socket
    spec: Callable[[], object]  # makes the first record that it is sent; it answers with Ready or StartFailed
    spare: "Spare | None" = None  # one that may be there already


class StartError(Exception):
    """The process did not become ready; `str(error)` says why."""


async def start_child(program: Program, timeout_s: float) -> "ChildProcess":
    """Return a process that has said that it is ready.

    Raises:
        StartError: it could not be made, reported a failure, died, or was not ready in time.
    """
    try:
        process = (program.spare.take() if program.spare else None) or await _spawn(program.name, program.command_line)
    except OSError as error:  # no descriptors, processes or memory left
        raise StartError(f"no process could be made: {error}") from error
    try:
        async with asyncio.timeout(timeout_s):
            await process.shake_hands(program.spec())
    except BaseException as error:
        killing = asyncio.create_task(process.kill())
        try:
            await asyncio.shield(killing)
        except asyncio.CancelledError:  # as when another process did not start either: no process is left behind
            await killing
            raise
        if isinstance(error, TimeoutError):
            raise StartError(f"it was not ready within {timeout_s:g} s") from error
        if isinstance(error, Exception) and not isinstance(error, StartError):
            raise StartError(f"it cannot be understood: {type(error).__name__}: {error}") from error
        raise
    return process


async def _spawn(name: str, command_line: Callable[[int], list[str]]) -> "ChildProcess":
    ours, theirs = socket.socketpair()
    with theirs:
        _, channel = await asyncio.get_running_loop().create_connection(FrameChannel, sock=ours)
        starting = asyncio.create_task(
            asyncio.create_subprocess_exec(
                *command_line(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sys.__stderr__,  # standard output belongs to the parent
                env=environment(),
            )
        )
        try:
            process = await asyncio.shield(starting)
            keep_stderr_ready()
        except BaseException as error:
            channel.close()
            if isinstance(error, asyncio.CancelledError):  # a process that is half made must not be left behind
                process = await starting
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            raise
    return ChildProcess(process, channel, name)


class Spare:
    """A process that is made in advance: it has loaded what it can, and waits for its first record."""

    def __init__(self, name: str, command_line: Callable[[int], list[str]]) -> None:
        """Make none yet; name and command line are those of the program."""
        self._name, self._command_line = name, command_line
        self.process: ChildProcess | None = None
        self._making: asyncio.Task[None] | None = None

    def make(self) -> None:
        """Begin to make a process, unless there is one; one that cannot be made now is made when it is needed."""
        if self._making is None and (self.process is None or self.process.has_ended):
            self._making = asyncio.create_task(self._make())

    def take(self) -> "ChildProcess | None":
        """Return the process, which is the caller's from now on; None if there is none."""
        process, self.process = self.process, None
        return None if process is None or process.has_ended else process

    async def end(self) -> None:
        """Kill the process."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)
        if (process := self.take()) is not None:
            await process.kill()

    async def _make(self) -> None:
        try:
            self.process = await _spawn(self._name, self._command_line)
        except OSError as error:
            get_logger().warning(f"spare_{self._name}_not_made", reason=str(error))
        finally:
            self._making = None


class ChildProcess:
    """A running process; `start_child` makes one."""

    def __init__(self, process: asyncio.subprocess.Process, channel: FrameChannel, name: str) -> None:
        self.pid = process.pid
        self.send = channel.send  # a record
        self._process = process
        self._channel = channel
        self._name = name
        self.is_unhealthy = False  # whether `mark_unhealthy` has ended it; its end may not have been read yet
        self._fault = ""  # why

    @property
    def has_ended(self) -> bool:
        """Whether the process is no more."""
        return self._process.returncode is not None

    async def shake_hands(self, spec: object) -> None:
        """Return when the process is ready.

        Raises:
            StartError: it cannot be.
        """
        self.send(spec)
        match await self._channel.read():
            case Ready(warnings):
                for warning in warnings:
                    get_logger().warning(f"{self._name}_warning", pid=self.pid, reason=warning)
            case StartFailed(message):
                raise StartError(message)
            case _:
                raise StartError(f"it died while starting: {await self.describe_end()}")

    async def listen(self, on_record: Callable[[Any], None], silence_limit_s: float) -> None:
        """Pass each record of the process on until it is lost; one that is silent for too long is killed."""
        watchdog = asyncio.create_task(self._watch(silence_limit_s))
        try:
            await self._channel.hand_on(on_record)
        finally:
            watchdog.cancel()

    async def describe_end(self) -> str:
        """Return why the process ended, once it has."""
        status = await self._process.wait()
        if self.is_unhealthy:
            return f"it {self._fault} and was killed"
        return f"exit status {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"

    def mark_unhealthy(self, fault: str) -> None:
        """Kill a process that cannot be used any more; `fault` continues a sentence that begins with "it"."""
        self.is_unhealthy, self._fault = True, fault
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
        self._channel.close()
        await self._process.wait()

    def _kill(self) -> None:
        if not self.has_ended:
            # Not Process.kill: it polls first, and one that just died would lose its exit status to that.
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    async def _watch(self, silence_limit_s: float) -> None:
        """Kill the process after two silent halves in a row: in a single one, this process may have slept."""
        num_silent = 0
        while num_silent < 2:
            before = self._channel.num_received
            await asyncio.sleep(silence_limit_s / 2)
            num_silent = 0 if self._channel.num_received > before else num_silent + 1
        self.mark_unhealthy("stopped answering")


_EXIT_S = 0.25  # between the end of its messages and its own, a crashing process says what happened
_STABLE_AFTER_S = 30.0  # one that lived this long is replaced without delay when it is lost


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorConfig:
    """How long to wait for a process, and between attempts to start one."""

    start_timeout_s: float = 60.0
    heartbeat_timeout_s: float = 10.0  # a silent one is killed after this; longer than any single step of an engine
    restart_backoff_s: float = 0.5  # before the second attempt in a row, doubling; the first follows at once
    max_restart_backoff_s: float = 30.0


class Supervisor:
    """Keeps one process running: the first one, and each that replaces it."""

    def __init__(
        self,
        program: Program,
        config: SupervisorConfig,
        *,
        on_record: Callable[[Any], None],
        on_lost: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        """Start nothing yet.

        Args:
            program: what the process runs.
            config: its time limits.
            on_record: called with each record that the process sends, in the event loop's thread, as all three.
            on_lost: called with the reason when the process is gone, and what it held with it.
            on_change: called when a replacement has to wait, and when it is up.
        """
        self._program = program
        self._config = config
        self._on_record, self._on_lost, self._on_change = on_record, on_lost, on_change
        self.process: ChildProcess | None = None  # None: not started, or lost and being replaced
        self._task: asyncio.Task[None] | None = None
        self.is_delayed = False  # the replacement: from its first pause until it is up
        self.retry_in_s: float | None = None  # the pause before the next start, while it lasts

    @property
    def is_started(self) -> bool:
        """Whether there is to be a process."""
        return self._task is not None

    @property
    def is_missing(self) -> bool:
        """Whether the process was lost, or is being ended, and no other has taken its place yet."""
        return self._task is not None and (self.process is None or self.process.is_unhealthy)

    async def start(self) -> None:
        """Return when the process is ready; from then on it is replaced whenever it is lost.

        Raises:
            StartError: it does not start; the message says why.
        """
        self.process = await start_child(self._program, self._config.start_timeout_s)
        self._task = asyncio.create_task(self._supervise(self.process))

    async def stop(self) -> None:
        """End the process at once and do not replace it; without one, no error.  `start` may follow."""
        (process, self.process), (task, self._task) = (self.process, None), (self._task, None)
        try:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        finally:  # also when whoever stops it is cancelled
            if process is not None:
                await process.kill()  # it has nothing to save, and a step that is under way can be long
        self.is_delayed, self.retry_in_s = False, None

    async def _supervise(self, process: ChildProcess) -> None:
        num_attempts = 0  # to start one, since one was stable
        while True:
            began = time.monotonic()
            await self._follow(process)
            if time.monotonic() - began > _STABLE_AFTER_S:
                num_attempts = 0
            process, num_attempts = await self._replace(num_attempts)

    async def _follow(self, process: ChildProcess) -> None:
        """Pass each record of the process on until it is lost."""
        try:
            await process.listen(self._on_record, self._config.heartbeat_timeout_s)
        except Exception as error:  # noqa: BLE001 - a bug of ours must cost one process, not all later ones
            get_logger().error(f"{self._program.name}_report_failed", **describe_error(error))
        self.process = None
        reason = await process.finish(_EXIT_S)
        get_logger().error(f"{self._program.name}_lost", pid=process.pid, reason=reason)
        self._on_lost(reason)

    async def _replace(self, num_attempts: int) -> tuple[ChildProcess, int]:
        """Start a new process; return it and how many attempts have been made by then."""
        while True:
            if num_attempts:
                backoff_s = self._config.restart_backoff_s * 2.0 ** (num_attempts - 1)
                self.retry_in_s = min(self._config.max_restart_backoff_s, backoff_s)
                self.is_delayed = True
                self._on_change()
                await asyncio.sleep(self.retry_in_s)
                self.retry_in_s = None
            num_attempts += 1
            try:
                self.process = await start_child(self._program, self._config.start_timeout_s)
            except StartError as error:
                get_logger().warning(f"{self._program.name}_not_started", attempt=num_attempts, reason=str(error))
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is, giving up would leave the service without it
                get_logger().error(f"{self._program.name}_not_started", attempt=num_attempts, **describe_error(error))
                continue
            get_logger().info(f"{self._program.name}_started", pid=self.process.pid)
            self.is_delayed = False
            self._on_change()
            return self.process, num_attempts
