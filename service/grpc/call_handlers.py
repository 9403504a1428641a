"""What every call goes through: a key, an id, a clock, the metrics, and errors that become statuses.

Knows calls, not what they ask for; hands each behaviour the record of its call in the place of gRPC's context.  Three
rules of grpc.aio shape it.  A handler that lets CancelledError escape while its call lives never answers.  The text of
any other exception would reach the caller as UNKNOWN.  A unary handler begins when the message is there, that of a
stream of requests begins with the headers: every method is served as such, so that a call is seen, and can be refused,
before its message is received.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio

from service.errors import (
    DeadlineExceeded,
    DragomanError,
    InternalError,
    InvalidInput,
    Overloaded,
    Unavailable,
    Unimplemented,
)
from service.grpc.authentication import Authenticator
from service.grpc.status import Metadata, WireStatus, code_of, to_wire
from service.grpc.wire import Malformed
from service.records import Call, Caller
from service.telemetry.families import OTHER
from service.telemetry.logs import LogLimit, current_call, describe_error, get_logger
from service.telemetry.metrics import Metrics
from service.telemetry.observers import CallObserver, SlowCalls

REQUEST_ID_KEY = "x-request-id"
TRACE_KEYS = frozenset({"traceparent", "tracestate"})  # www.w3.org/TR/trace-context
# Open streams without limits of their own (health's Watch, reflection): they last for ever, nothing else bounds them.
MAX_WATCHES = 128
_STREAMS_RETRY_AFTER_S = 10.0
REFUSALS_LOGGED = 10  # callers without a good key, a minute: anybody can make more of them than a disk holds
_STOPPING = "the server is stopping"
_CANCELLED_WITHIN_S = 0.05  # grpc.aio cancels the handler of a call that is gone a moment after the end of its messages
_VALID_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"  # classes that only the type stubs can subscript
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Refuse: TypeAlias = Callable[[Caller, float], DragomanError | None]  # with the deadline as time.monotonic()

_random = Random()


class CallHandlers(grpc.GenericRpcHandler):
    """The handlers of a server's methods, for `grpc.aio.server(handlers=...)`."""

    def __init__(
        self,
        methods: Mapping[str, Handler],
        metrics: Metrics,
        *,
        max_request_seconds: float,
        own_limits: Mapping[str, float] | None = None,
        authenticator: Authenticator | None = None,
        refuse: Refuse | None = None,
        refusable: frozenset[str] = frozenset(),
        observers: Sequence[CallObserver] = (),
        slow_calls: SlowCalls | None = None,
    ) -> None:
        """Wrap behaviours.

        Args:
            methods: by name, "package.Service/Method"; they take a request, or an iterator of requests, and a `Call`.
            own_limits: streaming methods that bound their number and their time themselves, with the latter in seconds.
            authenticator: None for one that lets everybody call.
            refuse: asked before the message of a call is received; None, or why this caller's call is refused.
            refusable: methods whose calls `refuse` is asked about.
            observers: told of each call that has ended, after it was counted.
            slow_calls: logs calls that took too long; None: nobody asks.
        """
        self.calls: set[Call] = set()  # in progress
        self._observers = observers
        self._slow_calls = slow_calls
        self._metrics = metrics
        self._own_limits = own_limits or {}
        self._max_request_seconds = max_request_seconds
        self._authenticator = authenticator or Authenticator()
        self._refuse = refuse
        self._refusable = refusable
        self._refusals = LogLimit(max_lines=REFUSALS_LOGGED, period_s=60.0)
        self._sending: set[asyncio.Task[Any]] = set()  # of calls that have ended: gRPC runs each call in a task
        self._num_streams = 0
        self._handlers = {f"/{method}": self._wrap(handler, method) for method, handler in methods.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        """Return the method's handler; of an unknown method one that refuses the call unread."""
        path = handler_call_details.method
        return self._handlers.get(path) or grpc.stream_unary_rpc_method_handler(self._unknown(path.removeprefix("/")))

    async def answers_sent(self, within_s: float) -> None:
        """Return when the answers of all calls that have ended by now are on their way, or the time is over."""
        if self._sending:
            await asyncio.wait(tuple(self._sending), timeout=within_s)

    def _wrap(self, handler: Handler, method: str) -> Handler:
        coders = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.unary_unary:
            return grpc.stream_unary_rpc_method_handler(self._unary(handler.unary_unary, method), **coders)
        assert handler.stream_stream, f"{method} has a kind of handler that nothing here serves"
        return grpc.stream_stream_rpc_method_handler(self._stream(handler.stream_stream, method), **coders)

    def _unary(self, behaviour: Any, method: str) -> Any:
        limit_s = self._limit_s(method)
        refuse = self._refuse if method in self._refusable else None

        async def answer(_: object, context: Context) -> object:
            call, metadata = self._begin(method, limit_s, context)
            try:
                self._authenticate(method, metadata, call)
                if refuse is not None:
                    _raise_if(refuse(call.caller, call.deadline))
                if call.limit_s is None:  # gRPC itself cancels a call at its caller's deadline
                    response = await behaviour(await _message(context), call)
                else:
                    try:
                        async with asyncio.timeout(call.limit_s):
                            response = await behaviour(await _message(context), call)
                    except TimeoutError:
                        raise DeadlineExceeded("the server's limit passed") from None
                context.set_trailing_metadata(((REQUEST_ID_KEY, call.request_id),))
                return response
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  none may escape
                await self._fail(error, context, call)
            finally:
                self._end(call)

        return answer

    def _unknown(self, method: str) -> Any:
        """Return the handler of a method that does not exist."""

        async def refuse(_: object, context: Context) -> None:
            call, metadata = self._begin(OTHER, self._max_request_seconds, context)
            try:
                self._authenticate(method, metadata, call)
                raise Unimplemented("Method not found!")
            except DragomanError as error:
                await self._fail(error, context, call)
            finally:
                self._end(call)

        return refuse

    def _stream(self, behaviour: Any, method: str) -> Any:
        limit_s = self._limit_s(method)

        async def answers(requests: object, context: Any) -> AsyncIterator[object]:
            call, metadata = self._begin(method, limit_s, context)
            context.add_done_callback(lambda _: call.on_gone and call.on_gone())
            try:
                self._authenticate(method, metadata, call)
                with self._counted_stream(method):
                    async for response in behaviour(requests, call):
                        yield response
                context.set_trailing_metadata(((REQUEST_ID_KEY, call.request_id),))
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  none may escape
                await self._fail(error, context, call)
            except GeneratorExit:  # the caller left while a response was on its way
                call.code = "CANCELLED"
                raise
            finally:
                self._end(call)

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

    def _limit_s(self, method: str) -> float:
        return self._own_limits.get(method, self._max_request_seconds)

    def _begin(self, method: str, limit_s: float, context: Context) -> tuple[Call, Metadata]:
        """Make the record of a call, count it in, and return it with what the caller sent beside its request."""
        now = time.monotonic()
        remaining: Any = context.time_remaining()  # None without a deadline; the type stubs do not know
        is_limit_ours = remaining is None or remaining > limit_s
        metadata: Any = context.invocation_metadata()
        call = Call(
            method=method,
            request_id=_request_id(metadata),
            caller=self._authenticator.caller_at(context.peer(), metadata),
            trace_headers=_trace_headers(metadata) if self._observers else {},
            started=now,
            deadline=now + (limit_s if is_limit_ours else remaining),
            limit_s=limit_s if is_limit_ours else None,
        )
        current_call.set(call)
        self._metrics.call_received(method)
        self.calls.add(call)
        return call, metadata

    def _authenticate(self, method: str, metadata: Metadata, call: Call) -> None:
        """Note whose key the call is made with; raises as `Authenticator.authenticate`."""
        try:
            key = self._authenticator.authenticate(method, metadata)
        except DragomanError as error:
            left_out = self._refusals.take()
            if left_out is not None:
                event = {"code": code_of(error).name, "reason": str(error), "client": call.caller.name}
                get_logger().warning("call_refused", **event, left_out=left_out)
            raise
        if key is not None:
            call.caller, call.models = key.caller, key.models

    def _end(self, call: Call) -> None:
        self.calls.discard(call)
        if task := asyncio.current_task():  # it ends when gRPC has written the answer
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        call.duration_s = time.monotonic() - call.started
        priority = call.priority.label if call.priority is not None else ""
        model = OTHER if call.has_several_models else call.model
        self._metrics.call_answered(call.method, model, call.code, call.duration_s, priority=priority)
        observers = self._observers
        if self._slow_calls is not None and call.duration_s > self._slow_calls.threshold_s:
            observers = (*observers, self._slow_calls.log)
        for observer in observers:
            try:
                observer(call)
            except Exception as error:  # noqa: BLE001 - who only looks on must not disturb the call
                get_logger().error("observer_failed", **describe_error(error))

    async def _fail(self, error: BaseException, context: Context, call: Call) -> NoReturn:
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
            asyncio.get_running_loop().call_soon(_forget_way, aborted, error)
            raise
        raise AssertionError("abort returned")

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
        status = to_wire(domain_error)
        call.code = status.code.name
        return status


def _forget_way(*errors: BaseException) -> None:
    """Let go of the frames that these exceptions came through, once they have arrived.

    grpc.aio keeps one in its state of the call, which the frames lead back to: a flood of refused calls would fill the
    server with cycles that only the garbage collector finds, while all calls wait.
    """
    for error in errors:
        error.__traceback__ = error.__context__ = None


def _is_being_cancelled() -> bool:
    """True if gRPC cancelled this task; False if something that it awaited was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _raise_if(error: DragomanError | None) -> None:
    if error is not None:
        raise error


async def _message(context: Any) -> object:
    """Return the only message of a unary call, or raise InvalidInput."""
    request = await context.read()
    if request is grpc.aio.EOF:
        await asyncio.sleep(_CANCELLED_WITHIN_S)
        raise InvalidInput("the call came without a message", field="")
    if isinstance(request, Malformed):
        raise InvalidInput(request.message, field=request.field)
    return request


def _request_id(metadata: Metadata) -> str:
    """The caller's id if it sent a reasonable one, else a new one."""
    for key, value in metadata:
        if key == REQUEST_ID_KEY and isinstance(value, str) and _VALID_REQUEST_ID.fullmatch(value):
            return value
    return f"{_random.getrandbits(128):032x}"


def _trace_headers(metadata: Metadata) -> dict[str, str]:
    return {key: value for key, value in metadata if key in TRACE_KEYS and isinstance(value, str)}


def _to_domain_error(error: BaseException, call: Call) -> DragomanError:
    if isinstance(error, DragomanError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return Unavailable(_STOPPING)
    get_logger().error("call_failed", **describe_error(error))
    return InternalError(f"internal error; the server's log has it under request id {call.request_id}")
