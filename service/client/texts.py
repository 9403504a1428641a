"""What a caller gives as texts: checked as it is taken, cut into calls or sent over a stream, kept until its answer.

A text that no message can carry fails alone: a blank one, which costs nothing, is sent in its place.  In a stream, a
task takes the caller's texts, another one sends them, and the caller receives the answers; all three meet in
`Unanswered`, on the event loop.
"""

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from protos import translation_pb2 as pb
from service.client.channel import Backoff
from service.client.failures import domain_error, times_cancelled
from service.client.messages import check_encodable, decode_translation, encode_stream_texts
from service.errors import DeadlineExceeded, DragomanError, InternalError, Overloaded, TooLong, Unavailable
from service.records import Translation

# Of several texts in one message; 1 MiB at most in UTF-8, and servers accept messages of 4 MiB by default.
MAX_MESSAGE_CHARACTERS = 1 << 18
# Texts of one message of a stream: few enough that the first answers do not wait for the last texts to arrive.
MAX_MESSAGE_TEXTS = 64
_READ_AHEAD = 32  # texts of a blocking iterable, beside those of `max_stream_texts`
# What grpc.aio makes of the status when a write is the first to notice that the call has ended.
_FOUND_ENDED = "Internal error from Core"
_CLOSED = "the client was closed before everything was answered"


def require_several(texts: object) -> None:
    """Raise TypeError for one text where several are needed: every character would be translated for itself."""
    if isinstance(texts, str | bytes):
        kind = type(texts).__name__
        raise TypeError(f"texts is one {kind}, an iterable of them is needed: for one text give a list, [text]")


def checked(texts: Iterable[str]) -> Iterator[str]:
    """Yield these texts; TypeError and InvalidInput name by number one that is no str or that UTF-8 cannot carry."""
    for number, text in enumerate(texts):
        check_encodable(text, f"texts[{number}]")
        yield text


async def checked_async(texts: Iterable[str] | AsyncIterable[str]) -> AsyncIterator[str]:
    """Do as `checked`, for either kind of iterable."""
    if not isinstance(texts, AsyncIterable):
        for text in checked(texts):
            yield text
        return
    number = 0
    async for text in texts:
        check_encodable(text, f"texts[{number}]")
        yield text
        number += 1


async def from_thread(texts: Iterable[str]) -> AsyncIterator[str]:
    """Yield texts of an iterable that may block: a thread takes them, some ahead, and the event loop goes on."""
    loop, taken = asyncio.get_running_loop(), asyncio.Queue[Any]()
    room, has_ended = threading.Semaphore(_READ_AHEAD), threading.Event()

    def read() -> None:
        with suppress(RuntimeError):  # the loop has ended
            try:
                iterator = iter(texts)
                while room.acquire() and not has_ended.is_set():
                    loop.call_soon_threadsafe(taken.put_nowait, next(iterator))
            except StopIteration as end:
                loop.call_soon_threadsafe(taken.put_nowait, end)
            except BaseException as error:  # noqa: BLE001 - the caller's own: it is raised to the caller
                loop.call_soon_threadsafe(taken.put_nowait, error)

    threading.Thread(target=read, name="stream-texts", daemon=True).start()
    try:
        while not isinstance(text := await taken.get(), BaseException):
            room.release()
            yield text
        if not isinstance(text, StopIteration):
            raise text
    finally:  # a thread that waits for a text goes on until that comes
        has_ended.set()
        room.release()


def too_large(text: str, max_bytes: int) -> TooLong | None:
    """Return the error of a text that no message can carry, None for any other."""
    num_bytes = len(text.encode())
    if num_bytes <= max_bytes:
        return None
    return TooLong(f"the text has {num_bytes} bytes in UTF-8, at most {max_bytes} fit in a message", field="text")


@dataclass(frozen=True, slots=True)
class CallTexts:
    """The texts of one call, and the errors of those that cannot be sent."""

    texts: list[str] = field(default_factory=list)  # to send
    errors: dict[int, TooLong] = field(default_factory=dict)  # by place

    def answered(self, translations: Sequence[Translation]) -> Iterator[Translation]:
        """Yield what became of each text, when these translations came back."""
        for place, translation in enumerate(translations):
            error = self.errors.get(place)
            yield translation if error is None else Translation(error=error)


def split_into_calls(texts: Iterable[str], size: int, max_text_bytes: int) -> Iterator[CallTexts]:
    """Yield `size` texts at a time, or as many as fit in a message; a full one comes before the next text is taken."""
    require_several(texts)
    call, num_characters = CallTexts(), 0
    for text in checked(texts):
        error = too_large(text, max_text_bytes)
        length = len(text) if error is None else 0
        if call.texts and num_characters + length > MAX_MESSAGE_CHARACTERS:
            yield call
            call, num_characters = CallTexts(), 0
        if error is not None:
            call.errors[len(call.texts)] = error
        call.texts.append(text if error is None else "")
        num_characters += length
        if len(call.texts) == size:
            yield call
            call, num_characters = CallTexts(), 0
    if call.texts:
        yield call


def too_late(error: DragomanError) -> DeadlineExceeded:
    """Return what a stream ends with when there is no time left to go on after this error."""
    why = "" if isinstance(error, DeadlineExceeded) else f": {error}"
    return DeadlineExceeded(f"the deadline passed before everything was answered{why}")


