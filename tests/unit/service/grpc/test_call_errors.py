"""How the errors of a call reach its caller, and what stays in the log."""

import asyncio
import json
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2

from service.errors import (
    DeadlineExceeded,
    DragomanError,
    InternalError,
    InvalidInput,
    NotFound,
    Overloaded,
    Unavailable,
)
from tests.fakes.calls import failure, status_of
from tests.fakes.intercepted_server import SECRET, harness, raising
from tests.fakes.logs import log

__all__ = ["harness", "log"]


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

    async def test_refusal_says_why_and_when_to_come_back(self, harness):
        harness.behaviour = raising(Overloaded("full", reason="queue_full", retry_after_s=1.5))

        error = await failure(harness.one())

        assert dict(error.trailing_metadata())["grpc-retry-pushback-ms"] == "1500"
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        assert status_of(error).details[0].Unpack(info)
        assert status_of(error).details[1].Unpack(retry)
        assert (info.reason, retry.retry_delay.ToMilliseconds()) == ("queue_full", 1500)
        rejected = harness.metrics.registry.get_sample_value("dragoman_rejected_total", {"reason": "queue_full"})
        assert rejected == 1.0

    async def test_text_of_a_bug_reaches_neither_the_caller_nor_the_log(self, harness, log):
        harness.behaviour = raising(RuntimeError(f"cannot process {SECRET}"))

        error = await failure(harness.one(metadata=(("x-request-id", "abc-1"),)))

        assert error.code() is grpc.StatusCode.INTERNAL
        assert error.details() == "internal error; the server's log has it under request id abc-1"
        event = json.loads(log.getvalue())
        assert (event["event"], event["error"], event["request_id"]) == ("call_failed", "RuntimeError", "abc-1")
        assert "intercepted_server.py" in event["trace"]
        assert SECRET not in log.getvalue() + error.debug_error_string()

    async def test_work_that_something_else_cancelled_is_answered(self, harness):
        """CancelledError that escapes while the call lives would leave the caller without an answer for ever."""

        async def behaviour(request: bytes, context: Any) -> bytes:
            inner = asyncio.get_running_loop().create_future()
            inner.cancel()
            await inner
            raise AssertionError

        harness.behaviour = behaviour

        assert (await failure(harness.one())).code() is grpc.StatusCode.UNAVAILABLE
        assert await harness.books() == {"UNAVAILABLE": 1.0}

    async def test_malformed_request_is_refused_before_the_handler(self, harness):
        harness.behaviour = raising(AssertionError("the handler ran"))

        error = await failure(harness.one(b"bad"))

        assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "texts[0] is not valid UTF-8")

    async def test_long_message_is_cut_before_it_breaks_the_trailers(self, harness):
        harness.behaviour = raising(NotFound("x" * 100_000))

        error = await failure(harness.one())

        assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "x" * 1_000)
