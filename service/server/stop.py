"""SIGTERM and SIGINT: the first asks for a graceful stop, the second ends the process at once."""

import asyncio
import os
import signal


class StopSignal:
    """Becomes set at the first signal."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def install(self) -> None:
        """Listen to both signals in the running loop (main thread only)."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._receive, number)

    @property
    def is_set(self) -> bool:
        """True after the first signal."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Return at the first signal."""
        await self._event.wait()

    def _receive(self, number: signal.Signals) -> None:
        if self._event.is_set():
            os._exit(128 + number)  # engine processes end with us; they watch their parent
        self._event.set()
