"""A pool with real engine processes: how they start and end, and what it costs when one crashes or hangs."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from model.config import EOS_ID
from service.engine.wire import Job
from service.errors import InternalError, Unavailable
from service.scheduler.pool import EnginePool
from tests.fakes.engine_pools import (
    CONFIG,
    NORMAL,
    PARAMS,
    SPEC,
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


def test_core_loads_neither_numpy_nor_onnx_runtime_for_its_records():
    program = (
        "import sys, service.engine.worker; print(*{'numpy', 'onnxruntime', 'torch', 'asyncio'} & set(sys.modules))"
    )

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert loaded.stdout.split() == []
