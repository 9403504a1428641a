"""What every call goes through: a key, an id, a clock, the books, and errors that become statuses.

Knows calls, not what they ask for.  Two rules of grpc.aio shape it: a handler that lets CancelledError escape while its
call lives never answers, and the text of any other exception would reach the caller as UNKNOWN.
"""

import asyncio
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import grpc
import grpc.aio

from service.api.api_keys import ApiKey
from service.api.authentication import Authenticator
from service.api.status import WireStatus, code_of, to_wire
from service.api.wire import Malformed
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
from service.telemetry.calls import CallObserver, EndedCall, Progress, follow
from service.telemetry.families import OTHER
from service.telemetry.log_limit import LogLimit
from service.telemetry.logs import bind_request, describe_error, get_logger
from service.telemetry.metrics import Metrics
from service.traffic.clients import ANYBODY, Client

REQUEST_ID_KEY = "x-request-id"
TRACE_KEYS = frozenset({"traceparent", "tracestate"})  # www.w3.org/TR/trace-context
MAX_STREAMS = 128  # open at a time: they cost little and last for ever, so that nothing else would bound them
_STREAMS_RETRY_AFTER_S = 10.0
REFUSALS_LOGGED = 10  # callers without a good key, a minute: anybody can make more of them than a disk holds
_STOPPING = "the server is stopping"
_NO_MORE = object()
_VALID_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"  # classes that only the type stubs can subscript
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


@dataclass(slots=True, eq=False)
class Call:
    """One call in progress; handlers fill in what only they know."""

    method: str  # as a label
    request_id: str
    started: float  # time.monotonic()
    deadline: float  # on the same clock: the caller's, or the server's limit if that is nearer
    is_limit_ours: bool  # the deadline is the server's limit ...
    limit_s: float  # ... which is this for its method
    client: Client = ANYBODY
    models: frozenset[str] | None = None  # the only ones that the caller's key may use; None: all
    code: str = "OK"
    progress: Progress = field(default_factory=Progress)
    _model: str = ""

    @property
    def model(self) -> str:
        """The model that answers, once it is known."""
        return self._model

    def may_use(self, model: str) -> bool:
        """Whether the caller's key is good for this model."""
        return self.models is None or model in self.models

    def use_model(self, model: str) -> None:
        """Note the model that answers.  The only way to do so: no handler can forget to ask whether the caller may.

        Raises:
            PermissionDenied: the caller may not use it.
        """
        if not self.may_use(model):
            raise PermissionDenied(f"the API key of {self.client.name} is not for the model {model}")
        self._model = model


_current_call: ContextVar[Call] = ContextVar("current_call")


