"""Work in daemon threads: its outcome comes back, and nobody waits for one that hangs."""

import asyncio
import subprocess
import sys
import threading

import pytest

from service.registry.daemon_threads import in_daemon_thread

HANGING = """
import asyncio, threading
from service.registry.daemon_threads import in_daemon_thread

async def main():
    began = asyncio.Event()
    loop = asyncio.get_running_loop()
    def hang():
        loop.call_soon_threadsafe(began.set)
        threading.Event().wait()
    waiting = asyncio.create_task(in_daemon_thread(hang))
    await began.wait()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

asyncio.run(main())
"""


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


def test_process_ends_while_a_thread_hangs():
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=30, check=False)

    assert (done.returncode, done.stderr) == (0, "")
