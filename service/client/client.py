"""The client for threads: a facade of `AsyncClient`, whose calls run on an event loop in a thread of our own.

    with Client("127.0.0.1:50051") as client:
        print(client.translate(["The cat sleeps."]).translations[0].text)

The defaults are meant for production: a deadline on every call, retries that honour the server's pushback, waiting for
a server that is just starting, keepalive, and round robin over all addresses of a DNS name.

All clients of a process share the loop and its thread.  The caller's own iterables are read in the caller's thread, or
in a thread of their own, and never hold up the loop.
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
from service.client.texts import CallTexts, StreamCall, from_thread, require_several, split_into_calls
from service.errors import Unavailable
from service.records import DetectedLanguage, ModelInfo, ScoreResult, Translation, TranslationResult

_Result = TypeVar("_Result")

_STOP_WITHIN_S = 5.0  # for the end of connections and calls


class _Background:
    """The event loop of all clients of a process, in a daemon thread from the first client on."""

    def __init__(self) -> None:
        self.clients: weakref.WeakSet[AsyncClient] = weakref.WeakSet()  # whose channels gRPC still has, closed or not
        self._pid = os.getpid()
        self._lock = threading.RLock()  # the garbage collector may want it in the thread that has it
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine on the loop and return what it returns; whoever is interrupted meanwhile cancels it."""
        return result_of(self.submit(coroutine))

    def submit(self, coroutine: Coroutine[Any, Any, _Result]) -> "Future[_Result]":
        """Start a coroutine on the loop."""
        if self._pid != os.getpid():
            coroutine.close()
            raise RuntimeError("the process was forked while it had clients: make them after the fork, or spawn it")
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="dragoman-client", daemon=True)
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def finish(self, coroutine: Coroutine[Any, Any, None]) -> "Future[None] | None":
        """Have the loop run the end of something that may be forgotten; None: nothing runs there any more.

        Nothing waits for it here: the garbage collector calls this in any thread, and so in one that the loop waits
        for.
        """
        try:
            return self.submit(coroutine)
        except RuntimeError:  # in a forked process, or in one that ends
            coroutine.close()
            return None

    def end(self) -> None:
        """Close the clients, cancel what else runs, and end the loop, as the process ends."""
        if self._loop is None or self._thread is None or self._pid != os.getpid():
            return
        with suppress(CancelledError, TimeoutError):
            self.submit(self._end_all()).result(_STOP_WITHIN_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_WITHIN_S)
        if not self._thread.is_alive():
            self._loop.close()

    def after_fork(self) -> None:
        if not self.clients:  # gRPC aborts where there are channels without its threads, which are not there any more
            self._pid, self._loop = os.getpid(), None

    async def _end_all(self) -> None:
        await asyncio.gather(*(client.close() for client in list(self.clients)), return_exceptions=True)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def result_of(future: "Future[_Result]") -> _Result:
    """Wait for a result, Unavailable if the client was closed; whoever is interrupted meanwhile cancels it."""
    try:
        return future.result()
    except CancelledError as error:
        raise Unavailable(CLOSED) from error
    finally:
        future.cancel()  # does nothing to one that has ended


_background = _Background()
os.register_at_fork(after_in_child=_background.after_fork)
atexit.register(_background.end)


class Client:
    """Calls a server and blocks until it answers; may be shared by threads, not by processes."""

    def __init__(self, address: str = DEFAULT_ADDRESS, config: ClientConfig | None = None) -> None:
        """Do as `AsyncClient`."""

        async def make() -> AsyncClient:
            return AsyncClient(address, config)

        self.address = address
        self._client = _background.run(make())
        self._close = weakref.finalize(self, lambda client: _background.finish(client.close()), self._client)
        self._close.atexit = False  # `_background` closes all clients then
        _background.clients.add(self._client)

    def translate(
        self, texts: Iterable[str], *, timeout_s: float | None = None, **wanted: Unpack[RequestOptions]
    ) -> TranslationResult:
        """Do as `AsyncClient.translate`."""
        require_several(texts)
        return _background.run(self._client.send(request_of(list(texts), **wanted), timeout_s))

    def translate_all(
        self, texts: Iterable[str], *, timeout_s: float | None = None, **wanted: Unpack[RequestOptions]
    ) -> Iterator[Translation]:
        """Do as `AsyncClient.translate_all`; texts are read in the caller's thread."""

        def start(part: CallTexts) -> "Future[TranslationResult]":
            return _background.submit(self._client.send(request_of(part.texts, **wanted), timeout_s))

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
        return _one_by_one(self._client.stream(request_of(**wanted), from_thread(texts), timeout_s))

    def score(
        self, pairs: Iterable[tuple[str, str]], *, timeout_s: float | None = None, **wanted: Unpack[ScoreOptions]
    ) -> ScoreResult:
        """Do as `AsyncClient.score`."""
        return _background.run(self._client.score(list(pairs), timeout_s=timeout_s, **wanted))

    def detect_languages(self, texts: Iterable[str], *, timeout_s: float | None = None) -> list[DetectedLanguage]:
        """Do as `AsyncClient.detect_languages`."""
        require_several(texts)
        return _background.run(self._client.detect_languages(list(texts), timeout_s=timeout_s))

    def models(self, *, timeout_s: float | None = None) -> list[ModelInfo]:
        """Return the loaded models, in the order in which a request that names none tries them."""
        return _background.run(self._client.models(timeout_s=timeout_s))

    def wait_until_ready(self, timeout_s: float) -> None:
        """Do as `AsyncClient.wait_until_ready`."""
        _background.run(self._client.wait_until_ready(timeout_s))

    def close(self) -> None:
        """Close the connections; whoever waits for an answer gets Unavailable."""
        if (ending := self._close()) is not None:
            with suppress(CancelledError, TimeoutError):
                ending.result(_STOP_WITHIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _one_by_one(call: StreamCall) -> Generator[tuple[int, Translation], None, None]:
    try:
        while answers := _background.run(call.next_answers()):
            yield from answers
    finally:
        _background.finish(call.close())
