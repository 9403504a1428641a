"""How many CPU threads this process may really use, and a thread for work that nobody waits for at the end.

The host's core count is the wrong answer in a container: a scheduler affinity and a cgroup quota both cut it.
Knows Linux's /proc and /sys/fs/cgroup only; elsewhere there is no quota.

asyncio's own threads are joined when a loop, and then the process, ends; one that hangs in a file system that is gone
would hold both for ever: `in_daemon_thread`.
"""

import asyncio
import math
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from threading import Thread
from typing import Any, TypeVar

_PROC_SELF_CGROUP = Path("/proc/self/cgroup")
_CGROUP_MOUNT = Path("/sys/fs/cgroup")


def available_threads() -> int:
    """Threads that can run at the same time: the smaller of affinity and cgroup quota, at least 1.

    A quota of 2.5 CPUs counts as 2: a third busy thread would stop all of them for part of each period.
    """
    quota = cpu_quota()
    affinity = affine_cpus()
    return affinity if quota is None else max(1, min(affinity, math.floor(quota)))


def affine_cpus() -> int:
    """CPUs the scheduler may put this process on (`taskset`, cpusets)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_quota(membership: Path = _PROC_SELF_CGROUP, mount: Path = _CGROUP_MOUNT) -> float | None:
    """Return the CPUs' worth of time that the cgroup and all its ancestors allow, or None without a limit."""
    quotas = [
        quota for directory in _cgroup_directories(membership, mount) if (quota := _quota_of(directory)) is not None
    ]
    return min(quotas, default=None)


def _cgroup_directories(membership: Path, mount: Path) -> Iterator[Path]:
    """Directories whose limits hold, for both cgroup versions, from the process's own group up to the root."""
    for line in _read(membership).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = mount / controllers if controllers else mount  # version 2 has one hierarchy and names no controller
        relative = PurePosixPath(path).relative_to("/") if path.startswith("/") else PurePosixPath()
        yield root / relative
        yield from (root / parent for parent in relative.parents)
        yield root  # inside a container the path is the host's, but the root holds the container's own limit


def _quota_of(directory: Path) -> float | None:
    limit = _read(directory / "cpu.max").split()  # version 2: "max 100000" or "150000 100000"
    if not limit:
        limit = [_read(directory / name).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    try:
        quota, period = (int(number) for number in limit)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""


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


def loop_in_thread(name: str) -> asyncio.AbstractEventLoop:
    """Return an event loop that runs in a daemon thread of its own until it is stopped, or the process ends."""
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    loop = runner.get_loop()

    def run() -> None:
        with runner:  # at the end, what still runs is cancelled
            loop.run_forever()

    Thread(target=run, name=name, daemon=True).start()
    return loop


async def in_loop(work: Coroutine[Any, Any, _Result], loop: asyncio.AbstractEventLoop) -> _Result:
    """Return what the work returns or raises that runs in another thread's loop; cancelled there if it is here."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
