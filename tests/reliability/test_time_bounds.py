"""Promises about time, on real server processes; nowhere else is a test timed.

The bounds are those of the promises, far above what is measured on an idle machine: a test here fails when something
waits that should not, and not because the machine is busy.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2

from tests.fakes.calls import Calls, calling, code_of, eventually
from tests.fakes.server_process import ServerProcess

DEADLINE_EXCEEDED, UNAVAILABLE = grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE
SLOW = {"ECHO_STEP_S": "0.02"}
LONG = "x" * 250  # five seconds when slow


def within(seconds: float) -> AbstractAsyncContextManager[None]:
    """Fails the test when what stands inside takes longer; asserted afterwards, so that a report says how long."""

    @asynccontextmanager
    async def measured():
        began = time.monotonic()
        yield
        assert time.monotonic() - began < seconds

    return measured()


def runs(server: ServerProcess, count: int) -> Callable[[], bool]:
    return lambda: server.metric("dragoman_running_jobs") == count


async def held_calls(
    server: ServerProcess, calls: Calls, count: int, **options: float
) -> list[asyncio.Task[grpc.StatusCode]]:
    """The codes-to-be of calls that the engine is decoding."""
    held = [asyncio.create_task(code_of(calls.translate(LONG, **options))) for _ in range(count)]
    await eventually(runs(server, count))
    return held


class TestEngineLoss:
    @pytest.mark.promise("A7")
    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
    async def test_calls_of_a_killed_engine_are_unavailable_within_a_second(self, start_server, number):
        server = start_server(**SLOW)
        async with calling(server.address) as calls:
            held = await held_calls(server, calls, 8)
            (engine,) = server.engine_pids()

            async with within(1.0):
                os.kill(engine, number)
                codes = await asyncio.gather(*held)

        assert codes == [UNAVAILABLE] * 8

    @pytest.mark.promise("A8")
    async def test_deadlines_hold_within_a_second_while_the_engine_is_stuck(self, start_server):
        server = start_server(**SLOW)
        async with calling(server.address) as calls:
            began = time.monotonic()
            held = await held_calls(server, calls, 1, timeout=3.0)
            (engine,) = server.engine_pids()
            os.kill(engine, signal.SIGSTOP)
            try:
                async with within(1.0):
                    await calls.health.Check(health_pb2.HealthCheckRequest())
                assert await asyncio.gather(*held) == [DEADLINE_EXCEEDED]
                assert time.monotonic() - began < 3.0 + 1.0
            finally:
                os.kill(engine, signal.SIGCONT)


class TestStop:
    @pytest.mark.promise("A2")
    async def test_work_longer_than_the_grace_period_ends_two_seconds_after_it_at_the_latest(self, start_server):
        """A single step of the engine lasts longer than all of it."""
        server = start_server(DRAGOMAN_LIFECYCLE__GRACE_S="0.5", ECHO_STEP_S="5")
        engines = [psutil.Process(pid) for pid in server.engine_pids()]
        async with calling(server.address) as calls:
            held = await held_calls(server, calls, 3)

            async with within(0.5 + 2.0):
                server.terminate()
                assert await asyncio.gather(*held) == [UNAVAILABLE] * 3
                assert await asyncio.to_thread(server.wait) == 0
        assert psutil.wait_procs(engines, timeout=10)[1] == []

    async def test_idle_server_ends_within_two_seconds(self, start_server):
        server = start_server()

        async with within(2.0):
            server.terminate()
            assert await asyncio.to_thread(server.wait) == 0

    @pytest.mark.promise("A4")
    async def test_second_signal_ends_the_server_within_a_second(self, start_server):
        server = start_server(**SLOW)
        async with calling(server.address) as calls:
            held = await held_calls(server, calls, 1)
            server.terminate()
            await eventually(lambda: "draining" in server.log_text())

            async with within(1.0):
                server.terminate()
                await asyncio.to_thread(server.wait)
            await asyncio.gather(*held)


class TestAbandonedWork:
    @pytest.mark.promise("B4")
    async def test_rows_of_a_late_call_are_free_within_a_second(self, start_server):
        server = start_server(**SLOW)
        async with calling(server.address) as calls:
            (held,) = await held_calls(server, calls, 1, timeout=2.0)
            assert await held is DEADLINE_EXCEEDED

            await eventually(runs(server, 0), within_s=1.0)

    @pytest.mark.promise("B2")
    async def test_rows_of_a_cancelled_call_are_free_within_a_second(self, start_server):
        server = start_server(**SLOW)
        async with calling(server.address) as calls:
            leaving = calls.translate(LONG)
            await eventually(runs(server, 1))

            leaving.cancel()

            await eventually(runs(server, 0), within_s=1.0)
