"""Keeps one child process alive: starts it, watches it, and replaces it when it is lost.

Knows when to try again; not what the process is for.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from service.processes.child import ChildProcess, Program, StartError, start_child
from service.telemetry.logs import describe_error, get_logger

_EXIT_S = 0.25  # between the end of its messages and its own, a crashing process says what happened
_STABLE_AFTER_S = 30.0  # one that lived this long is replaced without delay when it is lost


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorConfig:
    """How patient to be with a process."""

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
            config: how patient to be.
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
        return self._task is not None and (self.process is None or self.process.is_condemned)

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
        """Hand on what the process says until it is lost."""
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
