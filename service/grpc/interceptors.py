"""What every call goes through: a key, an id, a clock, the metrics, and errors that become statuses.

Knows calls, not what they ask for; hands each handler the record of its call in the place of gRPC's context.  Two rules
of grpc.aio shape it: a handler that lets CancelledError escape while its call lives never answers, and the text of any
other exception would reach the caller as UNKNOWN.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, TypeAlias

import grpc
import grpc.aio
from structlog.contextvars import bind_contextvars

from service.errors import (
    DeadlineExceeded,
    DragomanError,
    InternalError,
    InvalidInput,
    Overloaded,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from service.grpc.api_keys import ApiKey
from service.grpc.authentication import Authenticator
from service.grpc.codec import Malformed
from service.grpc.status import Metadata, WireStatus, code_of, to_wire
from service.records import Call
from service.telemetry.families import OTHER
from service.telemetry.logs import LogLimit, describe_error, get_logger
from service.telemetry.metrics import Metrics
from service.telemetry.observers import CallObserver, SlowCalls

REQUEST_ID_KEY = "x-request-id"
TRACE_KEYS = frozenset({"traceparent", "tracestate"})  # www.w3.org/TR/trace-context
# Open streams without limits of their own (health's Watch, reflection): they last for ever, nothing else bounds them.
MAX_WATCHES = 128
_STREAMS_RETRY_AFTER_S = 10.0
REFUSALS_LOGGED = 10  # callers without a good key, a minute: anybody can make more of them than a disk holds
_STOPPING = "the server is stopping"
_VALID_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"  # classes that only the type stubs can subscript
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps every handler of the server."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        methods: frozenset[str],
        max_request_seconds: float,
        own_limits: Mapping[str, float] | None = None,
        authenticator: Authenticator | None = None,
        observers: Sequence[CallObserver] = (),
        slow_calls: SlowCalls | None = None,
    ) -> None:
        """Wrap handlers.

        Args:
            methods: those that are counted by name.
            own_limits: streaming methods that bound their number and their time themselves, with the latter in seconds.
            authenticator: None for one that lets everybody call.
            observers: told of each call that has ended, after it was counted.
            slow_calls: logs calls that took too long; None: nobody asks.
        """
        self.calls: set[Call] = set()  # in progress
        self._observers = observers
        self._slow_calls = slow_calls
        self._metrics = metrics
        self._own_limits = own_limits or {}
        self._methods = methods
        self._max_request_seconds = max_request_seconds
        self._authenticator = authenticator or Authenticator()
        self._refusals = LogLimit(max_lines=REFUSALS_LOGGED, period_s=60.0)
        self._sending: set[asyncio.Task[Any]] = set()  # of calls that have ended: gRPC runs each call in a task
        self._num_streams = 0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["Handler | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        """Return the method's handler with everything around it, or one that refuses the call unread."""
        method = handler_call_details.method.removeprefix("/")
        label = method if method in self._methods else OTHER
        try:
            key = self._authenticator.authenticate(method, _metadata_of(handler_call_details))
        except DragomanError as error:
            return self._refusal(error, label)
        handler = await continuation(handler_call_details)
        if handler is None:
            return self._refusal(Unimplemented("Method not found!"), OTHER)
        return self._wrap(handler, label, key)

    async def answers_sent(self, within_s: float) -> None:
        """Return when the answers of all calls that have ended by now are on their way, or the time is over."""
        if self._sending:
            await asyncio.wait(tuple(self._sending), timeout=within_s)

    def _refusal(self, error: DragomanError, method: str) -> Handler:
        """Return a handler that fails every call; a stream, because those begin before the first message is read."""

        async def refuse(_: object, context: Context) -> None:
            with self._followed(method, context, None) as call:
                if isinstance(error, Unauthenticated | PermissionDenied):
                    left_out = self._refusals.take()
                    if left_out is not None:
                        event = {"code": code_of(error).name, "reason": str(error), "client": call.caller.name}
                        get_logger().warning("call_refused", **event, left_out=left_out)
                await self._fail(error, context, call)

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _wrap(self, handler: Handler, method: str, key: ApiKey | None) -> Handler:
        coders = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(self._unary(handler.unary_unary, method, key), **coders)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(self._stream(handler.unary_stream, method, key), **coders)
        assert handler.stream_stream, f"{method} has a kind of handler that nothing here serves"
        return grpc.stream_stream_rpc_method_handler(self._stream(handler.stream_stream, method, key), **coders)

    def _unary(self, behaviour: Any, method: str, key: ApiKey | None) -> Any:
        async def answer(request: object, context: Context) -> object:
            with self._followed(method, context, key) as call:
                try:
                    _refuse_malformed(request)
                    try:
                        async with asyncio.timeout(call.deadline - time.monotonic()):
                            return await behaviour(request, call)
                    except TimeoutError:
                        raise DeadlineExceeded("the caller's deadline passed") from None
                except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  none may escape
                    await self._fail(error, context, call)
                return None  # beside a status that is not OK, grpc.aio looks at no response

        return answer

    def _stream(self, behaviour: Any, method: str, key: ApiKey | None) -> Any:
        async def answers(request: object, context: Any) -> AsyncIterator[object]:
            with self._followed(method, context, key) as call:
                context.add_done_callback(lambda _: call.on_gone and call.on_gone())
                try:
                    _refuse_malformed(request)
                    with self._counted_stream(method):
                        async for response in behaviour(request, call):
                            yield response
                except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  none may escape
                    await self._fail(error, context, call)
                except GeneratorExit:  # the caller left while a response was on its way
                    call.code = "CANCELLED"
                    raise

        return answers

    @contextmanager
    def _counted_stream(self, method: str) -> Iterator[None]:
        """Take a place among the open streams; raises Overloaded if there is none."""
        if method in self._own_limits:
            yield
            return
        if self._num_streams >= MAX_WATCHES:
            message = f"{self._num_streams} streams are open, at most {MAX_WATCHES} may be"
            raise Overloaded(message, reason="streams", retry_after_s=_STREAMS_RETRY_AFTER_S)
        self._num_streams += 1
        try:
            yield
        finally:
            self._num_streams -= 1

    @contextmanager
    def _followed(self, method: str, context: Context, key: ApiKey | None) -> Iterator[Call]:
        """Make the record of a call; count the call in, and out with its code whatever happens inside."""
        call = self._begin(method, context, key)
        self._metrics.call_received(method)
        self.calls.add(call)
        try:
            yield call
        finally:
            self._end(call)

    def _begin(self, method: str, context: Context, key: ApiKey | None) -> Call:
        now = time.monotonic()
        limit_s = self._own_limits.get(method, self._max_request_seconds)
        remaining: Any = context.time_remaining()  # None without a deadline; the type stubs do not know
        is_limit_ours = remaining is None or remaining > limit_s
        metadata = _metadata_of(context)
        call = Call(
            method=method,
            request_id=_request_id(metadata),
            caller=self._authenticator.caller_of(key, metadata, context.peer()),
            models=key.models if key else None,
            trace_headers=_trace_headers(metadata) if self._observers else {},
            started=now,
            deadline=now + (limit_s if is_limit_ours else remaining),
            limit_s=limit_s if is_limit_ours else None,
        )
        context.set_trailing_metadata(((REQUEST_ID_KEY, call.request_id),))
        bind_contextvars(request_id=call.request_id, method=method)  # on every event that this task logs from now on
        return call

    def _end(self, call: Call) -> None:
        self.calls.discard(call)
        if task := asyncio.current_task():  # it ends when gRPC has written the answer
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        call.duration_s = time.monotonic() - call.started
        priority = call.priority.label if call.priority is not None else ""
        self._metrics.call_answered(call.method, call.model, call.code, call.duration_s, priority=priority)
        observers = self._observers
        if self._slow_calls is not None and call.duration_s > self._slow_calls.threshold_s:
            observers = (*observers, self._slow_calls.log)
        for observer in observers:
            try:
                observer(call)
            except Exception as error:  # noqa: BLE001 - who only looks on must not disturb the call
                get_logger().error("observer_failed", **describe_error(error))

    async def _fail(self, error: BaseException, context: Context, call: Call) -> None:
        """End the call with the status of `error` and note its code.

        By `abort`, because that sends the status alone: after headers a client does not send a call again.

        Raises:
            grpc.aio.AbortError: how grpc.aio is told to stop.
            asyncio.CancelledError: the call is gone, so there is nobody to answer.
        """
        status = self._status_of(error, call)
        try:
            await context.abort(status.code, status.message, (*status.trailers, (REQUEST_ID_KEY, call.request_id)))
        except grpc.aio.AbortError as aborted:
            asyncio.get_running_loop().call_soon(_forget_way, aborted)
            asyncio.get_running_loop().call_soon(_forget_way, error)
            raise

    def _status_of(self, error: BaseException, call: Call) -> WireStatus:
        """Return what the caller is told, and note its code.

        Raises:
            asyncio.CancelledError: the call is gone, so there is nobody to answer.
        """
        if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
            call.code = "DEADLINE_EXCEEDED" if call.is_late(time.monotonic()) else "CANCELLED"
            raise error
        domain_error = _to_domain_error(error, call)
        if isinstance(domain_error, DeadlineExceeded) and call.limit_s is not None:
            message = f"the call took longer than {call.limit_s:g} s, the most this server allows"
            domain_error = DeadlineExceeded(message)
        if isinstance(domain_error, Overloaded | Unavailable) and domain_error.reason:
            self._metrics.rejected(domain_error.reason)
        call.code = code_of(domain_error).name
        return to_wire(domain_error)


