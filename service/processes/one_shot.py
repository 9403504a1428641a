"""Calls one function in a process of its own: its time, memory and crashes do not affect the server."""

import asyncio
import os
import pickle
import subprocess
import sys
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar, cast

from service.child_process import become_child, environment
from service.errors import Unavailable

_Result = TypeVar("_Result")

# Niceness of heavy work on what strangers have sent: behind engines, as their steps of batch work alone are.
BEHIND_ALL = 15
_KILLED_FIRST = 1_000  # where memory is short: nobody but the caller loses anything
_COMMAND = (sys.executable, "-P", "-c", "from service.processes.one_shot import main; main()")


async def run_in_subprocess(work: "partial[_Result]", *, niceness: int, executor: Executor | None = None) -> _Result:
    """Call a function with its arguments in another process, and return the result; all of it has to be picklable.

    Args:
        niceness: of the process, on top of that of this one.
        executor: its thread waits for the process; None: one of the loop.

    Raises:
        Unavailable: no process could be made, or it ended before the function did, for example for lack of memory.
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
    """Call the function that standard input has, and write its result and error to standard output."""
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
