"""Work in a process of its own: real ones."""

import asyncio
import operator
import os
import time
from functools import partial

import psutil
import pytest

from service.errors import InvalidInput, Unavailable
from service.processes.one_shot import run_in_subprocess
from tests.fakes.calls import eventually


def refuse() -> None:
    print("on standard output")
    raise InvalidInput("it is too odd", field="file")


async def test_result_comes_back_from_another_process_that_is_as_nice_as_is_said():
    assert await run_in_subprocess(partial(operator.mul, b"a", 1 << 20), niceness=0) == b"a" * (1 << 20)
    assert await run_in_subprocess(partial(os.nice, 0), niceness=3) == min(os.nice(0) + 3, 19)


async def test_what_is_raised_there_is_raised_here_whatever_is_printed_there():
    with pytest.raises(InvalidInput, match="it is too odd") as caught:
        await run_in_subprocess(partial(refuse), niceness=0)
    assert caught.value.field == "file"


async def test_process_that_dies_is_not_waited_for():
    with pytest.raises(Unavailable, match="ended before"):
        await run_in_subprocess(partial(os._exit, 3), niceness=0)


async def test_process_ends_with_whoever_waits_for_it():
    before = set(psutil.Process().children())
    work = asyncio.create_task(run_in_subprocess(partial(time.sleep, 3600), niceness=0))
    await eventually(lambda: bool(set(psutil.Process().children()) - before))
    started = set(psutil.Process().children()) - before

    work.cancel()
    await asyncio.gather(work, return_exceptions=True)

    assert psutil.wait_procs(started, timeout=120.0)[1] == []
