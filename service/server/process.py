"""A server and the operating system: number of frontends, signals, process 1, event loop lag, garbage collection.

SIGTERM and SIGINT stop the server.  SIGUSR1 logs where the tasks of the scheduler process, or of a frontend, wait.  As
process 1 of a container, this process passes signals on to the server, which is its child, and waits for processes
without a parent.  Such a process, for example one that a health check has started, becomes a child of process 1, and
stays in the process table until process 1 has asked how it ended.
"""

import asyncio
import faulthandler
import gc
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from service.config import ServerConfig
from service.errors import Unavailable
from service.telemetry.logs import get_logger
from service.threads import available_threads

if TYPE_CHECKING:
    from service.telemetry.metrics import Metrics

# CPUs for each frontend, and frontends at most: engines on CPUs leave them less to do than one on a GPU.
_FRONTENDS = {"cpu": (8, 4), "auto": (8, 4), "cuda": (3, 8)}

MAX_TASKS = 1_000  # in one event; a task takes about 200 bytes
MAX_FRAMES = 20  # of a task, innermost first


class ServingState(NamedTuple):
    """The state of the server, as every frontend reports it."""

    is_serving: bool  # in health
    is_draining: bool = False  # in health, which then says NOT_SERVING for ever
    refusal: Unavailable | None = None  # of every new call; None: calls are let in


def num_frontends(config: ServerConfig) -> int:
    """Return how many processes answer calls: one as long as it can keep the engines of this machine busy."""
    cpus_of_each, most = _FRONTENDS[config.engine.device]
    return config.listen.edges or max(1, min(most, available_threads() // cpus_of_each))


MIN_OPEN_FILES = 1_024  # each connection is one, and each tensor of a bundle in ONNX Runtime's format while it loads
_MAX_OPEN_FILES = 65_536


def use_limits() -> None:
    """Let this process and its children have as many open files as the hard limit allows; log limits that are too low.

    Where address space ends, libraries in C end their process, and say little or nothing.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < MIN_OPEN_FILES:
        remedy = f"allow {MIN_OPEN_FILES} or more: `ulimit -Hn`, LimitNOFILE= of systemd, --ulimit nofile= of docker"
        get_logger().warning("open_files_limited", limit=allowed, remedy=remedy)
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        remedy = "leave `ulimit -v` unlimited and limit memory with a cgroup, as containers and systemd do"
        get_logger().warning("address_space_limited", limit_mb=limit >> 20, remedy=remedy)


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
    faulthandler.unregister(signal.SIGUSR1)  # what `become_child` has registered in the process of a frontend
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


_PASSED_ON = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1}


def leave_process_1() -> None:
    """In process 1, go on in a child, and stay in process 1 until that has ended; in any other, do nothing.

    To be called before there are threads, which a child would not have.
    """
    if os.getpid() != 1:
        return
    awaited = {*_PASSED_ON, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    server = os.fork()
    if server:
        _attend(server, awaited)
    os.setpgid(
        0, 0
    )  # a terminal's Ctrl-C reaches process 1 alone, which passes it on: a second one would end it at once
    signal.pthread_sigmask(signal.SIG_UNBLOCK, awaited)


def _attend(server: int, awaited: set[signal.Signals]) -> NoReturn:
    """Live as process 1 until the server has ended, and end as it did."""
    while True:
        number = signal.sigwait(awaited)
        if number in _PASSED_ON:
            with suppress(ProcessLookupError):
                os.kill(server, number)
        pid = -1
        while pid:  # each that has ended; 0 when no other has
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == server:
                code = os.waitstatus_to_exitcode(status)
                os._exit(code if code >= 0 else 128 - code)  # as a shell says it


_MONITOR_PERIOD_S = 0.25  # idle, each round costs CPU time


async def observe_event_loop(metrics: "Metrics") -> AsyncIterator[float]:
    """Yield the time again and again, once the lag of the event loop has been measured."""
    while True:
        expected = time.monotonic() + _MONITOR_PERIOD_S
        await asyncio.sleep(_MONITOR_PERIOD_S)
        now = time.monotonic()
        metrics.observe_lag(max(0.0, now - expected))
        yield now


# A collection of the whole heap follows so many collections of the middle generation; Python's default is 10.  It looks
# at every waiting call, and in a flood it came every few seconds: pauses that a fair queue cannot make up for
# (tests/unit/service/scheduler/test_overload_simulation.py -k pauses).  Only such a collection finds cycles that lived
# through two others; calls leave few behind (tests/component/test_call_handlers.py -k garbage).
_FULL_COLLECTION_EVERY = 100


def spare_what_is_loaded() -> None:
    """Keep later garbage collections from looking at what is alive now, and make collections of everything rare."""
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _FULL_COLLECTION_EVERY)
