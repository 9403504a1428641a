"""The use case, whatever the protocol: texts in, translations out.

    admission -> model and search -> rounds of (text work -> the core) -> account

Each text succeeds or fails for itself.  Knows no protocol, not where the core runs, and nothing of what is done to a
text (`text_work.py`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from typing import Any, TypeAlias

from service.call import Call, Caller, Identity
from service.config import LimitsConfig
from service.engine.job import SearchParams
from service.errors import DragomanError, InvalidInput, Overloaded, Wait
from service.queue.admission import Admission, Permit
from service.records import NO_OPTIONS, ModelInfo, Term, TextFormat, Translation, TranslationRequest, TranslationResult
from service.registry.catalogue import Catalogue, OnRoom, ServedModel, Work, WorkDone
from service.registry.glossaries import Glossaries
from service.registry.model_info import TextCodec, for_languages, search_params
from service.text.glossary import NO_TERMS, Glossary, check_terms
from service.translation.account import Account
from service.translation.drafts import settings_of
from service.translation.tasks import Reply, Rounds, Task, together
from service.translation.text_work import translate_text

# Below this a text costs less to tokenise (43 ms per million characters) than to hand to a thread.
INLINE_CHARACTERS = 4_096
INLINE_TOKENS = 2_048
WAIT_HOLDS_S = 0.01  # for so long, a refused caller's next calls are refused unread
MOST_WAITS = 4_096  # callers that can be told so; they come from outside

TranslateAdmitted: TypeAlias = Callable[[TranslationRequest, Call, Permit], Awaitable[TranslationResult]]


class RequestWork:
    """The work on a request's texts, as far as it has come: a round that failed may be run again."""

    def __init__(self, works: Sequence[Rounds[Translation]]) -> None:
        self._rounds = together(works)
        self.tasks: list[Task] = []  # what the engine has to do next; none: it has not begun, or is done
        self.translations: list[Translation] = []
        self.num_rounds = 0  # that are done
        self.beam_size = 0  # of the first search

    def advance(self, replies: list[Reply]) -> None:
        """Go on with the replies to the tasks; with none at the beginning."""
        try:
            if self.tasks:
                self.num_rounds += 1
                self.beam_size = self.beam_size or replies[0].beam_size
                self.tasks = self._rounds.send(replies)
            else:
                self.tasks = next(self._rounds)
        except StopIteration as stop:
            self.tasks, self.translations = [], stop.value


class Pipeline:
    """Translates for every protocol of one process."""

    def __init__(
        self,
        catalogue: Catalogue,
        admission: Admission,
        account: Account,
        limits: LimitsConfig,
        executor: Executor,
        glossaries: Glossaries | None = None,
    ) -> None:
        """Nothing is translated yet.

        Args:
            executor: for texts that are too long for the event loop.
            glossaries: that requests may name; None: there are none.
        """
        self.admission = admission
        self.account = account
        self.catalogue = catalogue
        self.limits = limits
        self.executor = executor
        self._glossaries = glossaries or Glossaries(None, period_s=0.0)
        self._last_terms: tuple[tuple[Term, ...], Glossary] = (), NO_TERMS  # those of a stream are indexed once
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
        begun: dict[TextCodec, RequestWork] | None = None,
    ) -> TranslationResult:
        """As `translate`, for a request that holds a permit and a call that knows its priority.

        Args:
            on_room: called once there is room for the texts, before they go to an engine.
            begun: how far earlier tries with these texts have come, by the codec of the model that they met.
        """
        model, params = self.resolve(request, call)
        with model.lease:
            if not model.is_loaded:
                await model.load(call, permit)
                params = self._params(request, model)  # its tokenizer may have been missing
            num_characters = sum(map(len, request.texts))
            permit.take_characters(num_characters)
            is_small = num_characters <= INLINE_CHARACTERS
            if not is_small:  # refused before it costs anything
                model.refuse_early(call, permit)
            work = begun.get(model.codec) if begun is not None else None
            if work is None:
                work = RequestWork(self._works(request, model, params, call))
                call.phase = "tokenize"
                started = time.monotonic()
                await self._advance(work, [], in_thread=not is_small)
                call.tokenize_s = time.monotonic() - started
                if begun is not None:
                    begun[model.codec] = work
            if on_room is not None and not work.tasks:
                on_room()
            while work.tasks:
                replies = await _run_round(work, model, request, call, permit, on_room)
                call.phase = "detokenize"
                started = time.monotonic()
                await self._advance(work, replies, in_thread=call.target_tokens > INLINE_TOKENS)
                call.detokenize_s += time.monotonic() - started
        result = TranslationResult(
            translations=work.translations,
            model=model.info.name,
            model_version=model.info.version,
            beam_size=work.beam_size or params.beam_size,
        )
        self.account.translated(request, result, call)
        return result

    def _works(
        self, request: TranslationRequest, model: ServedModel, params: SearchParams, call: Call
    ) -> list[Rounds[Translation]]:
        """Return the work on each text of a request."""
        info, codec = for_request(model, request.source_language, request.target_language)
        settings = settings_of(request, info, codec, params, self._glossary(request))
        prefixes = request.target_prefixes or ("",) * len(request.texts)
        return [
            _counted(translate_text(text, index, settings, prefix), call)
            for index, (text, prefix) in enumerate(zip(request.texts, prefixes, strict=True))
        ]

    def _glossary(self, request: TranslationRequest) -> Glossary:
        """Return the terms of a request, its own before those of the glossary that it names."""
        if not (request.terms or request.glossary_name):
            return NO_TERMS
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

    async def _advance(self, work: RequestWork, replies: list[Reply], *, in_thread: bool) -> None:
        """Take the work on texts one round further; in a thread if other calls would have to wait for long."""
        if in_thread:
            await asyncio.get_running_loop().run_in_executor(self.executor, work.advance, replies)
        else:
            work.advance(replies)


