"""The use case, whatever the protocol: texts in, translations out.

    admission -> model and search -> source ids -> the core -> text -> account

One text is one job, and each text succeeds or fails for itself.  Knows no protocol, and not where the core runs; what a
text is in tokens is the matter of the model's codec.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import TypeAlias, TypeVar

from service.config import LimitsConfig
from service.engine.job import SearchParams
from service.errors import DragomanError, InternalError, InvalidInput, Overloaded, Wait
from service.queue.admission import Admission, Permit
from service.records import NO_OPTIONS, Call, Caller, Identity, Translation, TranslationRequest, TranslationResult
from service.registry.catalogue import Catalogue, OnRoom, ServedModel, Settled, Work
from service.registry.model_info import BLANK_TRANSLATION, TextCodec, search_params
from service.translation.account import Account

# Below this a text costs less to tokenise (43 ms per million characters) than to hand to a thread.
INLINE_CHARACTERS = 4_096
INLINE_TOKENS = 2_048
WAIT_HOLDS_S = 0.01  # for so long, a refused caller's next calls are refused unread
MOST_WAITS = 4_096  # callers that can be told so; they come from outside

Encoded: TypeAlias = list[int] | InvalidInput  # source ids of a text, empty for a blank one, or why there are none
TranslateAdmitted: TypeAlias = Callable[[TranslationRequest, Call, Permit], Awaitable[TranslationResult]]
_Result = TypeVar("_Result")


class Pipeline:
    """Translates for every protocol of one process."""

    def __init__(
        self,
        catalogue: Catalogue,
        admission: Admission,
        account: Account,
        limits: LimitsConfig,
        executor: Executor,
    ) -> None:
        """Nothing is translated yet.

        Args:
            executor: for texts that are too long for the event loop.
        """
        self.admission = admission
        self.account = account
        self.catalogue = catalogue
        self.limits = limits
        self._executor = executor
        self._waits: dict[Identity, Wait] = {}  # told with the last refusal of each caller

    def refusal(self, caller: Caller, deadline: float) -> DragomanError | None:
        """Return why a call of this caller would be refused whatever it asks for; None: that is not known.

        Whoever was refused because it would be late need not ask again for a moment, unless it has more time: its next
        text, of usual length, would be late as well.

        Args:
            deadline: of the call, on time.monotonic().
        """
        now = time.monotonic()
        if (refusal := self.admission.refusal(caller, now=now, deadline=deadline)) is not None:
            return refusal
        wait = self._waits.get(caller.identity)
        if wait is None:
            return None
        if now - wait.at > WAIT_HOLDS_S:
            del self._waits[caller.identity]
            return None
        ahead_s, finish_s = (max(0.0, seconds - (now - wait.at)) for seconds in (wait.ahead_s, wait.finish_s))
        return self.admission.late(ahead_s, finish_s, now=now, deadline=deadline)

    async def translate(
        self, request: TranslationRequest, call: Call, translate_admitted: TranslateAdmitted | None = None
    ) -> TranslationResult:
        """Return one translation per text, in order; the call says where the time went.

        A text that is too long, or for which the model gave no numbers, carries its own error.

        Args:
            translate_admitted: what to do once the request has a permit; None: `translate_admitted` of this class.

        Raises:
            NotFound, InvalidInput: no model fits that the caller may use, or the request breaks a limit.
            Overloaded: the request does not fit in the queue, would wait too long or be too late.
            DeadlineExceeded, Unavailable: the whole call has no answer; jobs that still run are cancelled.
        """
        call.texts = len(request.texts)
        call.priority = call.caller.allowed(request.priority)
        with self.admission.admit(
            call.texts, now=time.monotonic(), deadline=call.deadline, caller=call.caller
        ) as permit:
            try:
                return await (translate_admitted or self.translate_admitted)(request, call, permit)
            except Overloaded as error:
                if error.wait is not None and len(self._waits) < MOST_WAITS:
                    self._waits[call.caller.identity] = error.wait
                raise

    async def translate_admitted(
        self,
        request: TranslationRequest,
        call: Call,
        permit: Permit,
        *,
        on_room: OnRoom = None,
        encoded: dict[TextCodec, list[Encoded]] | None = None,
    ) -> TranslationResult:
        """As `translate`, for a request that holds a permit and a call that knows its priority.

        Args:
            on_room: called once there is room for the texts, before they go to an engine.
            encoded: what earlier tries with these texts have encoded, by the codec of the model that they met.
        """
        model, params = self.resolve(request, call)
        with model.lease:
            num_characters = sum(map(len, request.texts))
            permit.take_characters(num_characters)
            is_small = num_characters <= INLINE_CHARACTERS
            if not is_small:  # refused before it costs anything
                model.refuse_early(call, permit)
            sources = encoded.get(model.codec) if encoded is not None else None
            if sources is None:
                sources = await self._encode(request.texts, model.codec, call, is_small=is_small)
                if encoded is not None:
                    encoded[model.codec] = sources
            wanted = [index for index, source in enumerate(sources) if isinstance(source, list) and source]
            call.finished_texts = len(sources) - len(wanted)
            results: dict[int, Settled] = {}
            beam_size = params.beam_size
            if wanted:
                ids = tuple(tuple(source) for source in sources if isinstance(source, list) and source)
                call.source_tokens = sum(map(len, ids))
                work = Work(ids, params, bool(request.options.allow_smaller_beam))
                done = await model.run(work, call, permit, on_room)
                results, beam_size = dict(zip(wanted, done.results, strict=True)), done.beam_size
            elif on_room is not None:
                on_room()
            translations = await self._decode(sources, results, model.codec, beam_size, call)
        result = TranslationResult(
            translations=translations, model=model.info.name, model_version=model.info.version, beam_size=beam_size
        )
        self.account.translated(request, result, call)
        return result

    def resolve(self, request: TranslationRequest, call: Call) -> tuple[ServedModel, SearchParams]:
        """Return the model that serves this request now, noted in the call, and how it is to search.

        Raises:
            NotFound: no model fits that the caller may use.
            InvalidInput: an option is out of range.
        """
        model = self.find_model(request, call)
        options = request.options
        return model, model.default_params if options is NO_OPTIONS else search_params(model.info, options)

    def find_model(self, request: TranslationRequest, call: Call) -> ServedModel:
        """Return the model that serves this request now, noted in the call; raises as `resolve`."""
        model = self.catalogue.find(
            model=request.model,
            source_language=request.source_language,
            target_language=request.target_language,
            allowed=call.models,
        )
        call.use_model(model.info.name)
        return model

    async def _encode(self, texts: Sequence[str], codec: TextCodec, call: Call, *, is_small: bool) -> list[Encoded]:
        call.phase = "tokenize"
        started = time.monotonic()
        if is_small:
            sources = _encode_all(codec, texts)
        else:
            sources = await self._in_thread(lambda: _encode_all(codec, texts))
        call.tokenize_s = time.monotonic() - started
        return sources

    async def _decode(
        self, sources: Sequence[Encoded], results: dict[int, Settled], codec: TextCodec, beam_size: int, call: Call
    ) -> list[Translation]:
        def decode() -> list[Translation]:
            return [_decode_one(codec, source, results.get(i), beam_size) for i, source in enumerate(sources)]

        call.phase = "detokenize"
        started = time.monotonic()
        translations = decode() if call.target_tokens <= INLINE_TOKENS else await self._in_thread(decode)
        call.detokenize_s = time.monotonic() - started
        return translations

    async def _in_thread(self, function: Callable[[], _Result]) -> _Result:
        """Return the function's result, computed in a thread, as other calls would wait."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)


def _encode_all(codec: TextCodec, texts: Sequence[str]) -> list[Encoded]:
    return [_encode_one(codec, text, index) for index, text in enumerate(texts)]


def _encode_one(codec: TextCodec, text: str, index: int) -> Encoded:
    try:
        return codec.encode(text, index)
    except InvalidInput as error:
        return error


def _decode_one(codec: TextCodec, source: Encoded, result: Settled | None, beam_size: int) -> Translation:
    if isinstance(source, InvalidInput):
        return Translation(error=source)
    if isinstance(result, InternalError):
        return Translation(error=result, source_tokens=len(source))
    if result is None:
        return BLANK_TRANSLATION
    hypotheses = codec.decode(result.hypotheses)
    return Translation(hypotheses=hypotheses, source_tokens=len(source), row_steps=beam_size * result.num_steps)