def _forget_way(aborted: BaseException) -> None:
    """Let go of the frames that an exception came through, once it has arrived.

    grpc.aio keeps it in its state of the call, which the frames lead back to: a flood of refused calls would fill the
    server with cycles that only the garbage collector finds, while all calls wait.
    """
    aborted.__traceback__ = None
    aborted.__context__ = None


def _is_being_cancelled() -> bool:
    """True if gRPC cancelled this task; False if something that it awaited was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _metadata_of(call: Any) -> tuple[tuple[str, str | bytes], ...]:
    """What the caller sent beside its request; `call` is grpc.aio's context or its details for interceptors."""
    metadata = call.invocation_metadata
    return tuple((metadata() if callable(metadata) else metadata) or ())


def _request_id(metadata: Metadata) -> str:
    """The caller's id if it sent a reasonable one, else a new one."""
    for key, value in metadata:
        if key == REQUEST_ID_KEY and isinstance(value, str) and _VALID_REQUEST_ID.fullmatch(value):
            return value
    return token_hex(16)


def _trace_headers(metadata: Metadata) -> dict[str, str]:
    return {key: value for key, value in metadata if key in TRACE_KEYS and isinstance(value, str)}


def _refuse_malformed(request: object) -> None:
    if isinstance(request, Malformed):
        raise InvalidInput(request.message, field=request.field)


def _to_domain_error(error: BaseException, call: Call) -> DragomanError:
    if isinstance(error, DragomanError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return Unavailable(_STOPPING)
    get_logger().error("call_failed", **describe_error(error))
    return InternalError(f"internal error; the server's log has it under request id {call.request_id}")
