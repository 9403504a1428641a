"""How a call ends that fails or runs out of time, on a gRPC server in this process."""

import asyncio
import json

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2

from service.call import Call
from service.errors import (
    DeadlineExceeded,
    DragomanError,
    InternalError,
    InvalidInput,
    NotFound,
    Overloaded,
    Unavailable,
)
from tests.fakes.calls import eventually, failure, status_of
from tests.fakes.handled_calls import (
    ONE,
    SECRET,
    answering,
    forever,
    harness,
    impatient,
    raising,
)
from tests.fakes.http2_peer import Peer, call_headers, data_frame, grpc_message, headers_frame
from tests.fakes.logs import log

__all__ = ["harness", "impatient", "log"]


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (InvalidInput("bad beam", field="options.beam_size"), grpc.StatusCode.INVALID_ARGUMENT),
            (NotFound("no such pair"), grpc.StatusCode.NOT_FOUND),
            (Overloaded("full", reason="queue_full", retry_after_s=1.5), grpc.StatusCode.RESOURCE_EXHAUSTED),
            (DeadlineExceeded("too late"), grpc.StatusCode.DEADLINE_EXCEEDED),
            (Unavailable("engine lost"), grpc.StatusCode.UNAVAILABLE),
            (InternalError("no numbers"), grpc.StatusCode.INTERNAL),
            (DragomanError("nameless"), grpc.StatusCode.INTERNAL),
        ],
    )
    async def test_domain_error_becomes_its_status_with_its_message(self, harness, error, code):
        harness.behaviour = raising(error)

        received = await failure(harness.one(timeout=30.0))

        assert (received.code(), received.details()) == (code, str(error))
        status = status_of(received)
        assert (status.code, status.message) == (code.value[0], str(error))
        assert await harness.books() == {code.name: 1.0}

    async def test_bad_field_is_named_for_programs(self, harness):
        harness.behaviour = raising(InvalidInput("bad beam", field="options.beam_size"))

        status = status_of(await failure(harness.one()))

        info, request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        assert status.details[0].Unpack(info)
        assert status.details[1].Unpack(request)
        assert (info.reason, info.domain, dict(info.metadata)) == (
            "INVALID_ARGUMENT",
            "dragoman",
            {"field": "options.beam_size"},
        )
        assert request.field_violations[0].field == "options.beam_size"

    async def test_text_of_a_bug_reaches_neither_the_caller_nor_the_log(self, harness, log):
        harness.behaviour = raising(RuntimeError(f"cannot process {SECRET}"))

        error = await failure(harness.one(metadata=(("x-request-id", "abc-1"),)))

        assert error.code() is grpc.StatusCode.INTERNAL
        assert error.details() == "internal error; the server's log has it under request id abc-1"
        event = json.loads(log.getvalue())
        assert (event["event"], event["error"], event["request_id"]) == ("call_failed", "RuntimeError", "abc-1")
        assert "handled_calls.py" in event["trace"]
        assert SECRET not in log.getvalue() + error.debug_error_string()

    async def test_work_that_something_else_cancelled_is_answered(self, harness):
        """CancelledError that escapes while the call lives would leave the caller without an answer for ever."""

        async def behaviour(request: bytes, call: Call) -> bytes:
            inner = asyncio.get_running_loop().create_future()
            inner.cancel()
            await inner
            raise AssertionError

        harness.behaviour = behaviour

        assert (await failure(harness.one())).code() is grpc.StatusCode.UNAVAILABLE
        assert await harness.books() == {"UNAVAILABLE": 1.0}

    async def test_long_message_is_cut_before_it_breaks_the_trailers(self, harness):
        harness.behaviour = raising(NotFound("x" * 100_000))

        error = await failure(harness.one())

        assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "x" * 1_000)


class TestTime:
    @pytest.mark.parametrize(
        ("timeout_s", "least_s", "limit_s"), [(30.0, 20.0, None), (None, 60.0, 60.0), (3_600.0, 60.0, 60.0)]
    )
    async def test_deadline_is_the_caller_s_or_the_server_s_limit_whichever_is_nearer(
        self, harness, timeout_s, least_s, limit_s
    ):
        harness.behaviour = answering(b"")

        await harness.one(timeout=timeout_s)
        await eventually(lambda: bool(harness.ended))

        (call,) = harness.ended
        assert least_s <= call.deadline - call.started < least_s + 10.1
        assert call.limit_s == limit_s

    @pytest.mark.promise("B5")
    async def test_call_over_the_server_s_limit_ends_with_deadline_exceeded(self, impatient):
        impatient.behaviour = forever

        error = await failure(impatient.one())

        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert error.details() == "the call took longer than 0.05 s, the most this server allows"
        assert await impatient.books() == {"DEADLINE_EXCEEDED": 1.0}

    async def test_call_of_a_client_without_a_clock_ends_at_the_deadline_that_it_sent(self, harness):
        harness.behaviour = forever
        with Peer(harness.port) as peer:
            headers = headers_frame(1, call_headers(f"/{ONE}", [("grpc-timeout", "100m")]))
            await asyncio.to_thread(peer.send, headers + data_frame(1, grpc_message(b"hi"), is_end=True))

            await eventually(lambda: bool(harness.ended))
            assert await harness.books() == {"DEADLINE_EXCEEDED": 1.0}
