"""One `translate_stream` of the blocking client.

A thread reads the caller's texts, one of gRPC's sends them, the caller's own receives the answers; they meet in
`Unanswered`, which the condition here guards.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import grpc

from protos import translation_pb2 as pb
from service.client.texts import checked, require_several
from service.client.unanswered import Unanswered, too_late
from service.errors import DragomanError, Unavailable
from service.grpc.replies import to_stream_texts, to_translation
from service.records import Translation

OpenStream = Callable[[Iterator[pb.TranslateStreamRequest]], Any]  # raises ValueError on a channel that is closed


class StreamCall:
    """Texts in, numbered translations out; for one caller, once."""

    def __init__(
        self,
        open_stream: OpenStream,
        settings: pb.StreamSettings,
        texts: Iterable[str],
        unanswered: Unanswered,
        *,
        to_error: Callable[[Any], DragomanError],
        deadline: float | None,
    ) -> None:
        """A call that has not begun.

        Args:
            to_error: the error that a gRPC error stands for.
            deadline: of all of it, on time.monotonic(); None for none.

        Raises:
            TypeError: the texts are one.
        """
        require_several(texts)
        self._open_stream = open_stream
        self._settings = settings
        self._texts = texts
        self._unanswered = unanswered
        self._to_error = to_error
        self._deadline = deadline
        self._changed = threading.Condition()
        self._connection = 0  # counts up whenever one begins or ends, which ends the thread that sends on it
        self._call: Any = None
        self._is_closed = False
        self._source_error: BaseException | None = None

    def answers(self) -> Generator[tuple[int, Translation], None, None]:
        """Number of the text and its translation, in the order in which they finish.

        Raises:
            DragomanError: the call failed, or could not be resumed.
            BaseException: what the caller's iterable raised.
        """
        threading.Thread(target=self._take, name="stream-texts", daemon=True).start()
        try:
            while not self._unanswered.is_done:
                yield from self._connected()
                if self._source_error is not None:
                    raise self._source_error
        finally:
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()

    def _connected(self) -> Iterator[tuple[int, Translation]]:
        """The answers that come over one connection; when it is lost, the pause before the next."""
        try:
            yield from self._received(self._open())
            error: DragomanError = Unavailable("the server ended the stream before everything was answered")
        except grpc.RpcError as failure:
            error = self._to_error(failure)
            error.__cause__ = failure
        finally:
            self._disconnect()
        if self._unanswered.is_done or self._source_error is not None:
            return
        with self._changed:
            pause_s = self._unanswered.lost(error, time.monotonic())
        self._sleep(pause_s, error)

    def _open(self) -> Any:
        with self._changed:
            self._connection += 1
            try:
                self._call = self._open_stream(self._requests(self._connection))
            except ValueError as error:
                raise Unavailable("the client was closed before everything was answered") from error
            return self._call

    def _received(self, call: Any) -> Iterator[tuple[int, Translation]]:
        for response in call:
            for item in response.translations:
                with self._changed:
                    answer = self._unanswered.answered(item.id, to_translation(item.translation), time.monotonic())
                    self._changed.notify_all()
                if answer is not None:
                    yield item.id, answer

    def _disconnect(self) -> None:
        with self._changed:
            self._connection += 1
            self._changed.notify_all()
        if self._call is not None:
            self._call.cancel()  # does nothing to one that has ended

    def _sleep(self, pause_s: float, error: DragomanError) -> None:
        """Wait after this error, unless the caller's texts or the deadline end it first."""
        if self._deadline is not None and time.monotonic() + pause_s >= self._deadline:
            raise too_late(error) from error
        with self._changed:
            self._changed.wait_for(lambda: self._source_error is not None, pause_s)

    def _requests(self, connection: int) -> Iterator[pb.TranslateStreamRequest]:
        """What is sent over one connection; runs in a thread of gRPC's."""
        yield pb.TranslateStreamRequest(settings=self._settings)
        while (message := self._next_message(connection)) is not None:
            yield to_stream_texts(message)

    def _next_message(self, connection: int) -> list[tuple[int, str]] | None:
        with self._changed:
            while self._connection == connection and not self._unanswered.is_done and self._source_error is None:
                if message := self._unanswered.next_message(time.monotonic()):
                    return message
                self._changed.wait(self._unanswered.pause_s(time.monotonic()))
        return None

    def _take(self) -> None:
        """Read the caller's texts as there is room for them; runs in a thread of its own."""
        try:
            self._take_all()
        except BaseException as error:  # noqa: BLE001  the caller's own: it is raised to the caller
            with self._changed:
                self._source_error = error
                self._changed.notify_all()
                call = self._call
            if call is not None:
                call.cancel()

    def _take_all(self) -> None:
        texts = checked(self._texts)
        while self._wait_for_room():
            text = next(texts, None)  # None is the end alone: it is no text, which `checked` refuses
            with self._changed:
                if text is None:
                    self._unanswered.close()
                else:
                    self._unanswered.take(text)
                self._changed.notify_all()
            if text is None:
                return

    def _wait_for_room(self) -> bool:
        """True when there is room for a text, false when nobody wants more."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._unanswered.has_room)
            return not self._is_closed
