"""The signals of the core: SIGTERM and SIGINT stop the server, SIGUSR1 logs where the core, or an edge, stands."""

import asyncio
import faulthandler
import gc
import os
import signal
import sys
from types import FrameType

from service.telemetry.logs import get_logger

MAX_TASKS = 1_000  # in one event; a task takes about 200 bytes
MAX_FRAMES = 20  # of a task, innermost first


def stop_event() -> asyncio.Event:
    """Return an event that the first SIGTERM or SIGINT sets; the second ends the process.  Main thread only."""
    stop = asyncio.Event()

    def receive(number: signal.Signals) -> None:
        if stop.is_set():
            os._exit(128 + number)  # engine processes watch their parent and end with it
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, receive, number)
    return stop


def install_stack_dump() -> None:
    """At each SIGUSR1, write where every thread and every asyncio task stands, without the value of any variable.

    `faulthandler` writes the threads to standard error itself, even while the event loop is stuck; the tasks follow as
    one log event once the loop runs.  Main thread only.
    """
    faulthandler.unregister(signal.SIGUSR1)  # what `bind_to_parent` has registered in an edge
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, dump_tasks)
    if sys.stderr is not None and hasattr(sys.stderr, "fileno"):
        faulthandler.register(signal.SIGUSR1, sys.stderr, all_threads=True, chain=True)  # then the loop's handler


def dump_tasks() -> None:
    """Log where each task of the running loop waits."""
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    stacks = [f"{task.get_name()}: {_stack_of(task)}" for task in tasks[:MAX_TASKS]]
    get_logger().warning("stack_dump", num_tasks=len(tasks), tasks=stacks)


def _stack_of(task: "asyncio.Task[object]") -> str:
    """Return the places from the innermost to the outermost."""
    frames: list[FrameType] = []
    awaited: object = task.get_coro()
    while awaited is not None and len(frames) < MAX_FRAMES:
        if frame := getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None):
            frames.append(frame)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
        if type(awaited).__name__ == "coroutine_wrapper":  # gRPC's compiled code wraps our coroutines in these
            awaited = next(iter(gc.get_referents(awaited)), None)
    return " < ".join(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" for frame in frames[::-1])
