"""When a call ends for want of time or of a caller, and who is said to have ended it."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from service.errors import DeadlineExceeded
from service.grpc.call import Call, current_call
from service.grpc.interceptors import _late_from
from tests.fakes.calls import failure
from tests.fakes.intercepted_server import echo_soon, forever, harness, impatient, raising

__all__ = ["harness", "impatient"]


class TestTime:
    async def test_caller_s_deadline_is_the_call_s(self, harness):
        async def behaviour(request: bytes, context: Any) -> bytes:
            call = current_call()
            return f"{call.deadline - call.started:.3f} {call.is_limit_ours}".encode()

        harness.behaviour = behaviour

        seconds, is_limit_ours = (await harness.one(timeout=30.0)).split()

        assert 20.0 < float(seconds) < 30.1
        assert is_limit_ours == b"False"

    @pytest.mark.parametrize("timeout_s", [None, 3_600.0])
    async def test_server_s_limit_holds_without_a_nearer_deadline(self, harness, timeout_s):
        async def behaviour(request: bytes, context: Any) -> bytes:
            call = current_call()
            return f"{call.deadline - call.started:.3f} {call.is_limit_ours}".encode()

        harness.behaviour = behaviour

        assert await harness.one(timeout=timeout_s) == b"60.000 True"

    async def test_call_over_the_server_s_limit_ends_with_deadline_exceeded(self, impatient):
        impatient.behaviour = forever

        error = await failure(impatient.one())

        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert error.details() == "the call took longer than 0.05 s, the most this server allows"
        assert await impatient.books() == {"DEADLINE_EXCEEDED": 1.0}

    async def test_late_job_of_a_call_without_deadline_names_the_server_s_limit(self, impatient):
        impatient.behaviour = raising(DeadlineExceeded("while decoding"))

        assert "most this server allows" in ((await failure(impatient.one())).details() or "")

    async def test_late_caller_frees_the_handler(self, harness):
        ended = asyncio.Event()

        async def behaviour(request: bytes, context: Any) -> bytes:
            try:
                return await forever(request, context)
            finally:
                ended.set()

        harness.behaviour = behaviour

        assert (await failure(harness.one(timeout=2.0))).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await asyncio.wait_for(ended.wait(), 5)
        assert await harness.books() == {"DEADLINE_EXCEEDED": 1.0}

    async def test_caller_whose_deadline_is_rounded_up_is_late_and_has_not_cancelled(self, harness):
        """1.005 s is sent as 1.01 s: the caller's own clock ends the call before the server's does."""
        harness.behaviour = echo_soon
        await harness.one()  # connected: what is left of the deadline is sent at once
        harness.behaviour = forever

        async def is_late() -> bool:
            assert (await failure(harness.one(timeout=1.005))).code() is grpc.StatusCode.DEADLINE_EXCEEDED
            return bool((await harness.books()).get("DEADLINE_EXCEEDED") == 1.0)

        assert await is_late() or await is_late()  # a busy machine may read a call's headers 50 ms late, once

    async def test_caller_who_cancels_long_before_its_deadline_has_cancelled(self, harness):
        begun = asyncio.Event()

        async def behaviour(request: bytes, context: Any) -> bytes:
            begun.set()
            return await forever(request, context)

        harness.behaviour = behaviour
        call = harness.one(timeout=5.0)
        await asyncio.wait_for(begun.wait(), 5)
        call.cancel()

        assert await harness.books() == {"CANCELLED": 1.0}

    @pytest.mark.parametrize(
        ("timeout_s", "cancelled_after_s", "is_late"),
        [(0.05, 0.001, False), (0.05, 0.044, False), (0.05, 0.046, True), (1.0, 0.93, False), (1.0, 0.95, True)],
    )
    def test_cancel_is_late_in_the_last_moment_which_is_a_share_of_a_short_deadline(
        self, timeout_s, cancelled_after_s, is_late
    ):
        call = Call(
            method="One", request_id="r", started=100.0, deadline=100.0 + timeout_s, is_limit_ours=False, limit_s=60.0
        )

        assert (100.0 + cancelled_after_s >= _late_from(call)) is is_late

    async def test_caller_that_leaves_frees_the_handler(self, harness):
        begun, ended = asyncio.Event(), asyncio.Event()

        async def behaviour(request: bytes, context: Any) -> bytes:
            begun.set()
            try:
                return await forever(request, context)
            finally:
                ended.set()

        harness.behaviour = behaviour
        call = harness.one()
        await asyncio.wait_for(begun.wait(), 5)
        call.cancel()

        await asyncio.wait_for(ended.wait(), 5)
        assert await harness.books() == {"CANCELLED": 1.0}
