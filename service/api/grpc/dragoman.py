"""dragoman.v1.TranslationService: messages to records and back; texts of a stream as they come.

Errors leave as exceptions of `errors.py`; `handlers.py` gives them a status.  A stream reads on only while it has room,
so flow control holds a client that sends faster than it reads or than the server translates.
"""

import asyncio
import time
from collections.abc import AsyncIterator

from protos import translation_pb2 as pb
from service.api.grpc.messages import (
    decode_request,
    decode_score_request,
    encode_answers,
    encode_detected,
    encode_model,
    encode_result,
    encode_scores,
)
from service.call import Call
from service.errors import DeadlineExceeded, InvalidInput, Unavailable
from service.models.call_scheduler import CallScheduler
from service.models.catalogue import languages_of
from service.scheduler.admission import Reservation
from service.telemetry.metrics import Metrics
from service.translate.router import Router
from service.translate.scoring import score
from service.translate.stream import StreamBuffer, StreamTranslator

SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"]
TRANSLATE = f"{SERVICE.full_name}/Translate"
SCORE = f"{SERVICE.full_name}/Score"
TRANSLATE_STREAM = f"{SERVICE.full_name}/TranslateStream"
ALWAYS_TEXTS = 64  # in a message, whatever `limits.max_texts` says: this project's clients send so many

Requests = AsyncIterator[pb.TranslateStreamRequest]


class TranslationServicer:
    """Answers all methods of the service."""

    def __init__(self, router: Router, scheduler: CallScheduler, metrics: Metrics) -> None:
        """Serve no stream yet."""
        self._router = router
        self._scheduler = scheduler
        self._sessions: set[_Session] = set()
        metrics.watch("streams", lambda: len(self._sessions))
        metrics.watch("stream_texts", lambda: sum(session.stream.num_held for session in self._sessions))

    async def translate(self, request: pb.TranslateRequest, call: Call) -> pb.TranslateResponse:
        """Return one translation per text; the contract has the statuses."""
        result = await self._router.translate(decode_request(request), call)
        return encode_result(result, call)

    async def score(self, request: pb.ScoreRequest, call: Call) -> pb.ScoreResponse:
        """Return one score per pair; the contract has the statuses."""
        return encode_scores(await score(self._router.translator, decode_score_request(request), call))

    async def detect_language(self, request: pb.DetectLanguageRequest, call: Call) -> pb.DetectLanguageResponse:
        """Return the language of each text; the contract has the statuses."""
        return encode_detected(await self._router.detect(request.texts, call))

    async def list_models(self, request: pb.ListModelsRequest, call: Call) -> pb.ListModelsResponse:
        """Return the models that the caller may use; none while the server starts."""
        infos = self._router.infos(call)
        return pb.ListModelsResponse(models=[encode_model(info, languages_of(info)) for info in infos])

    async def translate_stream(self, requests: Requests, call: Call) -> AsyncIterator[pb.TranslateStreamResponse]:
        """Yield the translations as they finish; the contract has the statuses."""
        reservation = await self._scheduler.open_stream(call.caller)
        call.phase = "stream"
        session = _Session(self._router, requests, call, reservation)
        self._sessions.add(session)
        call.on_gone = session.stream.cancel  # the client may also leave while a message is being sent to it
        try:
            while answers := await session.stream.answers():
                yield encode_answers(answers)
        finally:
            call.on_gone = None  # it leads back to the call
            self._sessions.discard(session)
            session.close()

    def drain(self) -> None:
        """Read no more; every stream answers what it has taken in, and ends."""
        for session in self._sessions:
            session.drain()


class _Session:
    """One stream: its reader, which begins at once, and its clock."""

    def __init__(self, router: Router, requests: Requests, call: Call, reservation: Reservation) -> None:
        self._texts = StreamTranslator(router, call, reservation)
        limits = router.translator.limits
        self.stream = StreamBuffer(self._texts.translate, max_texts=limits.max_stream_texts)
        self._max_texts = max(limits.max_texts, ALWAYS_TEXTS)
        self._reservation = reservation
        self._reader = asyncio.create_task(self._read(requests))
        remaining_s = call.deadline - time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, remaining_s), self._expire)

    def drain(self) -> None:
        """Read no more, and end when what was taken in is answered."""
        self._reader.cancel()
        self.stream.end_input(Unavailable("the server is draining; send what has no answer again"))

    def close(self) -> None:
        """Stop everything that still runs, and then give the place back."""
        self._timer.cancel()
        self._reader.cancel()
        self.stream.cancel(self._reservation.release)

    def _expire(self) -> None:
        """End the stream here; the call itself cannot end while its client does not read what is on the way to it."""
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
            if is_first:
                self._texts.use(decode_request(request.settings))
            elif request.HasField("settings"):
                raise InvalidInput("settings came again, only the first message may have them", field="settings")
            is_first = False
            if len(request.texts) > self._max_texts:
                given, limit = len(request.texts), self._max_texts
                message = f"texts has {given} entries, at most {limit} are accepted in a message"
                raise InvalidInput(message, field="texts")
            await self.stream.take_in([(text.id, text.text) for text in request.texts])
