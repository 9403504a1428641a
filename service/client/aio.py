"""The client for asyncio; that for threads is a facade of it.

What goes wrong with a call is raised as an error of `service.errors` with the gRPC error as its cause; what goes wrong
with one text of several stays in that text's `Translation`.
"""

import asyncio
import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import Future
from contextlib import closing
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack

import grpc
from grpc_health.v1.health_pb2_grpc import HealthStub

from protos import translation_pb2 as pb
from protos.translation_pb2_grpc import TranslationServiceStub
from service.client.channel import DEFAULT_ADDRESS, ClientConfig, call_metadata, open_aio_channel, proxy_on_the_way
from service.client.failures import closed_is_unavailable, connection_failure, domain_error, wait_until_ready
from service.client.messages import (
    check_encodable,
    decode_detected,
    decode_models,
    decode_result,
    decode_scores,
    encode_request,
    encode_score_request,
    encode_settings,
)
from service.client.texts import CallTexts, StreamCall, Unanswered, require_several, split_into_calls
from service.errors import DeadlineExceeded
from service.ranges import SECONDS, WAIT
from service.records import (
    DetectedLanguage,
    ModelInfo,
    Priority,
    ScorePair,
    ScoreRequest,
    ScoreResult,
    Term,
    TextFormat,
    TranslateOptions,
    Translation,
    TranslationRequest,
    TranslationResult,
)


class RequestOptions(TypedDict, total=False):
    """What a caller may say beside the texts; all of it may be left out."""

    options: TranslateOptions | None
    model: str | None  # None: the first one that fits the languages
    source_language: str  # BCP 47; empty: the model's
    target_language: str
    priority: Priority | None  # None: the highest that the caller may have
    format: TextFormat
    return_alignments: bool
    terms: tuple[Term, ...]  # and how they are to be translated
    glossary_name: str  # of a glossary that the server has
    target_prefixes: tuple[str, ...]  # what each translation has to begin with; one for each text


class ScoreOptions(TypedDict, total=False):
    """Fields of `ScoreRequest` beside the pairs."""

    model: str | None
    source_language: str
    target_language: str
    priority: Priority | None
    return_alignments: bool


def request_of(texts: Sequence[str] = (), **wanted: Unpack[RequestOptions]) -> TranslationRequest:
    """Return the request for these texts."""
    wanted["options"] = wanted.get("options") or TranslateOptions()
    return TranslationRequest(texts=texts, **wanted)  # type: ignore[arg-type]  # the options are not None


Item = TypeVar("Item")
Call = TypeVar("Call", bound="asyncio.Task[Any] | Future[Any]")


def in_turn(
    items: Iterator[Item], start: Callable[[Item], Call], max_calls: int
) -> Generator[tuple[Item, Call], None, None]:
    """Start up to `max_calls` calls at a time and yield them in order; those that are left at the end are cancelled."""
    calls: deque[tuple[Item, Call]] = deque()
    try:
        while True:
            for item in islice(items, max_calls - len(calls)):
                calls.append((item, start(item)))
            if not calls:
                return
            yield calls[0]
            calls.popleft()
    finally:
        for _, call in calls:
            call.cancel()


