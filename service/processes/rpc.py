"""Named methods that two processes call in each other, in four frames over a channel.

    Request  call a method; its result or its error comes back in a Reply
    Cancel   nobody waits for that reply any more: end what is under way for it
    Event    call a method from which nothing comes back

A method is named by itself: `await peer.call(ServerStatus.card_of, "en-de")` runs `card_of` of the object that the
other process serves as its `ServerStatus`.  Frames arrive in the order in which they were sent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from inspect import isfunction
from itertools import count
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

from service.errors import DragomanError
from service.telemetry.logs import describe_error, get_logger

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
    """Nobody waits for the reply to this request any more."""

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
            for name, method in vars(interface).items()
            if isfunction(method) and not name.startswith("_")
        }

    @property
    def is_there(self) -> bool:
        """Whether there is a process."""
        return self._send is not None

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
