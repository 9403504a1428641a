"""What stands before Serve's own functions in its gRPC proxies, which import this module by name.

Serve alone would parse each message there, forget the client's deadline, and send every status after headers; and after
headers, gRPC's clients do not send a call again.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Protocol

import grpc
import grpc.aio

from service.ray_serve.calls import (
    CHECK,
    LIST_MODELS,
    TRANSLATE,
    TRANSLATE_STREAM,
    WATCH,
    ForwardedCall,
    final_status,
    status_code,
)

Context = Any  # grpc.aio's, whose published types know neither `code` nor `details`
AnswerOnce = Callable[[Any, Context], Awaitable[bytes]]
AnswerOften = Callable[[Any, Context], AsyncGenerator[bytes, None]]


class TakesHandlers(Protocol):
    """A gRPC server, as far as it is needed."""

    def add_generic_rpc_handlers(self, generic_rpc_handlers: tuple[grpc.GenericRpcHandler]) -> None:
        """Let these answer, too."""


def add_to_proxy(_: object, server: TakesHandlers) -> None:
    """What `grpc_servicer_functions` names."""
    server.add_generic_rpc_handlers((Edge(),))


class Edge(grpc.GenericRpcHandler):
    """Serve finds the methods in `_method_handlers`, and puts its own functions there; `service` stands before them."""

    def __init__(self) -> None:
        """Methods that take and give bytes; without Serve, nobody answers them."""
        once: Any = grpc.unary_unary_rpc_method_handler(_nobody)
        self._method_handlers: dict[str, Any] = {
            TRANSLATE: once,
            LIST_MODELS: once,
            CHECK: once,
            WATCH: grpc.unary_stream_rpc_method_handler(_nobody),
            TRANSLATE_STREAM: grpc.stream_stream_rpc_method_handler(_nobody),
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The handler of a method; None: it is not one of ours."""
        handler = self._method_handlers.get(handler_call_details.method)
        if handler is None:
            return None
        return handler._replace(
            unary_unary=_once(handler.unary_unary),
            unary_stream=_often(handler.unary_stream, _whole),
            stream_stream=_often(handler.stream_stream, _opened),
        )


def _nobody(_request: object, _context: object) -> Any:
    """Where Serve puts its own function before the first call."""
    raise AssertionError("a method that Serve did not take over was called")


def _once(answer: AnswerOnce) -> AnswerOnce:
    async def call(request: bytes, context: Context) -> bytes:
        reply = await answer(_whole(request, context), context)
        await _end(context)
        return reply

    return call


def _often(answer: AnswerOften, begin: Callable[[Any, Context], object]) -> AnswerOften:
    async def call(request: Any, context: Context) -> AsyncGenerator[bytes, None]:
        async with aclosing(answer(begin(request, context), context)) as replies:
            async for reply in replies:
                if status_code(context.code()) is grpc.StatusCode.OK:  # else it is empty, and came with the status
                    yield reply
        await _end(context)

    return call


def _whole(request: bytes, context: Context) -> ForwardedCall:
    return ForwardedCall(request, context.time_remaining())


async def _opened(requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[ForwardedCall | bytes]:
    """The stream, with the time it has before it."""
    yield ForwardedCall(b"", context.time_remaining())
    async for request in requests:
        yield request


async def _end(context: Context) -> None:
    """End the call if it has failed.

    Raises:
        grpc.aio.AbortError: how grpc.aio is told to send a status alone, without headers before it.
    """
    code = status_code(context.code())
    if code is not grpc.StatusCode.OK:
        message = _text(context.details())
        status = final_status(code, message, context.trailing_metadata() or ())
        if code is grpc.StatusCode.INTERNAL and status.code is not code:  # the client is not told what Serve said
            logging.getLogger("ray.serve").warning("a call ended as %s, for Serve's %a", status.code.name, message)
        await context.abort(status.code, status.message, status.trailers)


def _text(details: str | bytes | None) -> str:
    return details.decode(errors="replace") if isinstance(details, bytes) else details or ""