def for_request(model: ServedModel, source_language: str, target_language: str) -> tuple[ModelInfo, TextCodec]:
    """Return model and codec for these languages; those of a model of one pair are the same for all."""
    if not model.info.languages:
        return model.info, model.codec
    info = for_languages(model.info, source_language, target_language)
    return info, model.codec.between(info.source_language, info.target_language)


def _counted(work: Rounds[Translation], call: Call) -> Rounds[Translation]:
    """Note in the call when the work on a text is done."""
    translation = yield from work
    call.finished_texts += 1
    return translation


async def _run_round(
    work: RequestWork, model: ServedModel, request: TranslationRequest, call: Call, permit: Permit, on_room: OnRoom
) -> list[Reply]:
    """Return the replies to the tasks of a round; tasks that search alike run as one."""
    tasks, is_continuation = work.tasks, work.num_rounds > 0
    if not is_continuation:
        call.source_tokens = sum([len(task.source_ids) for task in tasks])
    groups: dict[tuple[SearchParams, bool], list[Task]] = {}
    for task in tasks:
        groups.setdefault((task.params, task.scored_ids is not None), []).append(task)
    runs: list[Coroutine[Any, Any, WorkDone]] = []
    for (params, is_scored), alike in groups.items():
        has_prefix = any(task.prefix_ids for task in alike)
        asked = Work(
            sources=tuple([task.source_ids for task in alike]),
            params=params,
            allow_smaller_beam=bool(request.options.allow_smaller_beam),
            prefixes=tuple([task.prefix_ids for task in alike]) if has_prefix else (),
            scored=tuple([task.scored_ids or () for task in alike]) if is_scored else (),
            may_use_cache=request.options.use_cache is not False,
            is_continuation=is_continuation,
        )
        runs.append(model.run(asked, call, permit, None if runs else on_room))
    if len(runs) == 1:
        return _replies(tasks[0].params, await runs[0])
    replies = {key: iter(_replies(key[0], done)) for key, done in zip(groups, await _all_of(runs), strict=True)}
    return [next(replies[task.params, task.scored_ids is not None]) for task in tasks]


def _replies(params: SearchParams, done: WorkDone) -> list[Reply]:
    """Return the replies to tasks that searched alike."""
    return [Reply(result, done.beam_size, params.num_searches) for result in done.results]


async def _all_of(runs: Sequence[Coroutine[Any, Any, WorkDone]]) -> list[WorkDone]:
    """Return the results of several runs, or raise the first error, after which none runs on."""
    tasks = [asyncio.create_task(run) for run in runs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