class AsyncClient:
    """Calls a server from an event loop; belongs to the loop in which it is made."""

    def __init__(self, address: str = DEFAULT_ADDRESS, config: ClientConfig | None = None) -> None:
        """Open a channel; nothing is sent yet.

        Args:
            address: "host:port", "dns:///name:port" or "unix:/path".
            config: None for the defaults.

        Raises:
            ValueError: the address is none.
        """
        self.address = address
        self.config = config or ClientConfig()
        self._channel = open_aio_channel(address, self.config)
        self._way = proxy_on_the_way(address)
        self._stub = TranslationServiceStub(self._channel)
        self._health: Any = HealthStub(self._channel)  # here, as it must not be made when the channel is closed

    async def translate(
        self, texts: Iterable[str], *, timeout_s: float | None = None, **wanted: Unpack[RequestOptions]
    ) -> TranslationResult:
        """Translate these texts in one call; empty languages and model take the server's first choice.

        Cancelling the task cancels the call.

        Raises:
            DragomanError: the call failed; `service.errors` has the kinds.
            TypeError: the texts are one str, or something among them is none; so in the other methods.
        """
        require_several(texts)
        return await self.send(request_of(list(texts), **wanted), timeout_s)

    async def translate_all(
        self, texts: Iterable[str], *, timeout_s: float | None = None, **wanted: Unpack[RequestOptions]
    ) -> AsyncIterator[Translation]:
        """Translate any number of texts, in order, `batch_size` a call and `max_calls` calls at a time.

        Fewer go into a call where they would not fit in a message; one that fits in none has that as its error.  Texts
        are taken from the iterable only as answers are taken from this iterator.

        Args:
            timeout_s: deadline of each call, not of the whole.

        Raises:
            DragomanError: a call failed; the others are cancelled.
        """
        tasks: list[asyncio.Task[TranslationResult]] = []

        def start(part: CallTexts) -> asyncio.Task[TranslationResult]:
            task = asyncio.create_task(self.send(request_of(part.texts, **wanted), timeout_s))
            tasks.append(task)
            return task

        parts = split_into_calls(texts, self.config.batch_size, self.config.max_text_bytes)
        try:
            with closing(in_turn(parts, start, self.config.max_calls)) as calls:
                for part, call in calls:
                    for translation in part.answered((await call).translations):
                        yield translation
                    tasks.remove(call)
        finally:
            await asyncio.gather(*tasks, return_exceptions=True)

    def translate_stream(
        self,
        texts: Iterable[str] | AsyncIterable[str],
        *,
        timeout_s: float | None = None,
        **wanted: Unpack[RequestOptions],
    ) -> AsyncGenerator[tuple[int, Translation], None]:
        """Translate texts as they come: each one's number, from 0, with its translation as soon as that is there.

        Texts are read `max_stream_texts` ahead of the answers taken.  A stream that is interrupted is resumed with
        what has no answer; each text is answered once.  `aclose()` leaves it early.

        Args:
            timeout_s: deadline of the whole; None for none.  Without an answer in between, interruptions are tolerated
                for `ClientConfig.timeout_s`.

        Raises:
            DragomanError: the stream failed, or could not be resumed.
        """
        require_several(texts)
        return _one_by_one(self.stream(request_of(**wanted), texts, timeout_s))

    async def score(
        self, pairs: Iterable[tuple[str, str]], *, timeout_s: float | None = None, **wanted: Unpack[ScoreOptions]
    ) -> ScoreResult:
        """Return what a model thinks of texts and translations of them: the log-probability of each token.

        Raises:
            FailedPrecondition: the model's bundle has no graph for it (`ModelInfo.has_scorer`).
            DragomanError: the call failed otherwise.
        """
        request = ScoreRequest(pairs=[ScorePair(*pair) for pair in pairs], **wanted)
        response = await self._answer(self._stub.Score, encode_score_request(request), timeout_s)
        return decode_scores(response, len(request.pairs))

    async def detect_languages(self, texts: Iterable[str], *, timeout_s: float | None = None) -> list[DetectedLanguage]:
        """Return the language of each text, among those that the server's models translate.

        Raises:
            DragomanError: the call failed.
        """
        require_several(texts)
        asked = list(texts)
        for index, text in enumerate(asked):
            check_encodable(text, f"texts[{index}]")
        response = await self._answer(self._stub.DetectLanguage, pb.DetectLanguageRequest(texts=asked), timeout_s)
        return decode_detected(response, len(asked))

    async def models(self, *, timeout_s: float | None = None) -> list[ModelInfo]:
        """Return the loaded models, in the order in which a request that names none tries them."""
        return decode_models(await self._answer(self._stub.ListModels, pb.ListModelsRequest(), timeout_s))

    async def wait_until_ready(self, timeout_s: float) -> None:
        """Return as soon as the server says SERVING; one that restarts meanwhile is waited for, too.

        Args:
            timeout_s: with 0 nothing is waited for: a server that is there is asked once whether it serves.

        Raises:
            Unavailable: it did not within the timeout.
        """
        WAIT.check("timeout_s", timeout_s)
        await wait_until_ready(self._health, self.address, timeout_s, self._way)

    async def close(self) -> None:
        """Close the connections; whoever waits for an answer gets Unavailable."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def send(self, request: TranslationRequest, timeout_s: float | None) -> TranslationResult:
        """Send one request and return the answer."""
        response = await self._answer(self._stub.Translate, encode_request(request), timeout_s)
        return decode_result(response, len(request.texts))

    def stream(
        self, wanted: TranslationRequest, texts: Iterable[str] | AsyncIterable[str], timeout_s: float | None
    ) -> StreamCall:
        """Return a stream of these texts; raises InvalidInput for an option that cannot be sent."""
        if timeout_s is not None:
            SECONDS.check("timeout_s", timeout_s)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s

        def open_stream() -> Any:
            # It does not wait for a server, as the stream that resumes it knows how long to try.
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            return self._stub.TranslateStream(timeout=left_s, wait_for_ready=False, metadata=call_metadata(self.config))

        unanswered = Unanswered(max_text_bytes=self.config.max_text_bytes, give_up_s=self.config.timeout_s)
        return StreamCall(
            open_stream,
            encode_settings(wanted),
            texts,
            unanswered,
            max_ahead=self.config.max_stream_texts,
            deadline=deadline,
            way=self._way,
        )

    async def _answer(self, method: Any, request: object, timeout_s: float | None) -> Any:
        """Return the response of a call, or raise the error that its status stands for."""
        if timeout_s is not None:
            SECONDS.check("timeout_s", timeout_s)
        try:
            with closed_is_unavailable():
                return await method(
                    request,
                    timeout=self.config.timeout_s if timeout_s is None else timeout_s,
                    wait_for_ready=self.config.wait_for_ready,
                    metadata=call_metadata(self.config),
                )
        except grpc.RpcError as error:
            failure = domain_error(error, self._way)
            if isinstance(failure, DeadlineExceeded) and (why := await connection_failure(self._health, self._way)):
                failure = DeadlineExceeded(f"no connection to {self.address} within the deadline: {why}")
            raise failure from error


async def _one_by_one(call: StreamCall) -> AsyncGenerator[tuple[int, Translation], None]:
    try:
        while answers := await call.next_answers():
            for answer in answers:
                yield answer
    finally:
        await call.close()
