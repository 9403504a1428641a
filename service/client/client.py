"""The Python client, for threads (`Client`) and for asyncio (`AsyncClient`).

    with Client("127.0.0.1:50051") as client:
        print(client.translate(["The cat sleeps."]).translations[0].text)

The defaults are meant for production: a deadline on every call, retries that honour the server's pushback, waiting for
a server that is just starting, keepalive, and round robin over all addresses of a DNS name.  What goes wrong with a
call is raised as an error of `service.errors` with the gRPC error as its cause; what goes wrong with one text of
several stays in that text's `Translation`.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio
from grpc_health.v1.health_pb2_grpc import HealthStub

from protos import translation_pb2 as pb
from protos.translation_pb2_grpc import TranslationServiceStub
from service.client.aio_stream_call import AsyncStreamCall
from service.client.channel import (
    DEFAULT_ADDRESS,
    ClientConfig,
    call_metadata,
    open_aio_channel,
    open_channel,
)
from service.client.connection_failure import connection_failure, connection_failure_async
from service.client.failures import CLOSED, closed_channel_is_unavailable, closed_is_unavailable, domain_error
from service.client.readiness import wait_until_ready, wait_until_ready_async
from service.client.stream_call import StreamCall
from service.client.texts import Batch, batches, require_several
from service.client.unanswered import Unanswered
from service.errors import DeadlineExceeded, Unavailable
from service.grpc.replies import to_models, to_reply, to_request, to_stream_settings
from service.queue.callers import Priority
from service.records import ModelInfo, TranslateOptions, TranslateReply, Translation


class Client:
    """Calls a server and blocks until it answers; may be shared by threads."""

    def __init__(self, address: str = DEFAULT_ADDRESS, config: ClientConfig | None = None) -> None:
        """Open a channel; nothing is sent yet.

        Args:
            address: "host:port", "dns:///name:port" or "unix:/path".
            config: None for the defaults.
        """
        self.address = address
        self._config = config or ClientConfig()
        self._channel = open_channel(address, self._config)
        self._stub = TranslationServiceStub(self._channel)
        self._health: Any = HealthStub(self._channel)  # here, as it must not be made when the channel is closed

    def translate(
        self,
        texts: Iterable[str],
        *,
        options: TranslateOptions | None = None,
        model: str | None = None,
        source_language: str = "",
        target_language: str = "",
        priority: Priority | None = None,
        timeout_s: float | None = None,
    ) -> TranslateReply:
        """Translate these texts in one call; empty languages and model take the server's first choice.

        Raises:
            DragomanError: the call failed; `service.errors` has the kinds.
            TypeError: the texts are one str, or something among them is none; so in the other methods.
        """
        require_several(texts)
        request = to_request(
            list(texts),
            options=options,
            model=model,
            source_language=source_language,
            target_language=target_language,
            priority=priority,
        )
        return to_reply(self._answer(self._start(self._stub.Translate, request, timeout_s)), len(request.texts))

    def translate_all(
        self,
        texts: Iterable[str],
        *,
        options: TranslateOptions | None = None,
        model: str | None = None,
        source_language: str = "",
        target_language: str = "",
        priority: Priority | None = None,
        timeout_s: float | None = None,
    ) -> Iterator[Translation]:
        """Translate any number of texts, in order, `batch_size` a call and `max_calls` calls at a time.

        Fewer go into a call where they would not fit in a message; one that fits in none has that as its error.  Texts
        are taken from the iterable only as answers are taken from this iterator.

        Args:
            timeout_s: deadline of each call, not of the whole.

        Raises:
            DragomanError: a call failed; the others are cancelled.
        """
        calls: deque[tuple[Any, Batch]] = deque()
        waiting = batches(texts, self._config.batch_size, self._config.max_text_bytes)
        try:
            while True:
                for batch in islice(waiting, self._config.max_calls - len(calls)):
                    request = to_request(
                        batch.texts,
                        options=options,
                        model=model,
                        source_language=source_language,
                        target_language=target_language,
                        priority=priority,
                    )
                    calls.append((self._start(self._stub.Translate, request, timeout_s), batch))
                if not calls:
                    return
                call, batch = calls[0]
                yield from batch.answered(to_reply(self._answer(call), len(batch.texts)).translations)
                calls.popleft()
        finally:
            for call, _ in calls:
                call.cancel()

    def translate_stream(
        self,
        texts: Iterable[str],
        *,
        options: TranslateOptions | None = None,
        model: str | None = None,
        source_language: str = "",
        target_language: str = "",
        priority: Priority | None = None,
        timeout_s: float | None = None,
    ) -> Generator[tuple[int, Translation], None, None]:
        """Translate texts as they come: each one's number, from 0, with its translation as soon as that is there.

        Texts are read in a thread of its own, `max_stream_texts` ahead of the answers taken.  A stream that is
        interrupted is resumed with what has no answer; each text is answered once.  `close()` leaves it early.

        Args:
            timeout_s: deadline of the whole; None for none.  Without an answer in between, interruptions are tolerated
                for `ClientConfig.timeout_s`.

        Raises:
            DragomanError: the stream failed, or could not be resumed.
        """
        deadline = _deadline(timeout_s)
        call = StreamCall(
            lambda requests: self._stub.TranslateStream(requests, **_stream_options(self._config, deadline)),
            to_stream_settings(
                options=options,
                model=model,
                source_language=source_language,
                target_language=target_language,
                priority=priority,
            ),
            texts,
            _unanswered(self._config),
            to_error=domain_error,
            deadline=deadline,
        )
        return call.answers()

    def models(self, *, timeout_s: float | None = None) -> list[ModelInfo]:
        """The loaded models, in the order in which a request that names none tries them."""
        return to_models(self._answer(self._start(self._stub.ListModels, pb.ListModelsRequest(), timeout_s)))

    def wait_until_ready(self, timeout_s: float) -> None:
        """Return as soon as the server says SERVING; one that restarts meanwhile is waited for, too.

        Args:
            timeout_s: with 0 nothing is waited for: a server that is there is asked once whether it serves.

        Raises:
            Unavailable: it did not within the timeout.
        """
        wait_until_ready(self._health, self.address, timeout_s)

    def close(self) -> None:
        """Close the connections; whoever waits for an answer gets Unavailable."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, method: Any, request: object, timeout_s: float | None) -> Any:
        with closed_channel_is_unavailable():
            return method.future(request, **_call_options(self._config, timeout_s))

    def _answer(self, call: Any) -> Any:
        """The response of a call, or the error that its status stands for."""
        try:
            return call.result()
        except grpc.RpcError as error:
            failure = domain_error(error)
            if isinstance(failure, DeadlineExceeded):
                failure = _explained(failure, self.address, connection_failure(self._health))
            raise failure from error
        except grpc.FutureCancelledError as error:
            raise Unavailable(CLOSED) from error


