"""When the reloader is asked to look again: on request, and if wanted whenever the repository has changed.

A change is acted upon once two looks in a row have seen the same: somebody may still be copying.  (What is copied more
slowly is refused for its checksums, and looked at again when it has changed once more.)
"""

import asyncio
from typing import Protocol

from service.daemon_threads import in_daemon_thread
from service.errors import DragomanError
from service.registry.changes import ModelChange
from service.registry.repository import BundleCandidates, BundleSource, RepositoryError
from service.telemetry.logs import describe_error, get_logger


class Reloads(Protocol):
    """What a watcher needs of `service.registry.reloader.Reloader`."""

    async def reload(self) -> list[ModelChange]:
        """Look at everything again."""
        ...

    async def follow(self, candidates: BundleCandidates) -> list[ModelChange] | None:
        """Make the changes that this scan suggests; None when the source is another by then, and none was made."""
        ...


class ModelWatcher:
    """Asks a reloader."""

    def __init__(self, reloader: Reloads, source: BundleSource, period_s: float | None) -> None:
        """Nothing runs yet.

        Args:
            period_s: between two looks; None for none without a request.
        """
        self._reloader = reloader
        self._source = source
        self._period_s = period_s
        self._requested = asyncio.Event()
        self._seen: BundleCandidates | None = None  # at the last look
        self._followed: BundleCandidates | None = None

    def request(self) -> None:
        """Have everything looked at again soon; several requests before that count as one."""
        self._requested.set()

    async def run(self, loaded: BundleCandidates) -> None:
        """Look again and again until cancelled.

        Args:
            loaded: what has been acted upon already.
        """
        self._seen = self._followed = loaded
        while True:
            is_requested = await self._request_or_period()
            try:
                if is_requested:
                    await self._reloader.reload()
                else:
                    await self.look()
            except DragomanError as error:
                get_logger().error("reload_failed", reason=str(error))
            except Exception as error:  # noqa: BLE001 - a bug in one look must not be the last look
                get_logger().error("reload_failed", **describe_error(error))

    async def look(self) -> None:
        """One look without a request."""
        try:
            found = await in_daemon_thread(self._source.scan)
        except RepositoryError as error:
            if self._seen is not None:  # said once
                get_logger().error("reload_failed", reason=str(error))
            self._seen = None
            return
        is_settled, self._seen = found == self._seen, found
        if is_settled and found != self._followed and await self._reloader.follow(found) is not None:
            self._followed = found

    async def _request_or_period(self) -> bool:
        """True for a request, False when the period is over."""
        try:
            async with asyncio.timeout(self._period_s):
                await self._requested.wait()
        except TimeoutError:
            return False
        self._requested.clear()
        return True
