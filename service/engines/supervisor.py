"""One engine process after another in the same place: started, watched, and replaced when it is lost.

Knows when to try again; neither jobs nor queues.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from service.engine.process import Command, Report
from service.engine.spec import EngineSpec
from service.engines.engine_process import EngineProcess, EngineStartError, start_engine
from service.telemetry.logs import describe_error, get_logger

_EXIT_S = 0.25  # between the end of its messages and its own, a crashing engine says what happened
_STABLE_AFTER_S = 30.0  # an engine that lived this long is replaced without delay when it is lost


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorConfig:
    """How patient to be with an engine process."""

    start_timeout_s: float = 60.0
    heartbeat_timeout_s: float = 10.0  # an engine silent for this long is killed; longer than any single step
    restart_backoff_s: float = 0.5  # before the second attempt in a row, doubling; the first follows at once
    max_restart_backoff_s: float = 30.0


class EngineListener(Protocol):
    """Who uses the engine; called in the event loop's thread."""

    def heard(self, report: Report) -> None:
        """The engine reported."""
        ...

    def lost(self, reason: str) -> None:
        """The engine is gone, and what it held with it."""
        ...

    def delayed(self, retry_in_s: float) -> None:
        """There is none for now: the next attempt to replace it is only made after a pause."""
        ...

    def starting(self) -> None:
        """An attempt to replace it begins."""
        ...

    def restarted(self) -> None:
        """Another one has taken its place."""
        ...


class EngineSupervisor:
    """A place for an engine process."""

    def __init__(self, spec: EngineSpec, config: SupervisorConfig, listener: EngineListener) -> None:
        self._spec = spec
        self._config = config
        self._listener = listener
        self._link: EngineProcess | None = None  # None: not started, or lost and being replaced
        self._task: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        """Whether the engine takes commands; one that is being ended does not."""
        return self._link is not None and not self._link.is_condemned

    @property
    def is_missing(self) -> bool:
        """Whether the engine was lost, or is being ended, and no other has taken its place yet."""
        return self._task is not None and not self.is_up

    @property
    def pid(self) -> int | None:
        """The engine's process id while it is up."""
        return self._link.pid if self._link else None

    async def start(self) -> None:
        """Return when the engine is warm; from then on it is replaced whenever it is lost.

        Raises:
            EngineStartError: it does not start; the message says why.
        """
        self._link = await self._start_one()
        self._task = asyncio.create_task(self._keep(self._link))

    def send(self, commands: Sequence[Command]) -> None:
        """Tell the engine, if it is up."""
        if self._link is not None:
            self._link.send(commands)

    def condemn(self, fault: str) -> None:
        """End the engine, if it is up, as one that is not good any more; it counts as lost and is replaced."""
        if self._link is not None:
            self._link.condemn(fault)

    async def stop(self) -> None:
        """End the engine at once and do not replace it; without one, no error."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._link is not None:
            await self._link.kill()  # it has nothing to save, and a step that is under way can be long
            self._link = None

    async def _keep(self, link: EngineProcess) -> None:
        num_failures = 0  # in a row
        while True:
            began = time.monotonic()
            await self._serve(link)
            num_failures = 0 if time.monotonic() - began > _STABLE_AFTER_S else num_failures
            link, num_failures = await self._replace(num_failures)

    async def _replace(self, num_failures: int) -> tuple[EngineProcess, int]:
        """A new engine, and how many attempts in a row have been made by then."""
        while True:
            await self._pause(num_failures)
            num_failures += 1
            self._listener.starting()
            try:
                self._link = await self._start_one()
            except EngineStartError as error:
                get_logger().warning("engine_not_started", attempt=num_failures, reason=str(error))
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is, giving up would leave the service without engine
                get_logger().error("engine_not_started", attempt=num_failures, **describe_error(error))
                continue
            get_logger().info("engine_started", pid=self._link.pid)
            self._listener.restarted()
            return self._link, num_failures

    async def _pause(self, num_failures: int) -> None:
        backoff_s = self._backoff_s(num_failures)
        if backoff_s > 0:
            self._listener.delayed(backoff_s)
        await asyncio.sleep(backoff_s)

    def _backoff_s(self, num_failures: int) -> float:
        if num_failures == 0:
            return 0.0
        return min(self._config.max_restart_backoff_s, self._config.restart_backoff_s * 2.0 ** (num_failures - 1))

    async def _start_one(self) -> EngineProcess:
        return await start_engine(self._spec, self._config.start_timeout_s)

    async def _serve(self, link: EngineProcess) -> None:
        """Hand on the engine's reports until it is lost."""
        try:
            async for report in link.reports(self._config.heartbeat_timeout_s):
                self._listener.heard(report)
        except Exception as error:  # noqa: BLE001 - a bug of ours must cost one engine's jobs, not all later ones
            get_logger().error("engine_report_failed", **describe_error(error))
        self._link = None
        await link.finish(_EXIT_S)
        reason = await link.describe_end()
        get_logger().error("engine_lost", pid=link.pid, reason=reason)
        self._listener.lost(reason)
