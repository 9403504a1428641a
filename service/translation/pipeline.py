"""The use case, whatever the protocol: texts in, translations out.

    admission -> model and search -> source ids -> room in the queue -> jobs -> text -> account

One text is one job, and each text succeeds or fails for itself.  Knows no protocol, and not where the engines run; what
a text is in tokens is the model's codec's matter.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TypeAlias, TypeVar

from service.config import LimitsConfig
from service.engine.job import JobResult, SearchParams
from service.errors import DeadlineExceeded, InternalError, InvalidInput
from service.queue.admission import Admission, Permit
from service.records import Call, Translation, TranslationRequest, TranslationResult
from service.registry.host import ModelHost
from service.registry.model_info import BLANK_TRANSLATION, TextCodec, search_params, smaller_beam
from service.registry.registry import Registry
from service.translation.account import Account

# Below this a text costs less to tokenise (43 ms per million characters) than to hand to a thread.
INLINE_CHARACTERS = 4_096
INLINE_TOKENS = 2_048

Encoded: TypeAlias = list[int] | InvalidInput  # source ids of a text, empty for a blank one, or why there are none
Settled: TypeAlias = JobResult | InternalError  # an error that concerns this text only
_Result = TypeVar("_Result")


class Pipeline:
    """Translates for every edge of one server."""

    def __init__(
        self, registry: Registry, admission: Admission, account: Account, limits: LimitsConfig, executor: Executor
    ) -> None:
        """Nothing is translated yet.

        Args:
            executor: for texts that are too long for the event loop.
        """
        self.admission = admission
        self.account = account
        self.limits = limits
        self._registry = registry
        self._executor = executor

    async def translate(self, request: TranslationRequest, call: Call) -> TranslationResult:
        """Return one translation per text, in order; the call says where the time went.

        A text that is too long, or for which the model gave no numbers, carries its own error.

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
            return await self.translate_admitted(request, call, permit)

    async def translate_admitted(
        self,
        request: TranslationRequest,
        call: Call,
        permit: Permit,
        *,
        on_room: Callable[[], None] | None = None,
        encoded: dict[TextCodec, Sequence[Encoded]] | None = None,
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
                _check_time((), model, params, call, permit)
            encoded = {} if encoded is None else encoded
            sources = await self._encode(request.texts, model.codec, call, encoded, is_small=is_small)
            lengths = [len(source) for source in sources if isinstance(source, list) and source]
            call.source_tokens = sum(lengths)
            permit.take_tokens(call.source_tokens)
            _check_time(lengths, model, params, call, permit)
            if on_room is not None:
                on_room()
            results = await self._run(sources, model, params, call)
            translations = await self._decode(sources, results, model.codec, params, call)
        result = TranslationResult(
            translations=translations,
            model=model.info.name,
            model_version=model.info.version,
            beam_size=params.beam_size,
        )
        self.account.translated(request, result, call)
        return result

    def resolve(self, request: TranslationRequest, call: Call) -> tuple[ModelHost, SearchParams]:
        """Return the model that serves this request now, noted in the call, and how it is to search.

        The search is smaller than usual where much work waits and the caller allows it.

        Raises:
            NotFound: no model fits that the caller may use.
            InvalidInput: an option is out of range.
        """
        model = self.find_model(request, call)
        params = search_params(model.info, request.options)
        if request.options.allow_smaller_beam:
            waiting_s, threshold_s = model.dispatcher.queued_work_s, self.limits.brownout_seconds
            params = smaller_beam(params, waiting_s=waiting_s, threshold_s=threshold_s)
        return model, params

    def find_model(self, request: TranslationRequest, call: Call) -> ModelHost:
        """Return the model that serves this request now, noted in the call; raises as `resolve`."""
        model = self._registry.find(
            model=request.model,
            source_language=request.source_language,
            target_language=request.target_language,
            may_use=call.may_use,
        )
        call.use_model(model.info.name)
        return model

    async def _encode(
        self,
        texts: Sequence[str],
        codec: TextCodec,
        call: Call,
        encoded: dict[TextCodec, Sequence[Encoded]],
        *,
        is_small: bool,
    ) -> Sequence[Encoded]:
        call.phase = "tokenize"
        if codec not in encoded:
            started = time.monotonic()
            encoded[codec] = await self._compute(
                is_small, lambda: [_encode_one(codec, text, index) for index, text in enumerate(texts)]
            )
            call.tokenize_s = time.monotonic() - started
        return encoded[codec]

    async def _run(
        self, sources: Sequence[Encoded], model: ModelHost, params: SearchParams, call: Call
    ) -> dict[int, Settled]:
        """Return the results of the texts that need the model, by index.

        Raises:
            DragomanError: the first error that concerns all texts.
        """
        call.phase = "queue"
        wanted = {index: source for index, source in enumerate(sources) if isinstance(source, list) and source}
        call.finished_texts = len(sources) - len(wanted)
        jobs: dict[int, asyncio.Future[JobResult]] = {}
        # The longest first: they take the most steps, and the call is answered when its last text is.
        for index in sorted(wanted, key=lambda index: -len(wanted[index])):
            jobs[index] = model.dispatcher.submit(wanted[index], params, call)
            jobs[index].add_done_callback(partial(_count, call))
        try:
            return dict(zip(jobs, await _settled(jobs.values()), strict=True))
        except DeadlineExceeded as error:
            for job in jobs.values():
                if not job.done():
                    job.set_exception(error)  # as late as the call: nobody has cancelled it
            raise
        finally:
            for job in jobs.values():
                job.cancel()  # does nothing to those that are done

    async def _decode(
        self,
        sources: Sequence[Encoded],
        results: dict[int, Settled],
        codec: TextCodec,
        params: SearchParams,
        call: Call,
    ) -> list[Translation]:
        call.phase = "detokenize"
        started = time.monotonic()
        translations = await self._compute(
            call.target_tokens <= INLINE_TOKENS,
            lambda: [_decode_one(codec, ids, results.get(i), params.beam_size) for i, ids in enumerate(sources)],
        )
        call.detokenize_s = time.monotonic() - started
        return translations

    async def _compute(self, is_small: bool, function: Callable[[], _Result]) -> _Result:
        """Return the function's result, computed here if it is small, else in a thread, as other calls would wait."""
        if is_small:
            return function()
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)


def _check_time(lengths: Sequence[int], model: ModelHost, params: SearchParams, call: Call, permit: Permit) -> None:
    """Refuse texts with so many source tokens each if they would wait too long or be too late."""
    ahead_s, finish_s = model.dispatcher.forecast(lengths, params, call)
    permit.check(ahead_s, finish_s, now=time.monotonic(), deadline=call.deadline)


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


def _count(call: Call, job: "asyncio.Future[JobResult]") -> None:
    """Note in the call that a job has settled."""
    if job.cancelled():
        return
    error = job.exception()
    if error is None:
        call.job_finished(job.result())
    elif isinstance(error, InternalError):
        call.finished_texts += 1


async def _settled(jobs: Collection["asyncio.Future[JobResult]"]) -> list[Settled]:
    """Return what became of each job; raise the first error that concerns more than its own text."""
    pending = set(jobs)
    while pending:
        _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
        for job in jobs:
            if job.done() and (error := job.exception()) and not isinstance(error, InternalError):
                raise error
    return [error if isinstance(error := job.exception(), InternalError) else job.result() for job in jobs]
