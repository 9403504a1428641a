"""Sends the texts of a request to models, where one model is not enough: detects languages, translates through a third.

    request -> routes by source language -> groups of texts -> one hop, or two through a pivot -> one result

Each text takes the route of its language (`routes.py`), and the translator serves each hop of it.  A text that is in
the target language already, or in no language that a model translates from, comes back as it is.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from service.call import Call
from service.errors import Unavailable
from service.models.catalogue import ServedModel
from service.models.codec import too_long, untranslated
from service.records import (
    DetectedLanguage,
    ModelInfo,
    Span,
    TextWarning,
    TranslatedSegment,
    Translation,
    TranslationRequest,
    TranslationResult,
    WarningKind,
)
from service.scheduler.admission import Reservation
from service.telemetry.logs import describe_error, get_logger
from service.text.languages import NO_LANGUAGE, Detector, Judged, closeness, judge
from service.translate.routes import ONE_MODEL, Route, Routes, all_languages, find_route, hops_of, routes_of
from service.translate.translator import Translator

_Result = TypeVar("_Result")
_LOAD_AGAIN_AFTER_S = 10.0  # what detects languages, where that has failed
_NOT_DETECTED = "the server cannot detect languages, and its log says why: name the source language"
_MOST_KEPT = 256  # questions with their answers: callers choose what they ask


class Router:
    """Sends each text of a request along its own route."""

    def __init__(self, translator: Translator) -> None:
        """Load nothing yet."""
        self.translator = translator
        self._detector = Detector()
        self._loading = asyncio.Lock()
        self._load_at = 0.0  # time.monotonic() from which on the detector may be loaded
        self._models: Sequence[ServedModel] = ()  # that the routes below are of
        self._found = lru_cache(_MOST_KEPT)(self._find_routes)

    def infos(self, call: Call) -> list[ModelInfo]:
        """Return the descriptions of the models that the caller may use; none while the server starts."""
        return [model.info for model in self.translator.catalogue.models if call.may_use(model.info.name)]

    def source_of(self, result: TranslationResult) -> str:
        """Return the language that the first of the models which have answered translates from."""
        name = result.model.partition(",")[0].partition("+")[0]
        infos = (model.info for model in self.translator.catalogue.models)
        return next((info.source_language for info in infos if info.name == name), "")

    async def translate(self, request: TranslationRequest, call: Call) -> TranslationResult:
        """Return one translation per text, in order; raises as `Translator.admit` and `Translator.translate`."""
        call.priority = call.caller.allowed(request.priority)
        with self.translator.admit(len(request.texts), call) as reservation:
            return await self.translate_admitted(request, call, reservation)

    async def translate_admitted(
        self, request: TranslationRequest, call: Call, reservation: Reservation
    ) -> TranslationResult:
        """Return one translation per text, in order, of a request that was let in; raises as `Translator.translate`."""
        if request.allows_same_language and (info := self._of_same_language(request, call)):
            if not reservation.is_of_stream:
                reservation.take_characters(sum(map(len, request.texts)))
            return self._left(request, call, info.name, info.version, [None] * len(request.texts))
        routes = self._routes(request, call)
        if not routes:
            return await self.translator.translate(request, call, reservation)
        if request.source_language:
            (route,) = routes.values()
            return await _translate_route(route, request, call, reservation, self.translator)
        return await self._translate_by_language(routes, request, call, reservation)

    def check(self, request: TranslationRequest, call: Call) -> None:
        """Raise NotFound or InvalidInput if no text, whatever its language, can be translated as this request says."""
        if request.allows_same_language and self._of_same_language(request, call):
            return
        routes = self._routes(request, call)
        for route in routes.values():
            for hop in hops_of(request, route):
                self.translator.resolve(hop, call)
        if not routes:
            self.translator.resolve(request, call)

    async def detect(self, texts: Sequence[str], call: Call) -> list[DetectedLanguage]:
        """Return the language of each text, among those of the models that the caller may use.

        Raises:
            InvalidInput, Overloaded, Unavailable: as for translating; also if one text is too long.
        """
        languages = all_languages(self.infos(call))
        return await self._read_admitted(texts, call, languages, lambda text: self._detector.detect(text, languages))

    async def judge(self, text: str, target_language: str, call: Call) -> Judged:
        """Decide in which language a text is whose caller names none; raises as `detect`."""
        request = TranslationRequest(texts=(text,), target_language=target_language)
        routes = self._routes(request, call)
        if not routes:
            return Judged(NO_LANGUAGE)
        sources, target = tuple(routes), _target_of(request, routes)
        (judged,) = await self._read_admitted(
            (text,), call, sources, lambda text: judge(text, sources, target, self._detector)
        )
        return judged

    async def _read_admitted(
        self, texts: Sequence[str], call: Call, languages: Sequence[str], read: Callable[[str], _Result]
    ) -> list[_Result]:
        with self.translator.admit(len(texts), call) as reservation:
            reservation.take_characters(sum(map(len, texts)))
            limit = self.translator.limits.max_characters
            for index, text in enumerate(texts):
                if len(text) > limit:
                    raise too_long(len(text), "characters", limit).at(index)
            results = await self._read_each(texts, languages, read)
        call.finished_texts = len(texts)
        return results

    async def load_detector(self) -> None:
        """Load what detects languages, unless it is there; raise Unavailable where it cannot be loaded."""
        async with self._loading:
            if self._detector.is_loaded:
                return
            if time.monotonic() < self._load_at:
                raise Unavailable(_NOT_DETECTED)
            try:
                await asyncio.get_running_loop().run_in_executor(self.translator.executor, self._detector.load)
            except Exception as error:  # MemoryError, or whatever a broken installation raises
                get_logger().warning("language_detection_not_loaded", **describe_error(error))
                self._load_at = time.monotonic() + _LOAD_AGAIN_AFTER_S
                raise Unavailable(_NOT_DETECTED) from error

    def _routes(self, request: TranslationRequest, call: Call) -> Routes:
        if request.model is not None and not self._has_languages(request.model):
            return ONE_MODEL
        if self._models is not self.translator.catalogue.models:
            self._models = self.translator.catalogue.models
            self._found.cache_clear()
        return self._found(request.model, request.source_language, request.target_language, call.models)

    def _find_routes(
        self, model: str | None, source_language: str, target_language: str, allowed: frozenset[str] | None
    ) -> Routes:
        infos = [one.info for one in self._models if allowed is None or one.info.name in allowed]
        infos = [info for info in infos if model in (None, info.name)]
        return routes_of(infos, source_language, target_language)

    def _has_languages(self, name: str) -> bool:
        return any(model.info.name == name and model.info.languages for model in self.translator.catalogue.models)

    async def _translate_by_language(
        self, routes: Routes, request: TranslationRequest, call: Call, reservation: Reservation
    ) -> TranslationResult:
        """Send each text along the route of its language, all languages at the same time; the first error ends all."""
        judged = await self._judge(request, routes)
        usual = next((one.source for one in judged if one.source), next(iter(routes)))
        groups: dict[str, list[int]] = {}  # places of the texts, by language; of those that stay, under none
        for index, one in enumerate(judged):
            groups.setdefault("" if one.stays else one.source or usual, []).append(index)

        async def translate(language: str, asked: TranslationRequest, part: Call) -> TranslationResult:
            if language:
                return await _translate_route(routes[language], asked, part, reservation, self.translator)
            found = [judged[index].found.language for index in groups[""]]
            return self._leave(asked, part, routes[next(filter(None, groups), usual)], found)

        async def translate_part(language: str) -> TranslationResult:
            places = groups[language]
            part = call.part(len(places))
            try:
                return await translate(language, _only(request, places), part)
            finally:
                call.join(part)

        if len(groups) == 1:
            result = await translate(next(iter(groups)), request, call)
        else:
            try:
                async with asyncio.TaskGroup() as tasks:
                    running = {language: tasks.create_task(translate_part(language)) for language in groups}
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
            results = {language: task.result() for language, task in running.items()}
            answers = [result for language, result in results.items() if language]
            result = _merge(list(groups.values()), list(results.values()), answers)
            call.use_models(result.model)
        translations = [
            replace(translation, detected_language=one.found.language, detection_confidence=one.found.confidence)
            for translation, one in zip(result.translations, judged, strict=True)
        ]
        return replace(result, translations=translations)

    def _leave(self, request: TranslationRequest, call: Call, route: Route, found: Sequence[str]) -> TranslationResult:
        """Return texts as they are, found to be in these languages, in the name of the model that would translate."""
        for hop in hops_of(request, route):  # an option that the model refuses is refused here, too
            self.translator.resolve(hop, call)
        notes = [language if language != route[-1].target_language else None for language in found]
        return self._left(request, call, call.model, route[-1].version, notes)

    def _left(
        self, request: TranslationRequest, call: Call, model: str, version: str, notes: Sequence[str | None]
    ) -> TranslationResult:
        """Return all texts as they are, in the name of a model; `notes` are as for `left_as_it_is`."""
        limit = self.translator.limits.max_characters
        translations = [
            left_as_it_is(text, note)
            if len(text) <= limit
            else Translation(error=too_long(len(text), "characters", limit).at(index))
            for index, (text, note) in enumerate(zip(request.texts, notes, strict=True))
        ]
        call.use_model(model)
        call.finished_texts = len(request.texts)
        result = TranslationResult(translations=translations, model=model, model_version=version)
        self.translator.usage_meter.translated(request, result, call)
        return result

    def _of_same_language(self, request: TranslationRequest, call: Call) -> ModelInfo | None:
        """Return a model that knows the language if source and target are the same one."""
        source, target = request.source_language, request.target_language
        infos = self.infos(call)
        if not source or closeness(source, target) is None or find_route(infos, source, target):
            return None
        for info in infos:
            if any(closeness(target, one) is not None for one in (*info.source_languages, *info.target_languages)):
                return info
        return None

    async def _judge(self, request: TranslationRequest, routes: Routes) -> list[Judged]:
        """Decide in which language each text is; a text that is too long, or has a prefix, never stays."""
        sources, target = tuple(routes), _target_of(request, routes)
        judged = await self._read_each(
            request.texts, sources, lambda text: judge(text, sources, target, self._detector)
        )
        limit, prefixes = self.translator.limits.max_characters, request.target_prefixes
        return [
            one._replace(stays=False) if one.stays and (len(text) > limit or any(prefixes[index : index + 1])) else one
            for index, (text, one) in enumerate(zip(request.texts, judged, strict=True))
        ]

    async def _read_each(
        self, texts: Sequence[str], languages: Sequence[str], read: Callable[[str], _Result]
    ) -> list[_Result]:
        """Return what `read` says of each text, once the detector can read it."""
        if languages and not self._detector.is_loaded:
            await self.load_detector()
        return await self.translator.in_executor(lambda: [read(text) for text in texts], sum(map(len, texts)))


def _target_of(request: TranslationRequest, routes: Routes) -> str:
    """Return the language that all routes lead to, as the models call it; empty: each has its own."""
    return next(iter(routes.values()))[-1].target_language if request.target_language else ""


def left_as_it_is(text: str, language: str | None = None) -> Translation:
    """Return the translation that is the text: with a warning if it is in a language (empty: unknown) of no model."""
    hypotheses, whole = (untranslated(text),), Span(0, len(text))
    if language is None:
        return Translation(hypotheses=hypotheses)
    name = f"the language {language}" if language else "a language"
    message = f"the text is in {name} that no model of this server translates from"
    warning = TextWarning(WarningKind.NOT_TRANSLATED, message, whole)
    segment = TranslatedSegment(source=whole, target=whole, hypotheses=hypotheses, warnings=(warning,))
    return Translation(hypotheses=hypotheses, segments=(segment,))


async def _translate_route(
    route: Route, request: TranslationRequest, call: Call, reservation: Reservation, translator: Translator
) -> TranslationResult:
    """Translate texts of one language; the first model's best hypotheses are the second one's texts."""
    hops = hops_of(request, route)
    if len(hops) == 1:
        with _part(reservation) as own:
            return await translator.translate(hops[0], call, own)
    translator.resolve(hops[1], call.part(0))  # an option that it refuses is refused before the first one runs
    first = await _translate_hop(hops[0], call, reservation, translator)
    places = [index for index, translation in enumerate(first.translations) if translation.error is None]
    if not places:
        return first
    texts = [first.translations[index].text for index in places]
    second = await _translate_hop(
        replace(_only(hops[1], places), texts=texts), call, reservation, translator, is_next=True
    )
    call.finished_texts = len(request.texts)
    if all(translation.error for translation in second.translations):
        names = second.model, second.model_version
    else:
        names = f"{first.model}+{second.model}", f"{first.model_version}+{second.model_version}"
        call.use_models(names[0])
    translations = list(first.translations)
    for index, translation in zip(places, second.translations, strict=True):
        translations[index] = _through(
            route[0].target_language, len(request.texts[index]), translations[index], translation
        )
    return TranslationResult(
        translations=translations,
        model=names[0],
        model_version=names[1],
        beam_size=min(first.beam_size, second.beam_size),
    )


async def _translate_hop(
    request: TranslationRequest, call: Call, reservation: Reservation, translator: Translator, *, is_next: bool = False
) -> TranslationResult:
    part = call.part(len(request.texts))
    try:
        with _part(reservation) as own:  # what a hop holds is free again when the next one begins
            return await translator.translate(request, part, own)
    finally:
        call.join(part, is_next=is_next)


def _part(reservation: Reservation) -> AbstractContextManager[Reservation]:
    """Return the reservation of a part of a request; texts of a stream have that of the stream."""
    return nullcontext(reservation) if reservation.is_of_stream else reservation.part()


def _through(pivot_language: str, length: int, first: Translation, second: Translation) -> Translation:
    """Return the translation that two models have made of a text; segments of the text between mean nothing outside."""
    whole = Span(0, length)
    return Translation(
        hypotheses=second.hypotheses,
        source_tokens=first.source_tokens,
        row_steps=first.row_steps + second.row_steps,
        error=second.error,
        pivot_language=pivot_language,
        pivot_warnings=(
            *first.warnings,
            *(TextWarning(warning.kind, warning.message, whole) for warning in second.warnings),
        ),
    )


def _only(request: TranslationRequest, places: Sequence[int]) -> TranslationRequest:
    """Return the request with the texts at these places."""
    prefixes = request.target_prefixes
    return replace(
        request,
        texts=tuple(request.texts[index] for index in places),
        target_prefixes=tuple(prefixes[index] for index in places) if prefixes else (),
    )


def _merge(
    groups: Sequence[Sequence[int]], results: Sequence[TranslationResult], answers: Sequence[TranslationResult]
) -> TranslationResult:
    """Return the results of groups of texts as one, each translation at the place of its text.

    Args:
        groups: places of the texts of each result.
        results: of all groups.
        answers: those of models.
    """
    translations = {
        index: translation
        for places, result in zip(groups, results, strict=True)
        for index, translation in zip(places, result.translations, strict=True)
    }
    versions = {result.model: result.model_version for result in answers}
    return TranslationResult(
        translations=[translations[index] for index in range(len(translations))],
        model=",".join(versions),
        model_version=",".join(versions.values()),
        beam_size=min(result.beam_size for result in answers),
    )
