"""Work in daemon threads: its outcome comes back, and nobody waits for one that hangs."""

import asyncio
import threading

import pytest

from service.threads import in_daemon_thread


async def test_result_comes_back_and_so_does_an_error():
    def fail() -> None:
        raise OSError("it is gone")

    assert await in_daemon_thread(lambda: 7) == 7
    with pytest.raises(OSError, match="it is gone"):
        await in_daemon_thread(fail)


async def test_outcome_that_nobody_waits_for_any_more_is_dropped():
    may_end = threading.Event()
    waiting = asyncio.create_task(in_daemon_thread(lambda: may_end.wait(10)))
    await asyncio.sleep(0)
    waiting.cancel()
    may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await in_daemon_thread(lambda: 7) == 7
