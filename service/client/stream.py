"""One `translate_stream`: a reader takes the caller's texts, a task sends them, the caller receives the answers.

All three meet in `Unanswered`, on the event loop.  The reader of the asyncio client is a task, that of the blocking
client a thread; neither takes more texts than `max_stream_texts` ahead of the answers.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import grpc
import grpc.aio

from protos import translation_pb2 as pb
from service.client.failures import domain_error, times_cancelled
from service.client.messages import decode_translation, encode_stream_texts
from service.client.texts import Unanswered, checked, checked_async, too_late
from service.errors import DragomanError, InternalError, Unavailable
from service.records import Translation

# What grpc.aio makes of the status when a write is the first to notice that the call has ended.
_FOUND_ENDED = "Internal error from Core"
_CLOSED = "the client was closed before everything was answered"

Answers = list[tuple[int, Translation]]  # number of the text and its translation


class TaskReader:
    """Reads texts in a task of the event loop."""

    def __init__(self, texts: Iterable[str] | AsyncIterable[str], max_ahead: int) -> None:
        self._texts = texts
        self._room = asyncio.Semaphore(max_ahead)
        self._task: asyncio.Task[None] | None = None

    def start(self, call: "StreamCall") -> None:
        self._task = asyncio.create_task(self._read(call))

    def make_room(self, num_texts: int) -> None:
        for _ in range(num_texts):
            self._room.release()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self, call: "StreamCall") -> None:
        try:
            texts = checked_async(self._texts)
            while await self._room.acquire():
                text = await anext(texts, None)  # None is the end alone: it is no text, which `checked` refuses
                call.take(text)
                if text is None:
                    return
        except Exception as error:  # noqa: BLE001 - the caller's own: it is raised to the caller
            call.fail(error)


class ThreadReader:
    """Reads texts in a thread of its own, as a blocking iterable must not hold up the event loop."""

    def __init__(self, texts: Iterable[str], max_ahead: int) -> None:
        self._texts = texts
        self._changed = threading.Condition()
        self._room = max_ahead  # texts that may be read
        self._is_ended = False
        self._read_texts: list[str | None] = []  # on their way to the loop, which is woken once for all of them

    def start(self, call: "StreamCall") -> None:
        arguments = (call, asyncio.get_running_loop())
        threading.Thread(target=self._read, args=arguments, name="stream-texts", daemon=True).start()

    def make_room(self, num_texts: int) -> None:
        with self._changed:
            self._room += num_texts
            self._changed.notify()

    async def stop(self) -> None:
        self.end()

    def end(self) -> None:
        """Read no more, from any thread; the reading thread that waits for a text goes on until that comes."""
        with self._changed:
            self._is_ended = True
            self._changed.notify()

    def _read(self, call: "StreamCall", loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the loop has ended
            try:
                for text in chain(checked(self._texts_with_room()), [None]):
                    with self._changed:
                        self._read_texts.append(text)
                        is_first = len(self._read_texts) == 1
                    if is_first:
                        loop.call_soon_threadsafe(self._deliver, call)
            except BaseException as error:  # noqa: BLE001 - the caller's own: it is raised to the caller
                loop.call_soon_threadsafe(call.fail, error)

    def _texts_with_room(self) -> Iterator[str]:
        """Yield the caller's texts; each is taken when there is room for it."""
        room, texts = 0, iter(self._texts)
        while True:
            if room == 0:
                with self._changed:
                    self._changed.wait_for(lambda: self._room or self._is_ended)
                    room, self._room = self._room, 0
            if self._is_ended:
                return
            try:
                yield next(texts)
            except StopIteration:
                return
            room -= 1

    def _deliver(self, call: "StreamCall") -> None:
        with self._changed:
            texts, self._read_texts = self._read_texts, []
        for text in texts:
            call.take(text)


