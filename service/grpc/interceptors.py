"""What every call goes through: a key, an id, a clock, the books, and errors that become statuses.

Knows calls, not what they ask for.  Two rules of grpc.aio shape it: a handler that lets CancelledError escape while its
call lives never answers, and the text of any other exception would reach the caller as UNKNOWN.
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
from service.grpc.call import Call, enter
from service.grpc.identity import Metadata
from service.grpc.status import WireStatus, code_of, to_wire
from service.grpc.wire import Malformed
from service.telemetry.calls import CallObserver, EndedCall
from service.telemetry.families import OTHER
from service.telemetry.logs import LogLimit, bind_request, describe_error, get_logger
from service.telemetry.metrics import Metrics

REQUEST_ID_KEY = "x-request-id"
TRACE_KEYS = frozenset({"traceparent", "tracestate"})  # www.w3.org/TR/trace-context
# Open streams without limits of their own (health's Watch, reflection): they last for ever, nothing else bounds them.
MAX_WATCHES = 128
_STREAMS_RETRY_AFTER_S = 10.0
REFUSALS_LOGGED = 10  # callers without a good key, a minute: anybody can make more of them than a disk holds
# A client that reaches its deadline cancels the call, and the server's own clock for it may not be there yet: gRPC
# rounds a deadline up to three digits when it sends it, and the cancel overtakes timers.  Of a short deadline the last
# moment is a tenth: whoever takes such a call back earlier, as callers that hedge do, was not late.
_DEADLINE_ROUNDING = 0.01
_LAST_MOMENT_S = 0.05
_LAST_MOMENT_SHARE = 0.1
_TIMER_ROUNDING_S = 0.002  # uvloop's clock counts milliseconds: its timers may go off that much early
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
    ) -> None:
        """Wrap handlers.

        Args:
            methods: those that are counted by name.
            own_limits: streaming methods that bound their number and their time themselves, with the latter in seconds.
            authenticator: None for one that lets everybody call.
            observers: told of each call that has ended, after it is in the books.
        """
        self.calls: set[Call] = set()  # in progress
        self._observers = observers
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
        """The method's handler inside the books, or one that refuses the call without reading its request."""
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

    def _refusal(self, error: DragomanError, method: str) -> Handler:
        """A handler that fails every call; a stream, because those begin before the first message is read."""

        async def refuse(_: object, context: Context) -> None:
            with self._accounted(method, context, None) as call:
                if isinstance(error, Unauthenticated | PermissionDenied):
                    self._log_refusal(error, call)
                await self._fail(error, context, call)

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _log_refusal(self, error: DragomanError, call: Call) -> None:
        left_out = self._refusals.take()
        if left_out is not None:
            event = {"code": code_of(error).name, "reason": str(error), "client": call.client.name}
            get_logger().warning("call_refused", **event, left_out=left_out)

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

    async def answers_sent(self, within_s: float) -> None:
        """Return when the answers of all calls that have ended by now are on their way, or the time is over."""
        if self._sending:
            await asyncio.wait(tuple(self._sending), timeout=within_s)

    def _unary(self, behaviour: Any, method: str, key: ApiKey | None) -> Any:
        async def answer(request: object, context: Context) -> object:
            with self._accounted(method, context, key) as call:
                try:
                    return await self._answer_in_time(behaviour, request, context, call)
                except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  none may escape
                    await self._fail(error, context, call)
                return None  # beside a status that is not OK, grpc.aio looks at no response

        return answer

    def _stream(self, behaviour: Any, method: str, key: ApiKey | None) -> Any:
        async def answers(request: object, context: Context) -> AsyncIterator[object]:
            with self._accounted(method, context, key) as call:
                try:
                    _refuse_malformed(request)
                    with self._counted_stream(method):
                        async for response in behaviour(request, context):
                            yield response
                except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  none may escape
                    await self._fail(error, context, call)
                except GeneratorExit:  # the caller left while a response was on its way
                    call.code = "CANCELLED"
                    raise

        return answers

    @contextmanager
    def _counted_stream(self, method: str) -> Iterator[None]:
        """A place among the open streams; raises Overloaded if there is none."""
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

    async def _answer_in_time(self, behaviour: Any, request: object, context: Context, call: Call) -> object:
        _refuse_malformed(request)
        try:
            async with asyncio.timeout(call.deadline - time.monotonic()):
                return await behaviour(request, context)
        except TimeoutError:
            raise _late(call) from None

    @contextmanager
    def _accounted(self, method: str, context: Context, key: ApiKey | None) -> Iterator[Call]:
        """Count the call in, and out with its code whatever happens inside."""
        call = self._begin(method, context, key)
        self._metrics.call_received(method)
        self.calls.add(call)
        try:
            yield call
        finally:
            self.calls.discard(call)
            self._note_sending()
            duration_s = time.monotonic() - call.started
            self._metrics.call_answered(method, call.model, call.code, duration_s, priority=call.priority)
            if self._observers:
                self._tell(_ended(call, duration_s))

    def _note_sending(self) -> None:
        """The task of a call ends when gRPC has written its answer."""
        if task := asyncio.current_task():
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    def _tell(self, ended: EndedCall) -> None:
        for observer in self._observers:
            try:
                observer(ended)
            except Exception as error:  # noqa: BLE001 - who only looks on must not disturb the call
                get_logger().error("observer_failed", **describe_error(error))

    def _begin(self, method: str, context: Context, key: ApiKey | None) -> Call:
        now = time.monotonic()
        limit = self._own_limits.get(method, self._max_request_seconds)
        remaining: Any = context.time_remaining()  # None without a deadline; the type stubs do not know
        is_limit_ours = remaining is None or remaining > limit
        deadline = now + (limit if remaining is None else min(remaining, limit))
        metadata = _metadata_of(context)
        client = self._authenticator.client_of(key, metadata, context.peer())
        call = Call(method, _request_id(metadata), now, deadline, is_limit_ours, limit, client=client)
        call.progress.late_from = _late_from(call)
        call.models = key.models if key else None
        if self._observers:
            call.trace_headers = _trace_headers(metadata)
        context.set_trailing_metadata(((REQUEST_ID_KEY, call.request_id),))
        enter(call)
        bind_request(call.request_id, method)
        return call

    async def _fail(self, error: BaseException, context: Context, call: Call) -> None:
        """End the call with the status of `error` and note its code in the books.

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
        """What the caller is told; its code is noted in the books.

        Raises:
            asyncio.CancelledError: the call is gone, so there is nobody to answer.
        """
        if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
            call.code = "DEADLINE_EXCEEDED" if time.monotonic() >= call.progress.late_from else "CANCELLED"
            raise error
        domain_error = _to_domain_error(error, call)
        if isinstance(domain_error, DeadlineExceeded) and call.is_limit_ours:
            domain_error = _late(call)
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


def _late(call: Call) -> DeadlineExceeded:
    if call.is_limit_ours:
        return DeadlineExceeded(f"the call took longer than {call.limit_s:g} s, the most this server allows")
    return DeadlineExceeded("the caller's deadline passed")


def _late_from(call: Call) -> float:
    """From when on a call that is cancelled is so because of its deadline."""
    if call.is_limit_ours:
        return call.deadline - _TIMER_ROUNDING_S
    allowed_s = call.deadline - call.started
    slack_s = min(_LAST_MOMENT_S, _LAST_MOMENT_SHARE * allowed_s) + _DEADLINE_ROUNDING * allowed_s
    return call.deadline - slack_s


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


def _ended(call: Call, duration_s: float) -> EndedCall:
    return EndedCall(
        method=call.method,
        request_id=call.request_id,
        client=call.client.name,
        client_source=call.client.source,
        model=call.model,
        code=call.code,
        duration_s=duration_s,
        progress=call.progress,
        trace_headers=call.trace_headers,
    )


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
