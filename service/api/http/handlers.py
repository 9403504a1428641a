"""Handles every HTTP request that is a call: its lifecycle, its body, its errors as statuses.

The operations (`operations.py`) say what is answered.

    authorization         Bearer KEY; dialects may take the key from a field, too
    x-request-id          the caller's name for the request; every answer has it, and the log
    x-request-timeout-ms  the caller's deadline, from the moment when the headers are there
    x-priority            interactive or batch
"""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from service.api.auth import AUTHORIZATION, KEY_HEADERS
from service.api.http.fields import read_fields
from service.api.http.operations import Behaviour, HttpRequest, Operation, operations_of
from service.api.lifecycle import REQUEST_ID_KEY, WARNINGS_KEY, CallLifecycle
from service.call import Call
from service.config import LimitsConfig
from service.errors import DeadlineExceeded, InvalidInput, Overloaded, Unavailable
from service.records import Priority

TIMEOUT_KEY, PRIORITY_KEY = "x-request-timeout-ms", "x-priority"
_MAX_TIMEOUT_MS = 86_400_000
_PIECE_BYTES = 64 << 10  # a reader is slow if it does not take so much in time, however long the answer is
LARGE_FILES = 4  # of the largest size that are held at a time
_FILES_RETRY_S = 5.0
_PRIORITIES = {priority.label: priority for priority in Priority}

Metadata: TypeAlias = Sequence[tuple[str, str]]