class AsyncClient:
    """Calls a server from an event loop; belongs to the loop it was made in."""

    def __init__(self, address: str = DEFAULT_ADDRESS, config: ClientConfig | None = None) -> None:
        """Open a channel; nothing is sent yet.  Arguments as for `Client`."""
        self.address = address
        self._config = config or ClientConfig()
        self._channel = open_aio_channel(address, self._config)
        self._stub = TranslationServiceStub(self._channel)
        self._health: Any = HealthStub(self._channel)  # here, as it must not be made when the channel is closed

    async def translate(
        self,
        texts: Iterable[str],
        *,
        options: TranslateOptions | None = None,
        model: str | None = None,
        source_language: str = "",
        target_language: str = "",
        priority: Priority | None = None,
        timeout_s: float | None = None,
    ) -> TranslateReply:
        """As `Client.translate`; cancelling the task cancels the call."""
        require_several(texts)
        request = to_request(
            list(texts),
            options=options,
            model=model,
            source_language=source_language,
            target_language=target_language,
            priority=priority,
        )
        return await self._translate(request, timeout_s)

    async def translate_all(
        self,
        texts: Iterable[str],
        *,
        options: TranslateOptions | None = None,
        model: str | None = None,
        source_language: str = "",
        target_language: str = "",
        priority: Priority | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[Translation]:
        """As `Client.translate_all`."""
        calls: deque[tuple[asyncio.Task[TranslateReply], Batch]] = deque()
        waiting = batches(texts, self._config.batch_size, self._config.max_text_bytes)
        try:
            while True:
                for batch in islice(waiting, self._config.max_calls - len(calls)):
                    request = to_request(
                        batch.texts,
                        options=options,
                        model=model,
                        source_language=source_language,
                        target_language=target_language,
                        priority=priority,
                    )
                    calls.append((asyncio.create_task(self._translate(request, timeout_s)), batch))
                if not calls:
                    return
                call, batch = calls[0]
                for translation in batch.answered((await call).translations):
                    yield translation
                calls.popleft()
        finally:
            for call, _ in calls:
                call.cancel()
            await asyncio.gather(*(call for call, _ in calls), return_exceptions=True)

    def translate_stream(
        self,
        texts: Iterable[str] | AsyncIterable[str],
        *,
        options: TranslateOptions | None = None,
        model: str | None = None,
        source_language: str = "",
        target_language: str = "",
        priority: Priority | None = None,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[tuple[int, Translation], None]:
        """As `Client.translate_stream`, without a thread."""
        deadline = _deadline(timeout_s)
        call = AsyncStreamCall(
            lambda: self._stub.TranslateStream(**_stream_options(self._config, deadline)),
            to_stream_settings(
                options=options,
                model=model,
                source_language=source_language,
                target_language=target_language,
                priority=priority,
            ),
            texts,
            _unanswered(self._config),
            to_error=domain_error,
            deadline=deadline,
        )
        return call.answers()

    async def models(self, *, timeout_s: float | None = None) -> list[ModelInfo]:
        """As `Client.models`."""
        return to_models(await self._answer(self._stub.ListModels, pb.ListModelsRequest(), timeout_s))

    async def wait_until_ready(self, timeout_s: float) -> None:
        """As `Client.wait_until_ready`."""
        await wait_until_ready_async(self._health, self.address, timeout_s)

    async def close(self) -> None:
        """As `Client.close`: whoever waits for an answer gets Unavailable."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _translate(self, request: pb.TranslateRequest, timeout_s: float | None) -> TranslateReply:
        return to_reply(await self._answer(self._stub.Translate, request, timeout_s), len(request.texts))

    async def _answer(self, method: Any, request: object, timeout_s: float | None) -> Any:
        """The response of a call, or the error that its status stands for."""
        try:
            with closed_is_unavailable():
                return await method(request, **_call_options(self._config, timeout_s))
        except grpc.RpcError as error:
            failure = domain_error(error)
            if isinstance(failure, DeadlineExceeded):
                failure = _explained(failure, self.address, await connection_failure_async(self._health))
            raise failure from error


def _call_options(config: ClientConfig, timeout_s: float | None) -> dict[str, Any]:
    return {
        "timeout": config.timeout_s if timeout_s is None else timeout_s,
        "wait_for_ready": config.wait_for_ready,
        "metadata": call_metadata(config),
    }


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def _stream_options(config: ClientConfig, deadline: float | None) -> dict[str, Any]:
    """Of one connection of a stream; it does not wait for a server, as whoever resumes it knows how long to try."""
    return _call_options(config, None) | {
        "timeout": None if deadline is None else max(0.0, deadline - time.monotonic()),
        "wait_for_ready": False,
    }


def _unanswered(config: ClientConfig) -> Unanswered:
    return Unanswered(
        max_texts=config.max_stream_texts,
        max_text_bytes=config.max_text_bytes,
        give_up_s=config.timeout_s,
        retry=config.retry,
    )


def _explained(failure: DeadlineExceeded, address: str, no_connection: str) -> DeadlineExceeded:
    """The error of a deadline that passed; the same one where nothing is known to keep the client from connecting."""
    if not no_connection:
        return failure
    return DeadlineExceeded(f"no connection to {address} within the deadline: {no_connection}")
