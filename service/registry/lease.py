"""How many calls use one version of a model."""

import asyncio
from types import TracebackType


class Lease:
    """Counts the calls that use a version now; each call enters it with `with model.lease:` before it waits."""

    def __init__(self) -> None:
        self.calls = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def wait_idle(self) -> None:
        """Return when no call uses the version."""
        await self._is_idle.wait()

    def __enter__(self) -> None:
        self.calls += 1
        self._is_idle.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.calls -= 1
        if self.calls == 0:
            self._is_idle.set()
