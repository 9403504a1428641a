"""A pool with real engine processes: how they start and end, and what it costs when one crashes or hangs."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from model.config import EOS_ID
from service.engine.wire import EngineSpec, Job, to_frame
from service.engine.worker import command_line
from service.errors import InternalError, Unavailable
from service.parent_process import environment
from service.scheduler.pool import EnginePool
from tests.fakes.engine_pools import (
    CONFIG,
    LONG,
    NORMAL,
    PARAMS,
    SLOW,
    SPEC,
    Counts,
    call_within,
    expected,
    running,
    submit,
)
from tests.fakes.fake_runner import BROKEN_TOKEN, CRASH_TOKEN, STUCK_TOKEN


def pids(pool: EnginePool) -> list[int]:
    return [engine.pid for engine in pool.snapshots(0.0) if engine.pid is not None]


@pytest.mark.parametrize(
    ("token", "end", "said"),
    [(CRASH_TOKEN, "exit status 7", ""), (BROKEN_TOKEN, "exit status 1", "RuntimeError: broken decoder")],
)
async def test_engine_that_crashes_says_how_and_is_replaced(capfd, token, end, said):
    async with running() as pool:
        with pytest.raises(Unavailable, match=end):
            await submit(pool, Job((token, EOS_ID), PARAMS), call_within(600.0))
        assert not pool.is_ready

        assert (await submit(pool, Job(NORMAL, PARAMS), call_within(600.0))).hypotheses == expected(NORMAL).hypotheses
    assert said in capfd.readouterr().err


@pytest.mark.parametrize("how", ["stopped", "endless operation"])
async def test_engine_that_stops_answering_is_killed_and_replaced(how):
    async with running(config=replace(CONFIG, heartbeat_timeout_s=2.0)) as pool:
        (pid,) = pids(pool)
        if how == "stopped":
            os.kill(pid, signal.SIGSTOP)

        with pytest.raises(Unavailable, match="stopped answering"):
            await submit(pool, Job((STUCK_TOKEN, EOS_ID), PARAMS), call_within(600.0))

        assert (await submit(pool, Job(NORMAL, PARAMS), call_within(600.0))).hypotheses == expected(NORMAL).hypotheses


async def test_busy_engine_gives_signs_of_life_between_its_steps():
    counts = Counts()
    async with running(observer=counts) as pool:
        await submit(pool, Job(SLOW, LONG), call_within(600.0))  # a good second

        assert sum(stats.live_rows > 0 for stats in counts.stats) >= 3


@pytest.mark.skipif(sys.platform != "linux", reason="waits on a pidfd")
async def test_engine_ends_with_the_process_that_started_it():
    program = (
        "import asyncio, sys\n"
        "from service.scheduler.pool import EnginePool\n"
        "from tests.fakes.engine_pools import CONFIG, SPEC\n"
        "async def main():\n"
        "    pool = EnginePool(SPEC, CONFIG)\n"
        "    await pool.start()\n"
        "    print(pool.snapshots(0.0)[0].pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout
    engine = int(await parent.stdout.readline())

    has_ended = asyncio.Event()
    descriptor = os.pidfd_open(engine)
    asyncio.get_running_loop().add_reader(descriptor, has_ended.set)
    parent.kill()
    await parent.wait()

    async with asyncio.timeout(60):
        await has_ended.wait()
    asyncio.get_running_loop().remove_reader(descriptor)
    os.close(descriptor)


async def test_engine_leaves_signals_to_the_core():
    async with running() as pool:
        (pid,) = pids(pool)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(pid, number)

        assert (await submit(pool, Job(NORMAL, PARAMS), call_within(600.0))).hypotheses == expected(NORMAL).hypotheses
        assert pids(pool) == [pid]


@pytest.mark.parametrize(
    ("changes", "limits", "message"),
    [
        ({"runner_factory": "tests.fakes.fake_runner:create_nothing"}, {}, "ValueError: no-bundle has no graphs"),
        ({}, {"start_timeout_s": 0.001}, r"not ready within 0\.001 s"),
    ],
)
async def test_engine_that_cannot_start_says_why(changes, limits, message):
    with pytest.raises(InternalError, match=message):
        await EnginePool(replace(SPEC, **changes), replace(CONFIG, **limits)).start()


@pytest.mark.parametrize("factory", ["tests.fakes.fake_runner:create", "no.such:module"], ids=["ready", "not started"])
def test_engine_ends_quietly_when_its_report_finds_the_core_gone(factory):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        engine = subprocess.Popen(
            command_line(theirs.fileno()),
            pass_fds=[theirs.fileno()],
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        ours.shutdown(socket.SHUT_RD)  # its reports find nobody, and it reads no end that would tell it first
        ours.sendall(to_frame(EngineSpec(bundle_dir=Path("bundle"), runner_factory=factory, heartbeat_interval_s=0.01)))

        _, complaints = engine.communicate(timeout=120.0)

    assert (engine.returncode, complaints) == (0, b"")


def test_core_loads_neither_numpy_nor_onnx_runtime_for_its_records():
    program = (
        "import sys, service.engine.worker; print(*{'numpy', 'onnxruntime', 'torch', 'asyncio'} & set(sys.modules))"
    )

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert loaded.stdout.split() == []
