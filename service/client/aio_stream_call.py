"""One `translate_stream` of the asyncio client.

A task reads the caller's texts, one sends them, the caller's own receives the answers; they meet in `Unanswered`.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio

from protos import translation_pb2 as pb
from service.client.failures import times_cancelled
from service.client.texts import checked_async, require_several
from service.client.unanswered import Unanswered, too_late
from service.errors import DragomanError, Unavailable
from service.grpc.replies import to_stream_texts, to_translation
from service.records import Translation

# What grpc.aio makes of the status when a write is the first to notice that the call has ended.
_FOUND_ENDED = "Internal error from Core"
_CLOSED = "the client was closed before everything was answered"

OpenStream = Callable[[], Any]


class AsyncStreamCall:
    """Texts in, numbered translations out; for one caller, once."""

    def __init__(
        self,
        open_stream: OpenStream,
        settings: pb.StreamSettings,
        texts: Iterable[str] | AsyncIterable[str],
        unanswered: Unanswered,
        *,
        to_error: Callable[[Any], DragomanError],
        deadline: float | None,
    ) -> None:
        """As `StreamCall`."""
        require_several(texts)
        self._open_stream = open_stream
        self._settings = settings
        self._texts = texts
        self._unanswered = unanswered
        self._to_error = to_error
        self._deadline = deadline
        self._for_taker, self._for_sender = asyncio.Event(), asyncio.Event()
        self._call: Any = None

    async def answers(self) -> AsyncGenerator[tuple[int, Translation], None]:
        """As `StreamCall.answers`."""
        taker = asyncio.create_task(self._take_all())
        taker.add_done_callback(self._end_with_texts)
        try:
            while not self._unanswered.is_done:
                async for answer in self._connected(taker):
                    yield answer
                if _has_failed(taker):
                    await taker
        finally:
            taker.cancel()
            await asyncio.gather(taker, return_exceptions=True)

    async def _connected(self, taker: asyncio.Task[None]) -> AsyncIterator[tuple[int, Translation]]:
        """The answers that come over one connection; when it is lost, the pause before the next."""
        cancelled_before = times_cancelled()
        self._call = self._open()
        sender = asyncio.create_task(self._send(self._call))
        try:
            async for response in self._call:
                for item in response.translations:
                    answer = self._answered(item)
                    if answer is not None:
                        yield item.id, answer
            error: DragomanError = Unavailable("the server ended the stream before everything was answered")
        except grpc.RpcError as failure:
            error = self._lost(failure)
            error.__cause__ = failure
        except asyncio.CancelledError as ended:  # also how a call ends that a failed text or the client has cancelled
            if times_cancelled() > cancelled_before:
                raise
            if not _has_failed(taker):
                raise Unavailable(_CLOSED) from ended
        finally:
            sender.cancel()
            self._call.cancel()  # does nothing to one that has ended
        if not self._unanswered.is_done and not _has_failed(taker):
            await self._sleep(self._unanswered.lost(error, time.monotonic()), error, taker)

    def _open(self) -> Any:
        try:
            return self._open_stream()
        except (ValueError, grpc.aio.UsageError) as error:
            raise Unavailable(_CLOSED) from error

    def _lost(self, failure: Any) -> DragomanError:
        if failure.code() is grpc.StatusCode.INTERNAL and failure.details() == _FOUND_ENDED:
            return Unavailable("the stream ended while a text was being sent")  # the next one says why
        return self._to_error(failure)

    def _answered(self, item: pb.StreamTranslation) -> Translation | None:
        answer = self._unanswered.answered(item.id, to_translation(item.translation), time.monotonic())
        self._for_taker.set()
        self._for_sender.set()
        return answer

    async def _sleep(self, pause_s: float, error: DragomanError, taker: asyncio.Task[None]) -> None:
        """Wait after this error, unless the caller's texts or the deadline end it first."""
        if self._deadline is not None and time.monotonic() + pause_s >= self._deadline:
            raise too_late(error) from error
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                while not _has_failed(taker):
                    self._for_sender.clear()
                    await self._for_sender.wait()

    async def _send(self, call: Any) -> None:
        """Send over one connection until it ends, or all is answered."""
        with suppress(grpc.RpcError, asyncio.InvalidStateError):  # who receives sees why
            await call.write(pb.TranslateStreamRequest(settings=self._settings))
            while not self._unanswered.is_done:
                self._for_sender.clear()
                if message := self._unanswered.next_message(time.monotonic()):
                    await call.write(to_stream_texts(message))
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._unanswered.pause_s(time.monotonic())):
                        await self._for_sender.wait()
            await call.done_writing()

    async def _take_all(self) -> None:
        """Read the caller's texts as there is room for them."""
        texts = checked_async(self._texts)
        while await self._has_room():
            text = await anext(texts, None)  # None is the end alone: it is no text, which `checked_async` refuses
            if text is None:
                self._unanswered.close()
                return
            self._unanswered.take(text)
            self._for_sender.set()

    async def _has_room(self) -> bool:
        """True as soon as there is room for a text."""
        while not self._unanswered.has_room:
            self._for_taker.clear()
            await self._for_taker.wait()
        return True

    def _end_with_texts(self, taker: asyncio.Task[None]) -> None:
        """The texts have ended, or have failed."""
        self._for_sender.set()
        if _has_failed(taker) and self._call is not None:
            self._call.cancel()


def _has_failed(taker: asyncio.Task[None]) -> bool:
    return taker.done() and not taker.cancelled() and taker.exception() is not None
