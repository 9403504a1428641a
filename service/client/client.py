"""The client for threads: a facade of `AsyncClient`, whose calls run on an event loop in a thread of our own.

    with Client("127.0.0.1:50051") as client:
        print(client.translate(["The cat sleeps."]).translations[0].text)

The defaults are meant for production: a deadline on every call, retries that honour the server's pushback, waiting for
a server that is just starting, keepalive, and round robin over all addresses of a DNS name.

All clients of a process share the loop and its thread, which ends when the last of them is closed.  The caller's own
iterables are read in the caller's thread, or in a thread of their own, and never hold up the loop.
"""

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Coroutine, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import closing, suppress
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from service.client.aio import AsyncClient, RequestOptions, ScoreOptions, in_turn, request_of
from service.client.channel import DEFAULT_ADDRESS, ClientConfig
from service.client.failures import CLOSED
from service.client.stream import StreamCall, ThreadReader
from service.client.texts import CallTexts, require_several, split_into_calls
from service.errors import Unavailable
from service.records import DetectedLanguage, ModelInfo, ScoreResult, Translation, TranslationResult

_Result = TypeVar("_Result")

_STOP_WITHIN_S = 5.0  # for calls that are cancelled when the last client is closed


class _LoopThread:
    """An event loop in a daemon thread, for the clients of one process."""

    def __init__(self) -> None:
        self.num_clients = 0
        self._pid = os.getpid()
        self._is_stopped = False
        self._lock = threading.RLock()  # what is submitted is there before the loop is told to stop, or is refused
        self._loop = asyncio.new_event_loop()
        self._ends: set[asyncio.Task[None]] = set()  # of what `finish` was given
        self._thread = threading.Thread(target=self._run_loop, name="dragoman-client", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, _Result]) -> "Future[_Result]":
        """Start a coroutine on the loop; raises Unavailable if the clients are closed."""
        if self._pid != os.getpid():
            coroutine.close()
            raise RuntimeError("this client was made before the process was forked: make one in each process")
        with self._lock:
            if not self._is_stopped:
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        coroutine.close()
        raise Unavailable(CLOSED)

    def run(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine on the loop and return what it returns; whoever is interrupted meanwhile cancels it."""
        return result_of(self.submit(coroutine))

    def finish(self, coroutine: Coroutine[Any, Any, None]) -> "Future[None] | None":
        """Have the loop run the end of something that may be forgotten; None: nothing runs there any more.

        Nothing waits for it here: the garbage collector calls this in any thread, and so in one that the loop waits
        for, such as one that it has just started.
        """

        async def end() -> None:
            task = asyncio.current_task()
            assert task is not None
            self._ends.add(task)
            task.add_done_callback(self._ends.discard)
            await coroutine

        try:
            return self.submit(end())
        except (Unavailable, RuntimeError):
            coroutine.close()
            return None

    def stop(self) -> None:
        """Have the loop end what was to be finished, cancel what else runs, and stop; does not wait for it."""

        async def cancel_all() -> None:
            await asyncio.gather(*self._ends, return_exceptions=True)
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # Not yet: a task that has just ended wakes the thread that waits for it in the loop's next iteration.
            self._loop.call_soon(self._loop.stop)

        if self._pid == os.getpid():
            with self._lock:
                self._is_stopped = True
                asyncio.run_coroutine_threadsafe(cancel_all(), self._loop)

    def wait(self, ending: "Future[None]") -> None:
        """Return when what was finished has ended, and the loop if it was told to stop; or some seconds later."""
        if threading.current_thread() is not self._thread:
            with suppress(CancelledError, TimeoutError):
                ending.result(_STOP_WITHIN_S)
            if self._is_stopped:
                self._thread.join(_STOP_WITHIN_S)

    def _run_loop(self) -> None:
        self._loop.run_forever()
        self._loop.close()


def result_of(future: "Future[_Result]") -> _Result:
    """Wait for a result, Unavailable if the client was closed; whoever is interrupted meanwhile cancels it."""
    try:
        return future.result()
    except CancelledError as error:
        raise Unavailable(CLOSED) from error
    finally:
        future.cancel()  # does nothing to one that has ended


class _SharedThread:
    """The loop thread of all clients, from the first one's opening to the last one's closing.

    A loop that gRPC knows is woken by every event of the process, also by those of a server in it: each costs CPU time
    for as long as it runs, so that there is one of them, and none where nobody needs it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the garbage collector may close a client while another is opened
        self._thread: _LoopThread | None = None
        self.clients: weakref.WeakSet[Client] = weakref.WeakSet()  # whose channels gRPC still has, closed or not
        self._is_forked = False  # with such channels: gRPC's threads are not there, and it aborts without them

    def join(self) -> _LoopThread:
        with self._lock:
            if self._is_forked:
                raise RuntimeError("the process was forked while it had clients: make them after the fork, or spawn it")
            if self._thread is None:
                self._thread = _LoopThread()
            thread = self._thread
            thread.num_clients += 1
            is_first = thread.num_clients == 1
        if is_first:  # without the lock: the new thread may collect another client as garbage before it is there
            thread.start()
        return thread

    def leave(self, thread: _LoopThread) -> None:
        with self._lock:
            thread.num_clients -= 1
            is_last = thread.num_clients == 0 and thread is self._thread
            if is_last:
                self._thread = None
        if is_last:
            thread.stop()

    def close_all(self) -> None:
        for client in list(self.clients):
            client.close()

    def after_fork(self) -> None:
        self._lock = threading.RLock()
        self._is_forked = self._is_forked or bool(self.clients)
        self._thread = None


_shared = _SharedThread()
os.register_at_fork(after_in_child=_shared.after_fork)
atexit.register(_shared.close_all)


def _end(thread: _LoopThread, client: AsyncClient) -> "Future[None] | None":
    ending = thread.finish(client.close())
    _shared.leave(thread)
    return ending


class Client:
    """Calls a server and blocks until it answers; may be shared by threads, not by processes."""

    def __init__(self, address: str = DEFAULT_ADDRESS, config: ClientConfig | None = None) -> None:
        """Do as `AsyncClient`."""

        async def make() -> AsyncClient:
            return AsyncClient(address, config)

        self.address = address
        self._loop = _shared.join()
        try:
            self._client = self._loop.run(make())
        except BaseException:
            _shared.leave(self._loop)
            raise
        self._close = weakref.finalize(self, _end, self._loop, self._client)
        self._close.atexit = False  # `_shared` waits for the end of its thread then
        _shared.clients.add(self)

    def translate(
        self, texts: Iterable[str], *, timeout_s: float | None = None, **wanted: Unpack[RequestOptions]
    ) -> TranslationResult:
        """Do as `AsyncClient.translate`."""
        require_several(texts)
        return self._loop.run(self._client.send(request_of(list(texts), **wanted), timeout_s))

    def translate_all(
        self, texts: Iterable[str], *, timeout_s: float | None = None, **wanted: Unpack[RequestOptions]
    ) -> Iterator[Translation]:
        """Do as `AsyncClient.translate_all`; texts are read in the caller's thread."""

        def start(part: CallTexts) -> "Future[TranslationResult]":
            return self._loop.submit(self._client.send(request_of(part.texts, **wanted), timeout_s))

        config = self._client.config
        parts = split_into_calls(texts, config.batch_size, config.max_text_bytes)
        with closing(in_turn(parts, start, config.max_calls)) as calls:
            for part, call in calls:
                yield from part.answered(result_of(call).translations)

    def translate_stream(
        self, texts: Iterable[str], *, timeout_s: float | None = None, **wanted: Unpack[RequestOptions]
    ) -> Generator[tuple[int, Translation], None, None]:
        """Do as `AsyncClient.translate_stream`; texts are read in a thread of their own.  `close()` leaves it early."""
        require_several(texts)
        reader = ThreadReader(texts, self._client.config.max_stream_texts)
        return self._one_by_one(self._client.stream(request_of(**wanted), reader, timeout_s), reader)

    def _one_by_one(self, call: StreamCall, reader: ThreadReader) -> Generator[tuple[int, Translation], None, None]:
        try:
            while answers := self._loop.run(call.next_answers()):
                yield from answers
        finally:
            reader.end()  # here too, as the loop may have ended with the client
            self._loop.finish(call.close())

    def score(
        self, pairs: Iterable[tuple[str, str]], *, timeout_s: float | None = None, **wanted: Unpack[ScoreOptions]
    ) -> ScoreResult:
        """Do as `AsyncClient.score`."""
        return self._loop.run(self._client.score(list(pairs), timeout_s=timeout_s, **wanted))

    def detect_languages(self, texts: Iterable[str], *, timeout_s: float | None = None) -> list[DetectedLanguage]:
        """Do as `AsyncClient.detect_languages`."""
        require_several(texts)
        return self._loop.run(self._client.detect_languages(list(texts), timeout_s=timeout_s))

    def models(self, *, timeout_s: float | None = None) -> list[ModelInfo]:
        """Return the loaded models, in the order in which a request that names none tries them."""
        return self._loop.run(self._client.models(timeout_s=timeout_s))

    def wait_until_ready(self, timeout_s: float) -> None:
        """Do as `AsyncClient.wait_until_ready`."""
        self._loop.run(self._client.wait_until_ready(timeout_s))

    def close(self) -> None:
        """Close the connections; whoever waits for an answer gets Unavailable."""
        if (ending := self._close()) is not None:
            self._loop.wait(ending)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