def current_call() -> Call:
    """The call this task handles."""
    return _current_call.get()


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
        self.num_begun = 0  # calls, ever
        self._num_streams = 0
        self._is_holding = False
        self._ending = asyncio.Event()

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

    def hold_calls(self) -> None:
        """Answer no later call before `end_calls`: who calls again after each refusal now waits, and sends nothing."""
        self._is_holding = True

    def end_calls(self) -> None:
        """End every held call and every open stream with UNAVAILABLE: none of them would end by itself."""
        self._ending.set()

    async def _be_held(self) -> None:
        """Return unless `hold_calls` was called; then wait for `end_calls`, and raise Unavailable."""
        if self._is_holding:
            await self._ending.wait()
            raise Unavailable(_STOPPING, reason="draining")

    def _unary(self, behaviour: Any, method: str, key: ApiKey | None) -> Any:
        async def answer(request: object, context: Context) -> object:
            with self._accounted(method, context, key) as call:
                try:
                    return await self._answer_in_time(behaviour, request, context, call)
                except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  none may escape
                    self._set_status(error, context, call)
                return None  # beside a status that is not OK, grpc.aio looks at no response

        return answer

    def _stream(self, behaviour: Any, method: str, key: ApiKey | None) -> Any:
        async def answers(request: object, context: Context) -> AsyncIterator[object]:
            with self._accounted(method, context, key) as call:
                try:
                    _refuse_malformed(request)
                    await self._be_held()
                    with self._counted_stream(method):
                        async for response in self._until_ended(behaviour(request, context)):
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
        if self._num_streams >= MAX_STREAMS:
            message = f"{self._num_streams} streams are open, at most {MAX_STREAMS} may be"
            raise Overloaded(message, reason="streams", retry_after_s=_STREAMS_RETRY_AFTER_S)
        self._num_streams += 1
        try:
            yield
        finally:
            self._num_streams -= 1

    async def _until_ended(self, responses: AsyncIterator[object]) -> AsyncIterator[object]:
        """The responses; raises Unavailable at `end_calls`.  (Cancelling the call's task would not do: grpc.aio, when
        it is just sending, lets that escape, and the call would never end.)
        """
        ending = asyncio.create_task(self._ending.wait())
        try:
            while (response := await _first(anext(responses, _NO_MORE), ending)) is not _NO_MORE:
                yield response
        finally:
            ending.cancel()

    async def _answer_in_time(self, behaviour: Any, request: object, context: Context, call: Call) -> object:
        _refuse_malformed(request)
        try:
            async with asyncio.timeout(call.deadline - time.monotonic()):
                await self._be_held()
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
            duration_s = time.monotonic() - call.started
            self._metrics.call_answered(method, call.model, call.code, duration_s)
            self._tell(_ended(call, duration_s, context))

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
        client = self._authenticator.client_of(key, _metadata_of(context), context.peer())
        call = Call(method, _request_id(context), now, deadline, is_limit_ours, limit, client=client)
        call.models = key.models if key else None
        self.num_begun += 1
        context.set_trailing_metadata(((REQUEST_ID_KEY, call.request_id),))
        follow(call.progress)
        _current_call.set(call)  # never reset: gRPC runs each call in a task, and so in a context, of its own
        bind_request(call.request_id, method)
        return call

    async def _fail(self, error: BaseException, context: Context, call: Call) -> None:
        """End the stream with the status of `error` and note its code in the books.

        Raises:
            grpc.aio.AbortError: how grpc.aio is told to stop.
            asyncio.CancelledError: the call is gone, so there is nobody to answer.
        """
        status = self._status_of(error, call)
        await context.abort(status.code, status.message, (*status.trailers, (REQUEST_ID_KEY, call.request_id)))

    def _set_status(self, error: BaseException, context: Context, call: Call) -> None:
        """As `_fail`, for a call that has one response.

        Without `abort`: its exception, kept in grpc.aio's state of the call, leads back to it through the traceback. A
        flood of refused calls would fill the server with garbage that only the collector finds, while all calls wait.
        """
        status = self._status_of(error, call)
        context.set_code(status.code)
        context.set_details(status.message)
        context.set_trailing_metadata((*status.trailers, (REQUEST_ID_KEY, call.request_id)))

    def _status_of(self, error: BaseException, call: Call) -> WireStatus:
        """What the caller is told; its code is noted in the books.

        Raises:
            asyncio.CancelledError: the call is gone, so there is nobody to answer.
        """
        if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
            call.code = "DEADLINE_EXCEEDED" if time.monotonic() >= call.deadline else "CANCELLED"
            raise error
        domain_error = _to_domain_error(error, call)
        if isinstance(domain_error, DeadlineExceeded) and call.is_limit_ours:
            domain_error = _late(call)
        if isinstance(domain_error, Overloaded | Unavailable) and domain_error.reason:
            self._metrics.rejected(domain_error.reason)
        call.code = code_of(domain_error).name
        return to_wire(domain_error)


def _late(call: Call) -> DeadlineExceeded:
    if call.is_limit_ours:
        return DeadlineExceeded(f"the call took longer than {call.limit_s:g} s, the most this server allows")
    return DeadlineExceeded("the caller's deadline passed")


async def _first(response: Awaitable[object], ending: asyncio.Task[Any]) -> object:
    """The response, or Unavailable if the streams are ended first."""
    pending = asyncio.ensure_future(response)
    try:
        await asyncio.wait([pending, ending], return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            raise Unavailable(_STOPPING)
        return pending.result()
    finally:
        pending.cancel()


def _is_being_cancelled() -> bool:
    """True if gRPC cancelled this task; False if something that it awaited was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _metadata_of(call: Any) -> tuple[tuple[str, str | bytes], ...]:
    """What the caller sent beside its request; `call` is grpc.aio's context or its details for interceptors."""
    metadata = call.invocation_metadata
    return tuple((metadata() if callable(metadata) else metadata) or ())


def _request_id(context: Context) -> str:
    """The caller's id if it sent a reasonable one, else a new one."""
    for key, value in _metadata_of(context):
        if key == REQUEST_ID_KEY and isinstance(value, str) and _VALID_REQUEST_ID.fullmatch(value):
            return value
    return uuid.uuid4().hex


def _ended(call: Call, duration_s: float, context: Context) -> EndedCall:
    return EndedCall(
        method=call.method,
        request_id=call.request_id,
        client=call.client.name,
        model=call.model,
        code=call.code,
        duration_s=duration_s,
        progress=call.progress,
        trace_headers={
            key: value
            for key, value in context.invocation_metadata() or ()
            if key in TRACE_KEYS and isinstance(value, str)
        },
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
