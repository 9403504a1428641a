"""TranslateStream: messages to texts, answers to messages, and the order of the steps between.

Reads on only while its stream has room, so flow control holds a client that sends faster than it reads or than the
server translates.  A text that admission refuses waits in line, unless it would be too late anyway; one whose engine is
lost, or has too little memory, is tried once more.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio

from protos import translation_pb2 as pb
from service.config import LimitsConfig
from service.engine.job import SearchParams
from service.errors import DeadlineExceeded, DragomanError, InvalidInput, OutOfMemory, Overloaded, TooLong, Unavailable
from service.grpc import priorities
from service.grpc.call import Call, current_call
from service.grpc.choice import choose, find_model
from service.grpc.servicer import SERVICE_NAME, to_translation
from service.grpc.status import code_of
from service.grpc.wire import Malformed, deserializer
from service.queue.admission import MIN_RETRY_S, Admission, Permit
from service.queue.callers import Identity, Priority
from service.queue.usage import UsageLog, usage_of
from service.queue.waiting_lines import WaitingLines
from service.records import Translation
from service.registry.host import ModelHost
from service.registry.registry import Registry
from service.telemetry.calls import Progress, follow
from service.telemetry.metrics import Metrics
from service.translation.text_stream import StreamAnswer, TextStream
from service.translation.translator import KeptSources, Translator

ALWAYS_TEXTS = 64  # in a message, whatever `limits.max_texts` says: this project's clients send so many
_LAST_MOMENT_S = 0.05  # timers of one moment, here and in an engine, fire in any order
METHOD = f"{SERVICE_NAME}/TranslateStream"

Requests = AsyncIterator[pb.TranslateStreamRequest | Malformed]


class StreamServicer:
    """Answers TranslateStream."""

    def __init__(
        self,
        registry: Registry,
        admission: Admission,
        lines: WaitingLines,
        metrics: Metrics,
        limits: LimitsConfig,
        usage: UsageLog,
        translator_of: Callable[[ModelHost], Translator],
    ) -> None:
        """A servicer without streams.

        Args:
            lines: told of everything that leaves `admission`.
        """
        self._registry = registry
        self._admission = admission
        self._lines = lines
        self._metrics = metrics
        self._limits = limits
        self._usage = usage
        self._translator_of = translator_of
        self._sessions: set[_Session] = set()
        metrics.watch("streams", lambda: len(self._sessions))
        metrics.watch("stream_texts", self._num_texts)

    async def translate_stream(self, requests: Requests, context: Any) -> AsyncIterator[pb.TranslateStreamResponse]:
        """The translations as they finish; see the contract for the statuses."""
        with self._session(self._admission.admit_stream(current_call().client)) as session:
            context.add_done_callback(lambda _: session.stream.cancel())  # gone while a message was being sent
            session.start(requests)
            while answers := await session.stream.answers():
                yield to_response(answers)

    def drain(self) -> None:
        """Read no more; every stream answers what it has taken in, and ends."""
        for session in self._sessions:
            session.drain()

    @contextmanager
    def _session(self, permit: Permit) -> Iterator["_Session"]:
        common = (self._registry, self._lines, self._metrics, self._limits, permit, self._usage)
        source = _TextSource(*common, self._translator_of)
        session = _Session(source, self._limits, permit)
        self._sessions.add(session)
        try:
            yield session
        finally:
            self._sessions.discard(session)
            session.close()

    def _num_texts(self) -> int:
        return sum(session.stream.num_held for session in self._sessions)


class _Session:
    """One call: its reader and its clock."""

    def __init__(self, source: "_TextSource", limits: LimitsConfig, permit: Permit) -> None:
        self._source = source
        self._limits = limits
        self._permit = permit
        self.stream = TextStream(source.translate, max_texts=limits.max_stream_texts)
        self._reader: asyncio.Task[None] | None = None
        remaining_s = source.call.deadline - time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, remaining_s), self._expire)

    def start(self, requests: Requests) -> None:
        """Begin to read."""
        self._reader = asyncio.create_task(self._read(requests))

    def drain(self) -> None:
        """Read no more, and end when what was taken in is answered."""
        if self._reader is not None:
            self._reader.cancel()
        self.stream.end_input(Unavailable("the server is draining; send what has no answer again"))

    def close(self) -> None:
        """Stop everything that still runs, and then give the place back."""
        self._timer.cancel()
        if self._reader is not None:
            self._reader.cancel()
        self.stream.cancel(self._permit.release)

    def _expire(self) -> None:
        """End it here; the call itself cannot end while its client does not read what is on the way to it."""
        self.stream.fail(DeadlineExceeded("the deadline passed before the stream ended"))
        self.close()

    async def _read(self, requests: Requests) -> None:
        try:
            await self._take_in_all(requests)
        except Exception as error:  # noqa: BLE001  the sender raises it
            self.stream.fail(error)
        else:
            self.stream.end_input()

    async def _take_in_all(self, requests: Requests) -> None:
        is_first = True
        async for request in requests:
            if isinstance(request, Malformed):
                raise InvalidInput(request.message, field=request.field)
            if is_first:
                self._source.choose(request.settings)
            elif request.HasField("settings"):
                raise InvalidInput("settings came again, only the first message may have them", field="settings")
            is_first = False
            self._check_num_texts(len(request.texts))
            await self.stream.take_in([(text.id, text.text) for text in request.texts])

    def _check_num_texts(self, given: int) -> None:
        limit = max(self._limits.max_texts, ALWAYS_TEXTS)
        if given > limit:
            message = f"texts has {given} entries, at most {limit} are accepted in a message"
            raise InvalidInput(message, field="texts")


class _TextSource:
    """What a stream's texts have in common, and the way of each of them."""

    def __init__(
        self,
        registry: Registry,
        lines: WaitingLines,
        metrics: Metrics,
        limits: LimitsConfig,
        permit: Permit,
        usage: UsageLog,
        translator_of: Callable[[ModelHost], Translator],
    ) -> None:
        self.call: Call = current_call()
        self.call.progress.phase = "stream"
        self._registry = registry
        self._lines = lines
        self._metrics = metrics
        self._limits = limits
        self._permit = permit
        self._usage = usage
        self._translator_of = translator_of
        self._settings = pb.StreamSettings()

    def choose(self, settings: pb.StreamSettings) -> None:
        """Translate with these settings.

        Raises:
            NotFound, InvalidInput: no text can be translated with them.
        """
        self._settings = settings
        self.call.priority = priorities.name_of(self._priority())
        self._choice()

    async def translate(self, text_id: int, text: str) -> StreamAnswer:
        """The answer to one text, also where that is an error of its own.

        Raises:
            DeadlineExceeded: the stream's.
        """
        own = Progress(late_from=self.call.progress.late_from)
        follow(own)  # this task's: texts that go on at a time have no phase in common
        self.call.progress.texts += 1
        answer = await self._answer(text_id, text)
        if answer.translation.error is not None:
            self._metrics.model(answer.model).stream_text_failed(code_of(answer.translation.error).name)
        self._add(own)
        return answer

    async def _answer(self, text_id: int, text: str) -> StreamAnswer:
        try:
            return await self._translate(text_id, text)
        except DragomanError as error:
            if isinstance(error, DeadlineExceeded) and time.monotonic() > self.call.deadline - _LAST_MOMENT_S:
                raise
            self._count_error(error)
            return StreamAnswer(id=text_id, translation=Translation(error=error), model=self.call.model)

    def _count_error(self, error: DragomanError) -> None:
        """Put a text without an answer in the books; the translator does so for what it says of a text itself."""
        if isinstance(error, TooLong):
            self._metrics.rejected("too_long")
        elif isinstance(error.__cause__, Overloaded):
            self._metrics.rejected(error.__cause__.reason)
        elif isinstance(error, Overloaded | Unavailable) and error.reason:
            self._metrics.rejected(error.reason)

    def _add(self, own: Progress) -> None:
        """A text has its answer: what it came to is the stream's."""
        total = self.call.progress
        total.finished_texts += 1
        total.source_tokens += own.source_tokens
        total.target_tokens += own.target_tokens

    async def _translate(self, text_id: int, text: str) -> StreamAnswer:
        limit = self._limits.max_characters
        if len(text) > limit:  # would wait for more room than there ever is
            message = f"the text has {len(text)} characters, at most {limit} are accepted"
            raise TooLong(message, field="texts.text")
        try:
            return await self._when_admitted(text_id, text)
        except (Unavailable, OutOfMemory):  # an engine was lost, or had too much at once, and the text is still here
            return await self._when_admitted(text_id, text)

    async def _when_admitted(self, text_id: int, text: str) -> StreamAnswer:
        line, sources = self._line(), KeptSources()
        retry_after_s: float | None = None
        if not self._lines.has_line(line):
            try:
                return await self._attempt(text_id, text, sources, on_admitted=_do_nothing)
            except OutOfMemory:
                raise
            except Overloaded as error:
                retry_after_s = _pause_s(error)
        with self._lines.queue(line) as place:
            while True:
                await place.turn(retry_after_s)
                try:
                    return await self._attempt(text_id, text, sources, on_admitted=place.enter)
                except OutOfMemory:
                    raise
                except Overloaded as error:
                    retry_after_s = _pause_s(error)
                    place.join()  # it has left where an engine was too full for what admission had let in

    def _line(self) -> tuple[Identity, str, Priority]:
        """Whoever waits there has the same reason: limits are of a client, of a model and of a class."""
        model = find_model(self._settings, self.call, self._registry)
        return (self.call.client.identity, model.info.name, self._priority())

    def _priority(self) -> Priority:
        return self.call.client.allowed(priorities.from_wire(self._settings.priority))

    async def _attempt(
        self, text_id: int, text: str, sources: KeptSources, *, on_admitted: Callable[[], None]
    ) -> StreamAnswer:
        """The answer of the model that serves now; raises Overloaded without room for it."""
        model, params = self._choice()
        priority = self._priority()
        with self._permit.part() as permit, model.lease:
            translations, timings = await self._translator_of(model).translate(
                [text],
                params,
                permit=permit,
                deadline=self.call.deadline,
                priority=priority,
                on_admitted=on_admitted,
                kept=sources,
            )
        of_model = self._metrics.model(model.info.name)
        of_model.translated(translations, timings, method=self.call.method, priority=self.call.priority)
        self._usage.add(permit.caller, usage_of([text], translations))
        return StreamAnswer(
            id=text_id,
            translation=_without_index(translations[0]),
            model=model.info.name,
            model_version=model.info.version,
            beam_size=params.beam_size,
        )

    def _choice(self) -> tuple[ModelHost, SearchParams]:
        """The model that serves these settings now, and how it is to search."""
        return choose(self._settings, self.call, self._registry, brownout_seconds=self._limits.brownout_seconds)


