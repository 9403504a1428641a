"""SIGUSR1: where every thread and every asyncio task stands, without a value of any variable.

The threads come from `faulthandler`, which writes to standard error itself, also while the event loop is stuck; the
tasks follow as one event of the log once the loop runs.
"""

import asyncio
import faulthandler
import gc
import signal
import sys
from types import FrameType

from service.telemetry.logs import get_logger

MAX_TASKS = 1_000  # in one event; a task takes about 200 bytes
MAX_FRAMES = 20  # of a task, innermost first


def install() -> None:
    """Dump at each SIGUSR1 from now on, in the running loop (main thread only)."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, dump_tasks)
    if sys.stderr is not None and hasattr(sys.stderr, "fileno"):
        faulthandler.register(signal.SIGUSR1, sys.stderr, all_threads=True, chain=True)  # then the loop's handler


def uninstall() -> None:
    """Leave the signal as it was."""
    faulthandler.unregister(signal.SIGUSR1)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)


def dump_tasks() -> None:
    """Log where each task of the running loop waits."""
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    stacks = [f"{task.get_name()}: {_stack_of(task)}" for task in tasks[:MAX_TASKS]]
    get_logger().warning("stack_dump", num_tasks=len(tasks), tasks=stacks)


def _stack_of(task: "asyncio.Task[object]") -> str:
    """Places from the innermost to the outermost."""
    frames: list[FrameType] = []
    awaited: object = task.get_coro()
    while awaited is not None and len(frames) < MAX_FRAMES:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            frames.append(frame)
        awaited = _unwrapped(getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None))
    return " < ".join(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" for frame in frames[::-1])


def _unwrapped(awaited: object) -> object:
    """What gRPC's compiled code waits for: it holds our coroutines in wrappers that show nothing of them."""
    if type(awaited).__name__ != "coroutine_wrapper":
        return awaited
    return next(iter(gc.get_referents(awaited)), None)
