"""A call of a function in a process of its own: its time, its memory and its crashes are not those of the server."""

import asyncio
import os
import pickle
import subprocess
import sys
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar, cast

from service.errors import Unavailable
from service.parent_process import become_child, environment

_Result = TypeVar("_Result")

# Niceness of heavy work on what strangers have sent: behind engines, as their steps of batch work alone are.
BEHIND_ALL = 15
_KILLED_FIRST = 1_000  # where memory is short: nobody but the caller loses anything
_COMMAND = (sys.executable, "-P", "-c", "from service.processes.apart import main; main()")


async def run_apart(work: "partial[_Result]", *, niceness: int, executor: Executor | None = None) -> _Result:
    """Return what a function of a module returns for its arguments; all three can be pickled.

    Args:
        niceness: how far the process is behind this one.
        executor: whose thread waits for the process; None: that of the loop.

    Raises:
        Unavailable: there can be no process, or it has ended before the function did, as where memory is short.
        Exception: whatever the function raises.
    """
    processes, is_over = list[subprocess.Popen[bytes]](), False

    def run() -> tuple[_Result, Exception | None]:
        # It forks without a copy of this process's page tables, which uvloop makes while the loop stands still: one
        # short text in each reading of a document waited for that (`python bench/bench_files.py`).
        command = [*_COMMAND, str(niceness)]
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment())
        except OSError as error:  # no descriptors, processes or memory left
            raise Unavailable(f"no process could be made: {error}") from error
        with process:
            processes.append(process)
            if is_over:  # nobody waits any more
                process.kill()
            answer, _ = process.communicate(pickle.dumps(work, pickle.HIGHEST_PROTOCOL))
        if not answer:
            raise Unavailable("the process that did the work has ended before it was done: is there enough memory?")
        return cast("tuple[_Result, Exception | None]", pickle.loads(answer))  # noqa: S301 - of a process of ours

    try:
        result, raised = await asyncio.get_running_loop().run_in_executor(executor, run)
    finally:
        is_over = True
        for process in processes:
            process.kill()  # it has ended, mostly
    if raised is not None:
        raise raised
    return result


def main() -> None:
    """Do what standard input says, and write the result and what was raised to standard output."""
    become_child(_KILLED_FIRST)
    os.nice(int(sys.argv[1]))
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)  # nothing else belongs there
        work = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the process that has started this one
        result, raised = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the caller's
            raised = error
        output.write(pickle.dumps((result, raised), pickle.HIGHEST_PROTOCOL))