def add_to_server(servicer: StreamServicer, server: grpc.aio.Server) -> None:
    """Serve `servicer` on `server`, with a deserialiser that survives bad bytes."""
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.translate_stream,
        request_deserializer=deserializer(pb.TranslateStreamRequest),
        response_serializer=pb.TranslateStreamResponse.SerializeToString,
    )
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {"TranslateStream": handler}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))


def to_response(answers: list[StreamAnswer]) -> pb.TranslateStreamResponse:
    """The message for these answers, all of one model."""
    return pb.TranslateStreamResponse(
        translations=[
            pb.StreamTranslation(
                id=answer.id,
                translation=to_translation(answer.translation),
                model_version=answer.model_version,
                beam_size=answer.beam_size,
            )
            for answer in answers
        ],
        model=answers[0].model,
    )


def _without_index(translation: Translation) -> Translation:
    """The translation, its error without a place in a list: a text of a stream has an id instead."""
    error = translation.error
    if not isinstance(error, InvalidInput):
        return translation
    message = str(error).replace("texts[0]", "the text", 1)
    return replace(translation, error=type(error)(message, field="texts.text"))


def _pause_s(error: Overloaded) -> float:
    """How long the first in line waits at most before it tries again.

    Raises:
        DeadlineExceeded: waiting is of no use.
    """
    if error.reason == "deadline_unattainable":
        raise DeadlineExceeded(str(error)) from error
    return max(error.retry_after_s, MIN_RETRY_S)  # limits.retry_after_s may be 0: it would do nothing but try


def _do_nothing() -> None:
    pass
