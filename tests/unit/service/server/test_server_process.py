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
from service.server.process import dump_tasks, install_stack_dump, use_limits
from tests.fakes.logs import log

__all__ = ["log"]

SECRET = "geheim"


@pytest.fixture
def limits(monkeypatch):
    """The limits of a process by their number."""
    limits = {resource.RLIMIT_NOFILE: (1_024, 1_048_576), resource.RLIMIT_AS: (resource.RLIM_INFINITY,) * 2}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    return limits


@pytest.mark.parametrize(
    ("before", "after"),
    [((1_024, 1_048_576), (65_536, 1_048_576)), ((1_024, 4_096), (4_096, 4_096)), ((100_000,) * 2, (100_000,) * 2)],
)
def test_as_many_files_may_be_open_as_the_hard_limit_allows(limits, log, before, after):
    limits[resource.RLIMIT_NOFILE] = before

    use_limits()

    assert limits[resource.RLIMIT_NOFILE] == after
    assert log.getvalue() == ""


@pytest.mark.parametrize(
    ("limit", "value", "event"),
    [
        (resource.RLIMIT_AS, 800 << 20, {"event": "address_space_limited", "limit_mb": 800}),
        (resource.RLIMIT_NOFILE, 256, {"event": "open_files_limited", "limit": 256}),
    ],
)
def test_limits_that_are_too_low_are_said_at_the_start(limits, log, limit, value, event):
    limits[limit] = (value, value)

    use_limits()

    assert event.items() <= json.loads(log.getvalue()).items()


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
