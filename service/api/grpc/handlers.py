"""Handles every gRPC call: its key, its id, its deadline, its metrics, its errors as statuses.

Knows calls, not what they ask for; gives each behaviour the record of its call in place of gRPC's context.  Three
rules of grpc.aio shape it.  A handler that lets CancelledError escape while its call lives never answers.  The text of
any other exception would reach the caller as UNKNOWN.  A unary handler begins when the message is there, that of a
stream of requests begins with the headers: every method is served as such, so that a call is seen, and can be refused,
before its message is received.  gRPC answers UNKNOWN, too, when a deserialiser raises, so those here return an
`InvalidInput` instead, which becomes INVALID_ARGUMENT without the parser's own words.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NoReturn, Self, TypeAlias, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from service.api.auth import OPEN_METHODS
from service.api.grpc.status import Metadata, to_wire
from service.api.lifecycle import REQUEST_ID_KEY, WARNINGS_KEY, CallLifecycle
from service.call import Call, Identity
from service.errors import DragomanError, InvalidInput, Overloaded, Unimplemented
from service.telemetry.families import OTHER

AnyMessage = TypeVar("AnyMessage", bound=Message)
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # only the type stubs can subscript it

# Of a request that is no message: finding the text at fault is a courtesy that must stay cheap.
_MAX_BYTES_EXPLAINED = 16 << 10


def deserializer(message_type: type[AnyMessage]) -> Callable[[bytes], AnyMessage | InvalidInput]:
    """Return a function from bytes to a message, or to the error of bytes that are none."""

    def deserialize(data: bytes) -> AnyMessage | InvalidInput:
        try:
            return message_type.FromString(data)
        except DecodeError:
            return _explain(data, cast("Descriptor", message_type.DESCRIPTOR))

    return deserialize


def handlers_of(service: Any, servicer: object) -> dict[str, Handler]:
    """Return the handlers of a service's methods, by their full names.

    Args:
        service: its descriptor.
        servicer: has a method in snake case for each of them.
    """
    found = {}
    for method in service.methods:
        behaviour = getattr(servicer, re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower())
        handler = stream if method.client_streaming or method.server_streaming else _unary
        found[f"{service.full_name}/{method.name}"] = handler(behaviour, GetMessageClass(method.input_type))
    return found


def _unary(behaviour: Any, request: type[Message]) -> Handler:
    return grpc.unary_unary_rpc_method_handler(
        behaviour, request_deserializer=deserializer(request), response_serializer=_serialize
    )


def stream(behaviour: Any, request: type[Message]) -> Handler:
    """Return the handler of a method with a stream of requests and one of responses."""
    return grpc.stream_stream_rpc_method_handler(
        behaviour, request_deserializer=deserializer(request), response_serializer=_serialize
    )


def _serialize(response: Message) -> bytes:
    return response.SerializeToString()


def _explain(data: bytes, descriptor: Descriptor) -> InvalidInput:
    """Return the error of bytes that are no message; it names the first of the message's own texts that is no UTF-8."""
    counts = Counter[int]()
    for number, value in _unknown_fields(data):
        known = descriptor.fields_by_number.get(number)
        if known is None or known.type != FieldDescriptor.TYPE_STRING or not isinstance(value, bytes):
            continue
        name = f"{known.name}[{counts[number]}]" if known.is_repeated else known.name
        counts[number] += 1
        try:
            value.decode()
        except UnicodeDecodeError:
            return InvalidInput(f"{name} is not valid UTF-8", field=name)
    return InvalidInput(f"the request is not a valid {descriptor.full_name} message", field="")


def _unknown_fields(data: bytes) -> Iterator[tuple[int, object]]:
    """Yield number and value of each field, as a message without fields reads them; none of wrong bytes."""
    if len(data) <= _MAX_BYTES_EXPLAINED:
        with suppress(DecodeError):
            fields: Any = UnknownFieldSet(Empty.FromString(data))  # the type stubs do not know that it is iterable
            for field in fields:
                yield field.field_number, field.data


_STREAMS_RETRY_AFTER_S = 10.0
MAX_UNREAD, UNREAD_S = 64, 5.0  # calls that need no key and whose message is not there, and for how long
_CANCELLED_WITHIN_S = 0.05  # grpc.aio cancels the handler of a call that is gone a moment after the end of its messages

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"  # classes that only the type stubs can subscript