class Unanswered:
    """Texts of one stream by number, in the order in which they were taken, over however many connections.

    What a lost connection, or a lost engine, left without an answer is sent again, and each text is answered to the
    caller exactly once.
    """

    def __init__(self, *, max_text_bytes: int, give_up_s: float) -> None:
        self._max_text_bytes = max_text_bytes
        self._give_up_s = give_up_s  # trouble that lasts longer without an answer is passed on to the caller
        self._backoff = Backoff()
        self._texts: OrderedDict[int, str] = OrderedDict()
        self._too_large: dict[int, TooLong] = {}
        self._to_send: deque[int] = deque()
        self._refused: list[int] = []  # to be sent again ...
        self._resend_at = 0.0  # ... then
        self._trouble_since: float | None = None
        self._has_progress = False  # an answer came since the last trouble
        self._num_taken = 0
        self._is_closed = False

    @property
    def is_done(self) -> bool:
        """Whether the caller has no more texts and all are answered."""
        return self._is_closed and not self._texts

    def take(self, text: str) -> None:
        """Number the next text, and send it when possible."""
        error = too_large(text, self._max_text_bytes)
        if error is not None:
            self._too_large[self._num_taken] = error
        self._texts[self._num_taken] = text if error is None else ""
        self._to_send.append(self._num_taken)
        self._num_taken += 1

    def close(self) -> None:
        self._is_closed = True

    def next_message(self, now: float) -> list[tuple[int, str]]:
        """Return numbers and texts to send now in one message; they count as sent."""
        if self._refused and now >= self._resend_at:
            self._to_send.extend(self._refused)
            self._refused.clear()
        message: list[tuple[int, str]] = []
        size = 0
        while self._to_send and len(message) < MAX_MESSAGE_TEXTS:
            number = self._to_send[0]
            size += len(self._texts[number])
            if message and size > MAX_MESSAGE_CHARACTERS:
                break
            message.append((self._to_send.popleft(), self._texts[number]))
        return message

    def pause_s(self, now: float) -> float | None:
        """Return the seconds until there is something to send again; None where nothing waits for that."""
        return max(0.0, self._resend_at - now) if self._refused else None

    def answered(self, number: int, translation: Translation, now: float) -> Translation | None:
        """Return the answer to hand to the caller; None where there is none yet, or was one already."""
        if number not in self._texts:
            return None
        if isinstance(translation.error, Unavailable) and not self._is_hopeless(now):
            if not self._refused:
                self._resend_at = now + self._backoff.next_s()
            self._refused.append(number)
            return None
        del self._texts[number]
        self._has_progress = True
        if not isinstance(translation.error, Unavailable):
            self._trouble_since = None
            self._backoff.reset()
        error = self._too_large.pop(number, None)
        return translation if error is None else Translation(error=error)

    def lost(self, error: DragomanError, now: float) -> float:
        """Return the seconds to wait before a new connection, which has to be sent everything again.

        Raises `error` where it does not pass, or has lasted too long.
        """
        # A server ends streams after some hours: no reason to stop unless nothing was answered in that time.
        is_passing = isinstance(error, Unavailable) or (isinstance(error, DeadlineExceeded) and self._has_progress)
        pushback_s = error.retry_after_s if isinstance(error, Overloaded) else 0.0
        if not is_passing and pushback_s == 0.0:
            raise error
        if not self._texts:
            self._trouble_since = None  # nobody waits
        elif self._is_hopeless(now):
            raise error
        self._to_send = deque(self._texts)
        self._refused.clear()
        self._has_progress = False
        return self._backoff.next_s(at_least_s=pushback_s)

    def _is_hopeless(self, now: float) -> bool:
        """Note that there is trouble; true if it has lasted too long."""
        if self._trouble_since is None:
            self._trouble_since = now
        return now - self._trouble_since > self._give_up_s


Answers = list[tuple[int, Translation]]  # number of the text and its translation
_readers: set[asyncio.Task[None]] = set()  # that run: asyncio itself does not keep a task that only waits


class StreamCall:
    """Texts in, numbered translations out; for one caller, once."""

    def __init__(
        self,
        open_stream: Callable[[], Any],
        settings: pb.StreamSettings,
        texts: Iterable[str] | AsyncIterable[str],
        unanswered: Unanswered,
        *,
        max_ahead: int,
        deadline: float | None,
        way: str = "",
    ) -> None:
        self._open_stream = open_stream  # raises UsageError on a channel that is closed
        self._settings = settings
        self._texts = checked_async(texts)
        self._room = asyncio.Semaphore(max_ahead)  # texts that may be taken
        self._unanswered = unanswered
        self._way = way  # what to say of the proxy on it
        self._deadline = deadline  # of the whole stream, on time.monotonic()
        self._changed = asyncio.Event()  # for the task that sends: a text was taken, or an answer came
        self._reader: asyncio.Task[None] | None = None
        self._call: Any = None  # of the connection that is open
        self._sender: asyncio.Task[None] | None = None
        self._num_handed_out = 0  # answers of the last message
        self._source_error: BaseException | None = None

    async def next_answers(self) -> Answers:
        """Return the answers of the next message, over however many connections; none at the end."""
        if self._reader is None:
            self._reader = asyncio.create_task(self._read())
            _readers.add(self._reader)
            self._reader.add_done_callback(_readers.discard)
        for _ in range(self._num_handed_out):  # the caller has taken those
            self._room.release()
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
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        """Take the caller's texts, as far ahead of the answers as there is room."""
        try:
            while await self._room.acquire():
                self._unanswered.take(await anext(self._texts))
                self._changed.set()
        except StopAsyncIteration:
            self._unanswered.close()
        except (asyncio.CancelledError, GeneratorExit):  # the latter in a stream that is garbage
            raise
        except BaseException as error:  # noqa: BLE001 - the caller's own: it is raised to the caller
            self._source_error = error
            if self._call is not None:
                self._call.cancel()
        self._changed.set()

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
