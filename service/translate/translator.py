"""Translates texts for every protocol, with the model that serves their languages, and counts what was translated.

    admission -> model and search -> the work on each text, whose searches run together -> usage

Each text succeeds or fails for itself.  The translator knows no protocol, not where the engines run, and not what is
done to a text (`text.py`).
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TypeVar

from service.call import Call, Caller, Identity
from service.config import LimitsConfig
from service.engine.wire import Job, JobResult, SearchParams, Settled
from service.errors import (
    DragomanError,
    InvalidInput,
    Overloaded,
    Wait,
)
from service.models.call_scheduler import CallScheduler, Work
from service.models.catalogue import ServedModel
from service.models.info import search_params
from service.records import (
    NO_OPTIONS,
    ScoreRequest,
    Term,
    TextFormat,
    Translation,
    TranslationRequest,
    TranslationResult,
)
from service.scheduler.admission import Reservation
from service.telemetry.usage import UsageMeter
from service.threads import in_loop, loop_in_thread
from service.translate.glossaries import Glossaries, Glossary, check_terms
from service.translate.raw_translation import Settings, settings_of
from service.translate.search_batcher import SearchBatcher
from service.translate.text import translate_text

_Result = TypeVar("_Result")

# Below this a text costs less to tokenise (43 ms per million characters) than to hand to a thread.
INLINE_CHARACTERS = 4_096
# The longest time that the thread of long texts keeps the interpreter from the event loop.  A call waits for it several
# times; Python's own 5 ms are longer than the work for a call.
_SWITCH_S = 0.0005
WAIT_HOLDS_S = 0.01  # after a refusal, the next calls of the caller are refused unread for this time
MOST_WAITS = 4_096  # callers whose refusals are remembered; a bound, as callers come from outside


class Translator:
    """Translates for every protocol of one process."""

    def __init__(
        self,
        scheduler: CallScheduler,
        usage_meter: UsageMeter,
        limits: LimitsConfig,
        executor: Executor,
        glossaries: Glossaries | None = None,
    ) -> None:
        """Nothing is translated yet.

        Args:
            executor: for texts that are too long for the event loop.
            glossaries: that requests may name; None: there are none.
        """
        self.admission = scheduler.admission
        self.catalogue = scheduler.catalogue
        self.usage_meter = usage_meter
        self.limits = limits
        self.executor = executor
        self.scheduler = scheduler
        self._glossaries = glossaries or Glossaries(None, period_s=0.0)
        self._last_terms: tuple[tuple[Term, ...], Glossary | None] = (), None  # those of a stream are indexed once
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
        if not self._waits or (wait := self._waits.get(caller.identity)) is None:
            return None
        if now - wait.at > WAIT_HOLDS_S:
            del self._waits[caller.identity]
            return None
        ahead_s, finish_s = (max(0.0, seconds - (now - wait.at)) for seconds in (wait.ahead_s, wait.finish_s))
        return self.admission.late(ahead_s, finish_s, now=now, deadline=deadline)

    @contextmanager
    def admit(self, num_texts: int, call: Call, *, field: str = "texts") -> Iterator[Reservation]:
        """Give the reservation of a call with so many texts in this field; raises as `Admission.admit`."""
        call.texts = num_texts
        with self.admission.admit(
            num_texts, now=time.monotonic(), deadline=call.deadline, caller=call.caller, field=field
        ) as reservation:
            try:
                yield reservation
            except Overloaded as error:
                if error.wait is not None:
                    if len(self._waits) == MOST_WAITS:  # all are older than they hold, but for a few
                        self._waits.clear()
                    self._waits[call.caller.identity] = error.wait
                raise

    async def translate(self, request: TranslationRequest, call: Call, reservation: Reservation) -> TranslationResult:
        """Return one translation per text, in order; the call, which knows its priority, says where the time went.

        A text that is too long, or for which the model gave no numbers, carries its own error.

        Raises:
            NotFound, InvalidInput: no model fits that the caller may use, or the request breaks a limit.
            Overloaded: the request does not fit in the queue, would wait too long or be too late.
            DeadlineExceeded, Unavailable: the whole call has no answer; jobs that still run are cancelled.
        """
        model, params = self.resolve(request, call)
        with model.in_use:
            if not model.is_loaded:
                await self.scheduler.load(model, call, reservation)
                params = self._params(request, model)  # its tokenizer may have been missing
            num_characters = sum(map(len, request.texts))
            is_long = num_characters * params.num_hypotheses > INLINE_CHARACTERS
            if not reservation.is_of_stream:  # refused before it costs anything
                reservation.take_characters(num_characters)
                if is_long:
                    self.scheduler.refuse_early(model, call, reservation)
            calls = _EngineCalls(self.scheduler, model, request, call, reservation)
            settings = partial(settings_of, request, model.info, model.codec, params, self._glossary(request))
            if is_long:
                here = asyncio.get_running_loop()
                batcher = SearchBatcher(lambda jobs: in_loop(calls(jobs), here), in_turns=True)
                translations = await in_loop(_translate_texts(request, settings(batcher), call), self._long_texts)
            else:
                translations = await _translate_texts(request, settings(SearchBatcher(calls)), call)
            calls.text_work_ends()
        result = TranslationResult(
            translations=translations,
            model=model.info.name,
            model_version=model.info.version,
            beam_size=calls.beam_size or params.beam_size,
        )
        self.usage_meter.translated(request, result, call)
        return result

    async def in_executor(self, function: Callable[[], _Result], num_characters: int) -> _Result:
        """Return what the function returns; of much text in a thread, as other calls would wait."""
        if num_characters <= INLINE_CHARACTERS:
            return function()
        return await asyncio.get_running_loop().run_in_executor(self.executor, function)

    @cached_property
    def _long_texts(self) -> asyncio.AbstractEventLoop:
        sys.setswitchinterval(_SWITCH_S)
        return loop_in_thread("long-texts")

    def _glossary(self, request: TranslationRequest) -> Glossary | None:
        """Return the terms of a request, its own before those of the glossary that it names; None: it has none."""
        if not (request.terms or request.glossary_name):
            return None
        named = self._glossaries.find(request.glossary_name) if request.glossary_name else None
        if not request.terms and named is not None:
            return named
        if named is not None:
            return Glossary(request.terms, named)
        terms, glossary = self._last_terms
        if terms is not request.terms:
            glossary = Glossary(request.terms)
            self._last_terms = request.terms, glossary
        return glossary

    def resolve(self, request: TranslationRequest, call: Call) -> tuple[ServedModel, SearchParams]:
        """Return the model that serves this request now, noted in the call, and how it is to search.

        Raises:
            NotFound: no model fits that the caller may use.
            InvalidInput: an option is out of range, or what is asked for does not go together.
        """
        model = self.find_model(request, call)
        if request.terms or request.glossary_name or request.target_prefixes:
            self._check(request)
        return model, self._params(request, model)

    def _params(self, request: TranslationRequest, model: ServedModel) -> SearchParams:
        options = request.options
        if options is NO_OPTIONS:
            return model.default_params
        return search_params(model.info, options, model.codec if model.is_loaded else None)

    def _check(self, request: TranslationRequest) -> None:
        check_terms(request.terms)
        if request.glossary_name:
            self._glossaries.find(request.glossary_name)
        num_prefixes, num_texts = len(request.target_prefixes), len(request.texts)
        if num_prefixes not in (0, num_texts):
            message = (
                f"target_prefixes has {num_prefixes} entries for {num_texts} texts: one for each, or none, is needed"
            )
            raise InvalidInput(message, field="target_prefixes")
        if num_prefixes and request.format is not TextFormat.PLAIN:
            message = f"target_prefixes are for plain text only, and format is {request.format.value}"
            raise InvalidInput(message, field="target_prefixes")

    def find_model(self, request: TranslationRequest | ScoreRequest, call: Call) -> ServedModel:
        """Return the model that serves this request now, noted in the call; raises as `resolve`."""
        model = self.catalogue.find(
            model=request.model,
            source_language=request.source_language,
            target_language=request.target_language,
            allowed=call.models,
        )
        call.use_model(model.info.name)
        return model


class _EngineCalls:
    """What the texts of one request ask a model's engines for; notes in the call where the time goes."""

    def __init__(
        self,
        scheduler: CallScheduler,
        model: ServedModel,
        request: TranslationRequest,
        call: Call,
        reservation: Reservation,
    ) -> None:
        self.beam_size = 0  # of the first search
        self._run = partial(scheduler.run, model)
        self._request = request
        self._call = call
        self._reservation = reservation
        self._is_first = True
        self._since = time.monotonic()  # text work
        call.phase = "tokenize"

    async def __call__(self, jobs: Sequence[Job]) -> list[Settled]:
        """Return the outcome of each job."""
        self.text_work_ends()
        options, is_first = self._request.options, self._is_first
        work = Work(
            jobs,
            allow_smaller_beam=bool(options.allow_smaller_beam),
            may_use_cache=options.use_cache is not False,
            is_continuation=not is_first,
            characters=sum(map(len, self._request.texts)) if is_first else 0,
        )
        if is_first:
            self._is_first, self._call.source_tokens = False, sum([len(job.source_ids) for job in jobs])
        results = await self._run(work, self._call, self._reservation)
        self.beam_size = self.beam_size or next((one.beam_size for one in results if isinstance(one, JobResult)), 0)
        self._call.phase, self._since = "detokenize", time.monotonic()
        return results

    def text_work_ends(self) -> None:
        """Note the time since the request began, or since the last results came."""
        seconds = time.monotonic() - self._since
        if self._is_first:
            self._call.tokenize_s = seconds
        else:
            self._call.detokenize_s += seconds


async def _translate_texts(request: TranslationRequest, settings: Settings, call: Call) -> list[Translation]:
    """Return the translation of each text, in order; the call counts those that are done."""

    async def translate(index: int, text: str, prefix: str) -> Translation:
        translation = await translate_text(text, index, settings, prefix)
        call.finished_texts += 1
        return translation

    prefixes = request.target_prefixes or ("",) * len(request.texts)
    works = [
        translate(index, text, prefix) for index, (text, prefix) in enumerate(zip(request.texts, prefixes, strict=True))
    ]
    try:
        return await settings.batcher.together(works)
    finally:
        await settings.batcher.close()
