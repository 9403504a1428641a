"""How many frontends there are; where tasks and threads stand, without what they hold."""

import asyncio
import faulthandler
import json
import os
import resource
import signal

import pytest

from service.config import EngineConfig, ListenConfig, ServerConfig
from service.server import process
from service.server.process import dump_tasks, install_stack_dump, warn_of_address_limit
from tests.fakes.logs import log

__all__ = ["log"]

SECRET = "geheim"


def test_a_limit_on_address_space_is_said_at_the_start(log, monkeypatch):
    warn_of_address_limit()
    assert log.getvalue() == ""

    monkeypatch.setattr(resource, "getrlimit", lambda _: (800 << 20, resource.RLIM_INFINITY))
    warn_of_address_limit()

    event = json.loads(log.getvalue())
    assert (event["event"], event["limit_mb"]) == ("address_space_limited", 800)


async def innermost(started: asyncio.Event, text: str) -> None:
    started.set()
    await asyncio.Event().wait()


async def outer(started: asyncio.Event) -> None:
    await innermost(started, SECRET)


async def test_a_task_is_shown_from_the_place_where_it_waits(log):
    started = asyncio.Event()
    task = asyncio.create_task(outer(started), name="the task")
    await started.wait()

    dump_tasks()
    task.cancel()

    event = json.loads(log.getvalue())
    (stack,) = [stack for stack in event["tasks"] if stack.startswith("the task: ")]
    places = stack.split(" < ")
    assert [place.split()[-1] for place in places] == ["wait", "innermost", "outer"]
    assert event["num_tasks"] == len(event["tasks"])
    assert SECRET not in log.getvalue()


async def test_the_signal_dumps_and_the_process_goes_on(log, tmp_path, monkeypatch):
    with (tmp_path / "stderr").open("w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        install_stack_dump()
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
            async with asyncio.timeout(10):
                while not log.getvalue():  # noqa: ASYNC110 - a signal raises no event
                    await asyncio.sleep(0.01)
        finally:
            faulthandler.unregister(signal.SIGUSR1)
            asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)
    threads = (tmp_path / "stderr").read_text()

    assert json.loads(log.getvalue())["event"] == "stack_dump"
    assert "most recent call first" in threads
    assert SECRET not in threads


@pytest.mark.parametrize(
    ("device", "cpus", "wanted"),
    [("cpu", 2, 1), ("cpu", 16, 2), ("auto", 64, 4), ("cuda", 2, 1), ("cuda", 16, 5), ("cuda", 64, 8)],
)
def test_a_gpu_gets_more_frontends_than_cpus_do(monkeypatch, device, cpus, wanted):
    monkeypatch.setattr(process, "available_threads", lambda: cpus)

    assert process.num_frontends(ServerConfig(engine=EngineConfig(device=device))) == wanted
    assert process.num_frontends(ServerConfig(engine=EngineConfig(device=device), listen=ListenConfig(edges=3))) == 3
