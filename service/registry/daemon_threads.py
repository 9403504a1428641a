"""Blocking work that the end of the process does not wait for.

asyncio's own threads are joined when a loop, and then the process, ends; one that hangs in a file system that is gone
would hold both for ever.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar

_Result = TypeVar("_Result")


async def in_daemon_thread(function: Callable[[], _Result]) -> _Result:
    """What `function` returns or raises, run in a thread of its own.

    Cancelled, this returns at once; the thread goes on for as long as it likes, and its outcome is dropped.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[_Result] = loop.create_future()

    def run() -> None:
        deliver: Callable[[], None]
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the waiting task's
            failure = error
            deliver = lambda: outcome.set_exception(failure)  # noqa: E731 - a name for either
        else:
            deliver = lambda: outcome.set_result(result)  # noqa: E731 - likewise
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(lambda: None if outcome.done() else deliver())

    Thread(target=run, name="blocking", daemon=True).start()
    return await outcome