class StreamCall:
    """Texts in, numbered translations out; for one caller, once."""

    def __init__(
        self,
        open_stream: Callable[[], Any],
        settings: pb.StreamSettings,
        reader: TaskReader | ThreadReader,
        unanswered: Unanswered,
        *,
        deadline: float | None,
        way: str = "",
    ) -> None:
        self._open_stream = open_stream  # raises UsageError on a channel that is closed
        self._settings = settings
        self._reader = reader
        self._unanswered = unanswered
        self._way = way  # what to say of the proxy on it
        self._deadline = deadline  # of the whole stream, on time.monotonic()
        self._changed = asyncio.Event()  # for the task that sends: a text was taken, or an answer came
        self._has_begun = False
        self._call: Any = None  # of the connection that is open
        self._sender: asyncio.Task[None] | None = None
        self._num_handed_out = 0  # answers of the last message
        self._source_error: BaseException | None = None

    def take(self, text: str | None) -> None:
        """Take the caller's next text; None for the end."""
        if text is None:
            self._unanswered.close()
        else:
            self._unanswered.take(text)
        self._changed.set()

    def fail(self, error: BaseException) -> None:
        """End the stream with what the caller's iterable raised."""
        self._source_error = error
        self._changed.set()
        if self._call is not None:
            self._call.cancel()

    async def next_answers(self) -> Answers:
        """Return the answers of the next message, over however many connections; none at the end."""
        if not self._has_begun:
            self._has_begun = True
            self._reader.start(self)
        self._reader.make_room(self._num_handed_out)  # the caller has taken those
        self._num_handed_out = 0
        while not self._unanswered.is_done:
            if self._source_error is not None:
                raise self._source_error
            received = await self._received()
            if not isinstance(received, DragomanError):
                self._num_handed_out = len(received)
                return received
            self._disconnect()
            if self._source_error is None:
                await self._sleep(self._unanswered.lost(received, time.monotonic()), received)
        return []

    async def close(self) -> None:
        self._disconnect()
        await self._reader.stop()

    async def _received(self) -> Answers | DragomanError:
        """Return the answers of the next message that has some, or the error with which the connection ended."""
        cancelled_before = times_cancelled()
        try:
            if self._call is None:
                self._call = self._open_stream()
                self._sender = asyncio.create_task(self._send(self._call))
            while (response := await self._call.read()) is not grpc.aio.EOF:
                now = time.monotonic()
                numbered = [
                    (item.id, self._unanswered.answered(item.id, decode_translation(item.translation), now))
                    for item in response.translations
                ]
                self._changed.set()
                if answers := [(number, answer) for number, answer in numbered if answer is not None]:
                    return answers
            return Unavailable("the server ended the stream before everything was answered")
        except (ValueError, grpc.aio.UsageError) as closed:
            raise Unavailable(_CLOSED) from closed
        except grpc.RpcError as failure:
            error = domain_error(failure, self._way)
            if isinstance(error, InternalError) and _FOUND_ENDED in str(error):
                error = Unavailable("the stream ended while a text was being sent")  # the next one says why
            error.__cause__ = failure
            return error
        except asyncio.CancelledError as ended:  # also how a call ends that a failed text or the client has cancelled
            if times_cancelled() > cancelled_before:
                raise
            if self._source_error is not None:
                raise self._source_error from None
            raise Unavailable(_CLOSED) from ended

    def _disconnect(self) -> None:
        if self._call is not None and self._sender is not None:
            self._sender.cancel()
            self._call.cancel()  # does nothing to one that has ended
        self._call = None

    async def _sleep(self, pause_s: float, error: DragomanError) -> None:
        """Wait after this error, unless the caller's texts or the deadline end the wait first."""
        if self._deadline is not None and time.monotonic() + pause_s >= self._deadline:
            raise too_late(error) from error
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                while self._source_error is None:
                    self._changed.clear()
                    await self._changed.wait()

    async def _send(self, call: Any) -> None:
        """Send over one connection until it ends, or all is answered."""
        with suppress(grpc.RpcError, asyncio.InvalidStateError):  # who receives sees why
            await call.write(pb.TranslateStreamRequest(settings=self._settings))
            while not self._unanswered.is_done:
                self._changed.clear()
                await asyncio.sleep(0)  # more texts may be there, for the same message
                if message := self._unanswered.next_message(time.monotonic()):
                    await call.write(encode_stream_texts(message))
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._unanswered.pause_s(time.monotonic())):
                        await self._changed.wait()
            await call.done_writing()
