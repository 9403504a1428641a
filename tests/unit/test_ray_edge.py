"""What stands before Ray Serve in its proxies, without Ray: calls to a replica, and what their callers hear."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from service.api.status import to_wire
from service.client.retry import RetryPolicy, service_config
from service.errors import InternalError
from service.ray_serve import calls
from service.ray_serve.calls import ForwardedCall, final_status
from service.ray_serve.edge import Edge, add_to_proxy
from tests.fakes.calls import TIMEOUT_S, error_info, failure
from tests.fakes.generic_server import FULL, serving


class FakeServe:
    """Puts `answer` where Serve puts its own functions, as its gRPC server does."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self.answer = answer
        self.edge: Any = None

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        (self.edge,) = handlers
        self.edge._method_handlers = {
            path: handler._replace(unary_unary=self.answer, unary_stream=self.answer, stream_stream=self.answer)
            for path, handler in self.edge._method_handlers.items()
        }


@asynccontextmanager
async def proxy(answer: Callable[..., Any], **options: str | int) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a proxy that calls `answer` as Serve calls replicas."""
    serve = FakeServe(answer)
    add_to_proxy(None, serve)
    async with serving(serve.edge, **options) as channel:
        yield channel


def fail(context: Any, status: Any) -> None:
    context.set_code(status.code)
    context.set_details(status.message)
    context.set_trailing_metadata(status.trailers)


async def test_a_replica_gets_the_client_s_bytes_and_what_is_left_of_its_deadline():
    seen: list[ForwardedCall] = []

    async def answer(call: ForwardedCall, context: Any) -> bytes:
        seen.append(call)
        return call.message[::-1]

    async with proxy(answer) as channel:
        method: Any = channel.unary_unary(calls.TRANSLATE)

        assert await method(b"\xff no message", timeout=TIMEOUT_S) == b"egassem on \xff"
        assert await method(b"", timeout=None) == b""

    assert seen[0].timeout_s is not None
    assert 0 < seen[0].timeout_s <= 1.01 * TIMEOUT_S  # on the wire it has three digits, rounded up
    assert seen[1] == ForwardedCall(b"", None)


async def test_a_refusal_arrives_with_its_details_and_is_tried_again_as_the_policy_says():
    num_calls = 0

    async def answer(call: ForwardedCall, context: Any) -> bytes:
        nonlocal num_calls
        num_calls += 1
        if num_calls < 3:
            fail(context, FULL)
            return b""
        return b"third time"

    async with proxy(answer) as channel:
        method: Any = channel.unary_unary(calls.TRANSLATE)
        error = await failure(method(b"", timeout=TIMEOUT_S))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (error.details(), error_info(error).reason) == (FULL.message, "queue_full")
        assert dict(error.trailing_metadata() or ())["grpc-retry-pushback-ms"] == "10"
    async with proxy(answer, service_config=service_config(RetryPolicy())) as channel:
        method = channel.unary_unary(calls.TRANSLATE)

        assert await method(b"", timeout=TIMEOUT_S) == b"third time"


async def test_a_call_whose_replica_died_is_tried_again_too_and_serve_s_word_is_kept(monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("ray.serve"), "propagate", True)  # Serve's own import switches it off
    num_calls = 0

    async def answer(call: ForwardedCall, context: Any) -> bytes:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 1:
            context.set_code(grpc.StatusCode.INTERNAL)
            context.set_details("ActorDiedError,\nand a trace")
            return b""
        return b"from another one"

    async with proxy(answer, service_config=service_config(RetryPolicy())) as channel:
        method: Any = channel.unary_unary(calls.TRANSLATE)

        assert await method(b"", timeout=TIMEOUT_S) == b"from another one"
    # Once, but caught twice where Ray is imported: pytest listens to loggers that do not propagate, too.
    (record,) = {record for record in caplog.records if record.name == "ray.serve"}
    assert record.getMessage() == r"a call ended as UNAVAILABLE, for Serve's 'ActorDiedError,\nand a trace'"


async def test_a_stream_ends_with_the_status_of_its_last_empty_answer():
    async def answer(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[bytes]:
        opening = await anext(requests)
        assert opening.timeout_s is not None
        async for request in requests:
            yield request[::-1]
        fail(context, FULL)
        yield b""

    async with proxy(answer) as channel:
        method: Any = channel.stream_stream(calls.TRANSLATE_STREAM)
        call = method(iter([b"ab", b"cd"]), timeout=TIMEOUT_S)

        assert [await call.read(), await call.read()] == [b"ba", b"dc"]
        error = await failure(call.read())
        assert (error.code(), error_info(error).reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "queue_full")


async def test_other_methods_are_not_implemented():
    async with serving(Edge()) as channel:
        method: Any = channel.unary_unary("/dragoman.v1.TranslationService/Sing")

        assert (await failure(method(b""))).code() is grpc.StatusCode.UNIMPLEMENTED


def test_what_serve_says_of_its_own_troubles_can_be_tried_again():
    ours = to_wire(InternalError("a bug"))

    assert final_status(ours.code, ours.message, ours.trailers) == ours
    lost = final_status(grpc.StatusCode.INTERNAL, "a trace", [("request_id", "7")])
    assert (lost.code, lost.message) == (grpc.StatusCode.UNAVAILABLE, "the replica that had the call is gone")
    assert lost.trailers[-1] == ("request_id", "7")
    unknown = final_status(grpc.StatusCode.NOT_FOUND, "Application metadata not set.", ())
    assert (unknown.code, unknown.message[:36]) == (grpc.StatusCode.UNAVAILABLE, "Serve does not know the application ")
    late = final_status(grpc.StatusCode.DEADLINE_EXCEEDED, "Request timed out.", ())
    assert late.code is grpc.StatusCode.DEADLINE_EXCEEDED