class HttpCalls:
    """Takes calls over HTTP; refuses them all until `refusal` is set to None."""

    def __init__(self, lifecycle: CallLifecycle, limits: LimitsConfig) -> None:
        """Begin with no call."""
        self.refusal: Unavailable | None = Unavailable("the server is starting", reason="starting")
        self._lifecycle = lifecycle
        self._limits = limits
        self._max_file_bytes = max(limits.max_document_bytes, limits.max_message_bytes)
        self._file_bytes = 0  # of large bodies that are held
        self._running: set[asyncio.Task[Any]] = set()

    def routes(self, service: object) -> list[Route]:
        """Return the routes to the operations of a service."""
        return [
            Route(one.path, _Endpoint(self, one, behaviour), methods=list(one.verbs), max_body_size=sys.maxsize)
            for one, behaviour in operations_of(service)  # `_body_of` has the limits of bodies
        ]

    async def all_left(self) -> None:
        """Return when every call has been answered."""
        while self._running:
            await asyncio.wait(self._running)

    def work_on(self, call: Call, method: str, work: Callable[[Call], Coroutine[Any, Any, None]]) -> None:
        """Begin work that goes on after the answer to a call, as a call of its own with the limits of files.

        Args:
            work: gets the record of that call; its errors are in the metrics only.
        """
        task = asyncio.create_task(self._work(call, method, work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _work(self, call: Call, method: str, work: Callable[[Call], Coroutine[Any, Any, None]]) -> None:
        own = self._lifecycle.begin_after(call, method, limit_s=self._limits.max_document_seconds)
        try:
            async with asyncio.timeout(self._limits.max_document_seconds):
                await work(own)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - nobody waits for it: it is in the metrics
            self._lifecycle.fail(error, own)
        finally:
            self._lifecycle.end(own)

    async def answer(self, operation: Operation, behaviour: Behaviour, request: Request, send: Send) -> None:
        """Answer a request, and account for its call."""
        metadata = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.scope["headers"]]
        limit_s = self._limits.max_document_seconds if operation.takes_files else self._limits.max_request_seconds
        call = self._lifecycle.begin(operation.label, peer_of(request), metadata, limit_s=limit_s)
        sender = _Sender(send, call, before_end=partial(self._lifecycle.end, call))
        task = asyncio.current_task()
        assert task
        self._running.add(task)
        try:
            async with self._room_for(operation, request) as max_bytes:
                asked = await self._admit(operation, request, metadata, call, max_bytes)
                async with _while_waited_for(request.receive, call, sender):
                    response = await behaviour(asked, call)
                    await response(request.scope, request.receive, sender)
        except ClientDisconnect:
            self._lifecycle.left(call)
        except HTTPException as error:  # the body is too large
            call.code = Overloaded.code
            refusal = operation.dialect.error(error.detail, error.status_code)
            await refusal(request.scope, request.receive, sender)
        except (Exception, asyncio.CancelledError) as error:
            refusal = operation.dialect.answer_to(self._lifecycle.fail(error, call))
            if sender.has_started:
                raise  # what has been sent has no end, and the connection ends
            await refusal(request.scope, request.receive, sender)
        finally:
            self._running.discard(task)
            if not sender.is_complete:
                self._lifecycle.end(call)

    @asynccontextmanager
    async def _room_for(self, operation: Operation, request: Request) -> AsyncGenerator[int]:
        """Yield how many bytes the body may have; bodies with large files share the memory that there is for them.

        One that is refused is read all the same, as far as that is bearable, or its sender would not see the answer.
        """
        length = int(request.headers.get("content-length", 0))
        is_large = operation.takes_files and length > self._limits.max_message_bytes
        held = length if is_large and length <= self._max_file_bytes else 0
        if is_large and length <= LARGE_FILES * self._max_file_bytes and not held:
            await _throw_away(request)
        if self._file_bytes + held > LARGE_FILES * self._max_file_bytes:
            await _throw_away(request)
            message = (
                f"{self._file_bytes:,} bytes of large files are being translated and the request has {held:,}, "
                f"at most {LARGE_FILES * self._max_file_bytes:,} are accepted"
            )
            raise Overloaded(message, reason="files", retry_after_s=_FILES_RETRY_S)
        self._file_bytes += held
        try:
            yield self._max_file_bytes if is_large else self._limits.max_message_bytes
        finally:
            self._file_bytes -= held

    async def _admit(
        self, operation: Operation, request: Request, metadata: Metadata, call: Call, max_bytes: int
    ) -> HttpRequest:
        """Return what is asked, by a caller who may ask.

        A body that is not too large is read before anything is refused: a connection that ends with something unread in
        it is reset, and its peer never sees the answer.  It is parsed after everything that can be refused unread.
        """
        try:
            async with asyncio.timeout(self._limits.max_request_seconds):
                body = await _body_of(request, max_bytes)
        except TimeoutError:
            raise DeadlineExceeded(
                f"the request did not arrive within {self._limits.max_request_seconds:g} s"
            ) from None
        if self.refusal is not None:
            raise self.refusal
        timeout_s, priority = _timeout_s(metadata), _priority(metadata)
        if timeout_s is not None and call.started + timeout_s < call.deadline:
            call.deadline, call.limit_s = call.started + timeout_s, None
        key_field = operation.dialect.key_field
        is_key_in_field = bool(key_field) and all(name not in KEY_HEADERS for name, _ in metadata)
        if not is_key_in_field:
            self._let_in(operation, metadata, call)
        fields = await read_fields(request, body)
        if is_key_in_field:
            key = fields.get(key_field)
            self._let_in(operation, [*metadata, (AUTHORIZATION, f"Bearer {key}")] if key else metadata, call)
        return HttpRequest(fields=fields, priority=priority, request=request)

    def _let_in(self, operation: Operation, metadata: Metadata, call: Call) -> None:
        is_work, needs_key = operation.is_work, operation.needs_key
        self._lifecycle.admit(operation.label, metadata, call, is_work=is_work, needs_key=needs_key)


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """An ASGI application that answers the requests of one route."""

    calls: HttpCalls
    operation: Operation
    behaviour: Behaviour

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.calls.answer(self.operation, self.behaviour, Request(scope, receive), send)


class _Sender:
    """Sends an answer with the id of its request, in pieces that a slow reader can take one by one."""

    def __init__(self, send: Send, call: Call, before_end: Callable[[], None]) -> None:
        """Send with `send`; `before_end` is called before the last piece leaves: who has the answer is counted."""
        self.has_started = self.is_complete = False
        self._send = send
        self._call = call
        self._before_end = before_end

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            headers = [*message.get("headers", ()), (REQUEST_ID_KEY.encode(), self._call.request_id.encode())]
            if self._call.warnings:
                headers.append((WARNINGS_KEY.encode(), self._call.warnings.encode()))
            await self._send({**message, "headers": headers})
            return
        body, has_more = message.get("body", b""), message.get("more_body", False)
        last = max(0, len(body) - 1) // _PIECE_BYTES * _PIECE_BYTES
        for first in range(0, last, _PIECE_BYTES):
            piece = body[first : first + _PIECE_BYTES]
            await self._send({"type": message["type"], "body": piece, "more_body": True})
        if not has_more:
            self.is_complete = True
            self._before_end()
        await self._send({"type": message["type"], "body": body[last:], "more_body": has_more})


@asynccontextmanager
async def _while_waited_for(receive: Receive, call: Call, sender: _Sender) -> AsyncGenerator[None]:
    """Cancel the block at the deadline (DeadlineExceeded), or when the caller has left (ClientDisconnect)."""
    has_left = False

    async def watch(limit: asyncio.Timeout) -> None:
        nonlocal has_left
        while (await receive())["type"] != "http.disconnect":
            pass
        if not (sender.is_complete or limit.expired()):  # once it is complete, uvicorn says so, too
            has_left = True
            limit.reschedule(0.0)

    limit = asyncio.timeout(call.deadline - time.monotonic())
    watching = asyncio.create_task(watch(limit))
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise (ClientDisconnect() if has_left else DeadlineExceeded("the deadline passed")) from None
    finally:
        watching.cancel()


async def _body_of(request: Request, max_bytes: int) -> bytes:
    """Return the body; raises HTTPException if it is too large, which each dialect says in its own words."""
    refusal = HTTPException(413, f"the body is too large, at most {max_bytes} bytes are accepted")
    if int(request.headers.get("content-length", 0)) > max_bytes:
        raise refusal
    pieces, num_bytes = [], 0
    async for piece in request.stream():
        pieces.append(piece)
        num_bytes += len(piece)
        if num_bytes > max_bytes:
            raise refusal
    return b"".join(pieces)


async def _throw_away(request: Request) -> None:
    """Read a body piece by piece and drop it."""
    async for _ in request.stream():
        pass


def peer_of(request: Request) -> str:
    """Return gRPC's name of the other end."""
    if request.client is None:
        return "unix:"
    host, port = request.client
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _timeout_s(metadata: Metadata) -> float | None:
    """Return the time that the caller gives, None if it gives no limit; raises InvalidInput."""
    given = next((value for name, value in metadata if name == TIMEOUT_KEY), None)
    if given is None:
        return None
    if not (given.isascii() and given.isdecimal() and 0 < int(given[:9]) <= _MAX_TIMEOUT_MS and len(given) < 10):
        message = (
            f"{TIMEOUT_KEY} is {given[:20]!a}: a whole number of milliseconds is needed, at most {_MAX_TIMEOUT_MS:,}"
        )
        raise InvalidInput(message, field=TIMEOUT_KEY)
    return int(given) / 1e3


def _priority(metadata: Metadata) -> Priority | None:
    """Return the priority that the caller asks for, None if it asks for none; raises InvalidInput."""
    given = next((value for name, value in metadata if name == PRIORITY_KEY), None)
    if given is not None and given not in _PRIORITIES:
        message = f"{PRIORITY_KEY} is {given[:20]!a}: it can be {' or '.join(_PRIORITIES)}"
        raise InvalidInput(message, field=PRIORITY_KEY)
    return None if given is None else _PRIORITIES[given]