class OpenStreams:
    """Places for streams that last for ever and need no key: health's Watch, and reflection.

    Nobody can take the places of others.  When `limit` streams are open, connections that have less than an equal share
    of it get some more; when half as many again are, clients do, which are many connections.  Twice the limit is all.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._clients: Counter[Identity] = Counter()  # the streams of each one that has some
        self._connections: Counter[str] = Counter()

    @contextmanager
    def place(self, client: Identity, connection: str) -> Iterator[None]:
        """Hold a place for a stream of this client on this connection; raise Overloaded if there is none."""
        used = self._clients.total()
        if not (
            used < self._limit
            or (used < 1.5 * self._limit and self._is_below_share(self._connections, connection))
            or (used < 2 * self._limit and self._is_below_share(self._clients, client))
        ):
            message = f"{used} streams are open, at most {self._limit} may be"
            raise Overloaded(message, reason="streams", retry_after_s=_STREAMS_RETRY_AFTER_S)
        self._clients[client] += 1
        self._connections[connection] += 1
        try:
            yield
        finally:
            _leave(self._clients, client)
            _leave(self._connections, connection)

    def _is_below_share(self, holders: Counter[Any], holder: Hashable) -> bool:
        num_sharing = len(holders) + (holder not in holders)
        return holders[holder] + 1 <= self._limit / num_sharing


def _leave(holders: Counter[Any], holder: Hashable) -> None:
    holders[holder] -= 1
    if not holders[holder]:
        del holders[holder]


class CallHandlers(grpc.GenericRpcHandler):
    """The handlers of a server's methods, for `grpc.aio.server(handlers=...)`."""

    def __init__(
        self,
        methods: Mapping[str, Handler],
        lifecycle: CallLifecycle,
        *,
        max_request_seconds: float,
        max_watches: int,
        own_limits: Mapping[str, float] | None = None,
        work: frozenset[str] = frozenset(),
    ) -> None:
        """Wrap behaviours.

        Args:
            methods: by name, "package.Service/Method"; they take a request, or an iterator of requests, and a `Call`.
            max_watches: open streams without limits of their own, see `OpenStreams`.
            own_limits: streaming methods that bound their number and their time themselves, with the latter in seconds.
            work: methods with one request that the models work for.
        """
        self._lifecycle = lifecycle
        self._own_limits = own_limits or {}
        self._max_request_seconds = max_request_seconds
        self._work = work
        self._sending: set[asyncio.Task[Any]] = set()  # of calls that have ended: gRPC runs each call in a task
        self._open_streams = OpenStreams(max_watches)
        self._unread: dict[asyncio.Timeout, None] = {}  # calls that need no key, in the order in which they began
        self._handlers = {f"/{method}": self._wrap(handler, method) for method, handler in methods.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        """Return the method's handler; of an unknown method one that refuses the call unread."""
        path = handler_call_details.method
        return self._handlers.get(path) or grpc.stream_unary_rpc_method_handler(self._unknown(path.removeprefix("/")))

    async def answers_sent(self, within_s: float) -> None:
        """Return when the answers of all calls that have ended by now are on their way, or the time is over."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=within_s)

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
        needs_key, is_work = not method.startswith(OPEN_METHODS), method in self._work

        async def answer(_: object, context: Context) -> object:
            call, metadata = self._begin(method, self._max_request_seconds, context)
            try:
                self._lifecycle.admit(method, metadata, call, is_work=is_work)
                async with asyncio.timeout(call.limit_s):  # gRPC itself cancels a call at its caller's deadline
                    message = _message(context)
                    response = await behaviour(await (message if needs_key else self._soon(message)), call)
                warnings = ((WARNINGS_KEY, call.warnings),) if call.warnings else ()
                context.set_trailing_metadata(((REQUEST_ID_KEY, call.request_id), *warnings))
                return response
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  none may escape
                await self._fail(error, context, call)
            finally:
                self._end(call)

        return answer

    async def _soon(self, message: Awaitable[object]) -> object:
        """Return the message of a call that needs no key, or raise InvalidInput if it does not come soon.

        While it waits, a call holds one of the places that `maximum_concurrent_rpcs` counts, and strangers who send
        headers alone could take all of them.  So beyond `MAX_UNREAD` the one that has waited longest has to go: who
        means it sends the message right behind the headers, and is never the one.
        """
        try:
            async with asyncio.timeout(UNREAD_S) as waiting:
                self._unread[waiting] = None
                if len(self._unread) > MAX_UNREAD:
                    oldest = next(iter(self._unread))
                    del self._unread[oldest]
                    if not oldest.expired():  # else it is leaving by itself
                        oldest.reschedule(asyncio.get_running_loop().time())
                return await message
        except TimeoutError:
            raise InvalidInput("the call came without a message", field="") from None
        finally:
            self._unread.pop(waiting, None)

    def _unknown(self, method: str) -> Any:
        """Return the handler of a method that does not exist."""

        async def refuse(_: object, context: Context) -> None:
            call, metadata = self._begin(OTHER, self._max_request_seconds, context)
            try:
                self._lifecycle.admit(method, metadata, call, is_work=False)
                raise Unimplemented("Method not found!")
            except DragomanError as error:
                await self._fail(error, context, call)
            finally:
                self._end(call)

        return refuse

    def _stream(self, behaviour: Any, method: str) -> Any:
        limit_s, is_bounded = self._own_limits.get(method, self._max_request_seconds), method in self._own_limits

        async def answers(requests: AsyncIterator[object], context: Any) -> AsyncIterator[object]:
            call, metadata = self._begin(method, limit_s, context)
            context.add_done_callback(lambda _: call.on_gone and call.on_gone())
            try:
                self._lifecycle.admit(method, metadata, call, is_work=False)
                with nullcontext() if is_bounded else self._open_streams.place(call.caller.identity, context.peer()):
                    async for response in behaviour(_Requests(requests), call):
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

    def _begin(self, method: str, limit_s: float, context: Context) -> tuple[Call, Metadata]:
        """Make the record of a call, count it in, and return it with what the caller sent beside its request."""
        remaining: Any = context.time_remaining()  # None without a deadline; the type stubs do not know
        metadata: Any = context.invocation_metadata()
        call = self._lifecycle.begin(method, context.peer(), metadata, limit_s=limit_s, remaining_s=remaining)
        return call, metadata

    def _end(self, call: Call) -> None:
        self._lifecycle.end(call)
        if task := asyncio.current_task():  # it ends when gRPC has written the answer
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _fail(self, error: BaseException, context: Context, call: Call) -> NoReturn:
        """End the call with the status of `error`.

        By `abort`, because that sends the status alone: after headers a client does not send a call again.

        Raises:
            grpc.aio.AbortError: how grpc.aio is told to stop.
            asyncio.CancelledError: the call is gone, so there is nobody to answer.
        """
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task and task.cancelling():  # else something that it awaited
            self._lifecycle.left(call)
            raise error
        status = to_wire(self._lifecycle.fail(error, call))
        try:
            await context.abort(status.code, status.message, (*status.trailers, (REQUEST_ID_KEY, call.request_id)))
        except grpc.aio.AbortError as aborted:
            asyncio.get_running_loop().call_soon(_forget_way, aborted, error)
            raise
        raise AssertionError("abort returned")


def _forget_way(*errors: BaseException) -> None:
    """Let go of the frames that these exceptions came through, once they have arrived.

    grpc.aio keeps one in its state of the call, which the frames lead back to: a flood of refused calls would fill the
    server with cycles that only the garbage collector finds, while all calls wait.
    """
    for error in errors:
        error.__traceback__ = error.__context__ = None


class _Requests:
    """The messages of a stream, as they come; raises InvalidInput for one that is not of its type."""

    def __init__(self, received: AsyncIterator[object]) -> None:
        self._received = received

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> object:
        request = await anext(self._received)
        if isinstance(request, InvalidInput):
            raise request
        return request


async def _message(context: Any) -> object:
    """Return the only message of a unary call, or raise InvalidInput."""
    request = await context.read()
    if request is grpc.aio.EOF:
        await asyncio.sleep(_CANCELLED_WITHIN_S)
        raise InvalidInput("the call came without a message", field="")
    if isinstance(request, InvalidInput):
        raise request
    return request
