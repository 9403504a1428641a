"""Named methods that two processes call in each other, in four frames over a socket.

    Request  calls a method; its result or its error comes back in a Reply
    Cancel   ends the work for a request whose reply nobody awaits any more
    Event    calls a method that returns nothing

A method is named by itself: `await peer.call(ServerStatus.card_of, "en-de")` runs `card_of` of the object that the
other process serves as its `ServerStatus`.  Frames arrive in the order in which they were sent.  Engines have no
methods; they send and receive records in frames of the same kind (`FrameChannel`).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from inspect import isfunction
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, TypeVarTuple, cast

from service.child_process import FRAME_HEADER_BYTES, frame_length, from_payload, to_frame
from service.errors import DragomanError
from service.telemetry.logs import describe_error, get_logger


class FrameChannel(asyncio.Protocol):
    """One end of a socket: sends records, and receives them, one at a time or with a function that takes each."""

    def __init__(self) -> None:
        self.num_received = 0  # records, so far
        self._transport: asyncio.Transport | None = None
        self._rest = bytearray()  # of a record that is not complete
        self._records: deque[object] = deque()  # that nobody has taken
        self._take: Callable[[Any], None] | None = None
        self._error: Exception | None = None
        self._has_ended = False
        self._news = asyncio.Event()

    def send(self, record: object) -> None:
        """Send a record; what the other side cannot take in is lost with it.

        uvloop writes what is sent in one turn of the loop at once, so that the other side wakes up once.
        """
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(to_frame(record))

    async def read(self) -> object | None:
        """Return the next record, None at the end; raise what unpickling raised if it is none."""
        while not self._records and not self._has_ended:
            self._news.clear()
            await self._news.wait()
        if self._records:
            return self._records.popleft()
        if self._error is not None:
            raise self._error
        return None

    async def hand_on(self, take: Callable[[Any], None]) -> None:
        """Give each record to `take` as soon as it is there, until the end; raise what `take` raised, which ends it."""
        while self._records and not self._has_ended:
            self._give(take, self._records.popleft())
        self._take = take
        while not self._has_ended:
            self._news.clear()
            await self._news.wait()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Close the socket; what was sent still goes out."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        received: bytes | bytearray = data
        if self._rest:
            self._rest += data
            received = self._rest
        begin = 0
        while not self._has_ended and len(received) - begin >= FRAME_HEADER_BYTES:
            payload = begin + FRAME_HEADER_BYTES
            end = payload + frame_length(bytes(received[begin:payload]))
            if end > len(received):
                break
            self._receive(bytes(received[payload:end]))
            begin = end
        if received is self._rest:
            del self._rest[:begin]
        else:
            self._rest += received[begin:]

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(None)

    def _receive(self, payload: bytes) -> None:
        try:
            record = from_payload(payload)
        except Exception as error:  # noqa: BLE001 - whatever bytes make of it: `read` raises it
            self._end(error)
            return
        self.num_received += 1
        if self._take is not None:
            self._give(self._take, record)
        else:
            self._records.append(record)
            self._news.set()

    def _give(self, take: Callable[[Any], None], record: object) -> None:
        try:
            take(record)
        except Exception as error:  # noqa: BLE001 - `hand_on` raises it
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        self._error = self._error or error
        self._has_ended = True
        self._news.set()


_Interface = TypeVar("_Interface")
_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")


class Request(NamedTuple):
    """Call a method."""

    number: int  # among the requests of this process
    method: str  # "Interface.name"
    arguments: tuple[Any, ...]


class Reply(NamedTuple):
    """What the method of a request has returned or raised."""

    number: int
    result: object
    error: Exception | None


class Cancel(NamedTuple):
    """End the work for this request: nobody awaits its reply any more."""

    number: int


class Event(NamedTuple):
    """Call a method, and send no reply."""

    method: str
    arguments: tuple[Any, ...]


class MethodFailed(Exception):
    """A method has raised what it should not have; the log of its process has the error."""


class PeerLost(Exception):
    """The other process is gone, or was never there."""


class Peer:
    """The other process: its methods are called with `call` and `tell`, and `take` lets it call the ones here."""

    def __init__(self, send: Callable[[object], None] | None = None) -> None:
        """Speak through `send`, which sends a frame; None: there is no process."""
        self._send = send
        self._methods: dict[str, Callable[..., Any]] = {}  # that are served
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}  # for replies
        self._running: dict[int, asyncio.Task[None]] = {}  # for requests of the other process

    def serve(self, objects: Mapping[type, object]) -> None:
        """Let the other process call the methods of these objects, by their classes or protocols."""
        self._methods |= {
            method.__qualname__: getattr(one, name)
            for interface, one in objects.items()
            for name, method in _methods_of(interface)
        }

    def call(
        self, method: Callable[[Any, *_Arguments], Awaitable[_Result]], *arguments: *_Arguments
    ) -> "asyncio.Future[_Result]":
        """Call a method of the other process now; cancelling the future cancels it there.

        Returns:
            A future of what the method returns.  It raises DragomanError as the method did, MethodFailed where that
            has raised anything else, and PeerLost.
        """
        reply: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        if self._send is None:
            reply.set_exception(PeerLost())
            return reply
        number = next(self._numbers)
        self._waiting[number] = reply
        reply.add_done_callback(partial(self._settle, number))
        self._send(Request(number, method.__qualname__, arguments))
        return reply

    def remote(self, interface: type[_Interface]) -> _Interface:
        """Return an object with the methods of this interface, each of which is called in the other process."""
        methods = {name: partial(self.call, method) for name, method in _methods_of(interface)}
        return cast("_Interface", SimpleNamespace(**methods))

    def tell(self, method: Callable[[Any, *_Arguments], None], *arguments: *_Arguments) -> None:
        """Call a method of the other process, if there is one; what it raises ends that process."""
        if self._send is not None:
            self._send(Event(method.__qualname__, arguments))

    def take(self, frame: object) -> None:
        """Do what a frame of the other process says; raises what the method of an event raises."""
        match frame:
            case Reply(number, result, error):
                reply = self._waiting.get(number)
                if reply is None or reply.done():
                    return
                if error is None:
                    reply.set_result(result)
                else:
                    reply.set_exception(error)
            case Request(number):
                task = asyncio.create_task(self._answer(frame))
                self._running[number] = task
                task.add_done_callback(lambda _: self._running.pop(number, None))
            case Event(method, arguments):
                self._methods[method](*arguments)
            case Cancel(number):
                if number in self._running:
                    self._running[number].cancel()

    def close(self) -> None:
        """The process is gone: cancel what runs for it, and fail what waits for it."""
        self._send = None
        for task in self._running.values():
            task.cancel()
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(PeerLost())

    async def _answer(self, request: Request) -> None:
        result: object = None
        failure: Exception | None = None
        try:
            result = await self._methods[request.method](*request.arguments)
        except DragomanError as error:
            error.__traceback__ = None  # its frames lead back to it
            failure = error
        except Exception as error:  # noqa: BLE001 - whatever it is, the other process waits for a reply
            get_logger().error("request_failed", asked=request.method, **describe_error(error))
            failure = MethodFailed(request.method)
        if self._send is not None:
            self._send(Reply(request.number, result, failure))

    def _settle(self, number: int, reply: "asyncio.Future[Any]") -> None:
        del self._waiting[number]
        if reply.cancelled() and self._send is not None:
            self._send(Cancel(number))


def _methods_of(interface: type) -> list[tuple[str, Any]]:
    return [(name, one) for name, one in vars(interface).items() if isfunction(one) and not name.startswith("_")]
