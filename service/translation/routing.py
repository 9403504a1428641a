"""Which models a request's texts go to, where it is not plainly one: languages detected, or a third one in between.

    request -> routes by source language -> groups of texts -> one leg, or two through a pivot -> one result

A leg is what one model is asked for; how it is translated is up to whoever asks.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from service.call import Call
from service.errors import TooLong
from service.queue.admission import Permit
from service.records import (
    DetectedLanguage,
    ModelInfo,
    Span,
    TextWarning,
    Translation,
    TranslationRequest,
    TranslationResult,
)
from service.registry.catalogue import ServedModel
from service.text.detector import Detector
from service.translation.pipeline import INLINE_CHARACTERS, Pipeline
from service.translation.routes import NOWHERE, Route, Routes, legs_of, routes_of, source_languages

Translate: TypeAlias = Callable[[TranslationRequest, Call], Awaitable[TranslationResult]]

_MOST_KEPT = 256  # questions with their answers: callers choose what they ask


class Router:
    """Takes requests through the pipeline, each text by its own route."""

    def __init__(self, pipeline: Pipeline, executor: Executor) -> None:
        """Load nothing yet.

        Args:
            executor: for what would hold up the event loop.
        """
        self.pipeline = pipeline
        self._executor = executor
        self._detector = Detector()
        self._loading = asyncio.Lock()
        self._models: Sequence[ServedModel] = ()  # that the routes below are of
        self._found: dict[tuple[str | None, str, str, frozenset[str] | None], Routes] = {}

    def infos(self, call: Call) -> list[ModelInfo]:
        """Return the descriptions of the models that the caller may use; none while the server starts."""
        return [model.info for model in self.pipeline.catalogue.models if call.may_use(model.info.name)]

    async def translate(self, request: TranslationRequest, call: Call) -> TranslationResult:
        """Return one translation per text, in order; raises as `Pipeline.translate`."""
        if routes := self._routes(request, call):
            return await self.pipeline.translate(request, call, partial(self._translate_admitted, routes))
        return await self.pipeline.translate(request, call)

    async def route(self, request: TranslationRequest, call: Call, translate: Translate) -> TranslationResult:
        """Return one translation per text, in order, each leg of which `translate` gives; raises as that does."""
        if routes := self._routes(request, call):
            return await self._follow_all(routes, request, call, translate)
        return await translate(request, call)

    def check(self, request: TranslationRequest, call: Call) -> None:
        """Raise NotFound or InvalidInput if no text, whatever its language, can be translated as this request says."""
        routes = self._routes(request, call)
        for route in routes.values():
            for leg in legs_of(request, route):
                self.pipeline.resolve(leg, call)
        if not routes:
            self.pipeline.resolve(request, call)

    async def detect(self, texts: Sequence[str], call: Call) -> list[DetectedLanguage]:
        """Return the language of each text, among the source languages of the models that the caller may use.

        Raises:
            InvalidInput, Overloaded, Unavailable: as for translating; also if one text is too long.
        """
        call.texts = len(texts)
        admission = self.pipeline.admission
        with admission.admit(call.texts, now=time.monotonic(), deadline=call.deadline, caller=call.caller) as permit:
            permit.take_characters(sum(map(len, texts)))
            limit = self.pipeline.limits.max_characters
            for index, text in enumerate(texts):
                if len(text) > limit:
                    message = f"has {len(text)} characters, at most {limit} are accepted"
                    raise TooLong(message, field=f"texts[{index}]", index=index)
            detected = await self._detect(texts, source_languages(self.infos(call)))
        call.finished_texts = len(texts)
        return detected

    def _routes(self, request: TranslationRequest, call: Call) -> Routes:
        if request.model is not None and not self._has_languages(request.model):
            return NOWHERE
        if self._models is not self.pipeline.catalogue.models:
            self._models = self.pipeline.catalogue.models
            self._found.clear()
        question = (request.model, request.source_language, request.target_language, call.models)
        found = self._found.get(question)
        if found is None:
            if len(self._found) >= _MOST_KEPT:
                self._found.clear()
            infos = [info for info in self.infos(call) if request.model in (None, info.name)]
            found = self._found[question] = routes_of(infos, request.source_language, request.target_language)
        return found

    def _has_languages(self, name: str) -> bool:
        return any(model.info.name == name and model.info.languages for model in self.pipeline.catalogue.models)

    async def _translate_admitted(
        self, routes: Routes, request: TranslationRequest, call: Call, permit: Permit
    ) -> TranslationResult:
        async def translate(leg: TranslationRequest, part: Call) -> TranslationResult:
            with permit.part() as own:  # what a leg holds is free again when the next one begins
                return await self.pipeline.translate_admitted(leg, part, own)

        return await self._follow_all(routes, request, call, translate)

    async def _follow_all(
        self, routes: Routes, request: TranslationRequest, call: Call, translate: Translate
    ) -> TranslationResult:
        if request.source_language:
            (route,) = routes.values()
            return await _follow(route, request, call, translate, self.pipeline)
        detected = await self._detect(request.texts, tuple(routes))
        usual = next((found.language for found in detected if found.language), next(iter(routes)))
        groups: dict[str, list[int]] = {}  # places of the texts, by language
        for index, found in enumerate(detected):
            groups.setdefault(found.language or usual, []).append(index)
        if len(groups) == 1:
            result = await _follow(routes[next(iter(groups))], request, call, translate, self.pipeline)
        else:
            result = await self._follow_groups(groups, routes, request, call, translate)
        translations = [
            replace(translation, detected_language=found.language, detection_confidence=found.confidence)
            for translation, found in zip(result.translations, detected, strict=True)
        ]
        return replace(result, translations=translations)

    async def _follow_groups(
        self,
        groups: Mapping[str, Sequence[int]],
        routes: Routes,
        request: TranslationRequest,
        call: Call,
        translate: Translate,
    ) -> TranslationResult:
        """Translate the groups at the same time; the first error ends them all."""

        async def follow(language: str, places: Sequence[int]) -> TranslationResult:
            part = call.part(len(places))
            try:
                return await _follow(routes[language], _only(request, places), part, translate, self.pipeline)
            finally:
                call.join(part)

        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(follow(language, places)) for language, places in groups.items()]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        result = _merge(list(groups.values()), [task.result() for task in running])
        call.use_models(result.model)
        return result

    async def _detect(self, texts: Sequence[str], languages: Sequence[str]) -> list[DetectedLanguage]:
        def detect() -> list[DetectedLanguage]:
            return [self._detector.detect(text, languages) for text in texts]

        loop = asyncio.get_running_loop()
        if self._detector.needs_model(languages):
            async with self._loading:
                await loop.run_in_executor(self._executor, self._detector.load)
        if sum(map(len, texts)) > INLINE_CHARACTERS:
            return await loop.run_in_executor(self._executor, detect)
        return detect()


async def _follow(
    route: Route, request: TranslationRequest, call: Call, translate: Translate, pipeline: Pipeline
) -> TranslationResult:
    """Translate texts of one language; the first model's best hypotheses are the second one's texts."""
    legs = legs_of(request, route)
    if len(legs) == 1:
        return await translate(legs[0], call)
    pipeline.resolve(legs[1], call.part(0))  # an option that it refuses is refused before the first one runs
    first = await _run_part(legs[0], call, translate)
    places = [index for index, translation in enumerate(first.translations) if translation.error is None]
    if not places:
        return first
    texts = [first.translations[index].text for index in places]
    second = await _run_part(replace(_only(legs[1], places), texts=texts), call, translate, is_next=True)
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


async def _run_part(
    request: TranslationRequest, call: Call, translate: Translate, *, is_next: bool = False
) -> TranslationResult:
    part = call.part(len(request.texts))
    try:
        return await translate(request, part)
    finally:
        call.join(part, is_next=is_next)


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


def _merge(groups: Sequence[Sequence[int]], results: Sequence[TranslationResult]) -> TranslationResult:
    """Return the results of groups of texts as one, each translation at the place of its text."""
    translations = {
        index: translation
        for places, result in zip(groups, results, strict=True)
        for index, translation in zip(places, result.translations, strict=True)
    }
    versions = {result.model: result.model_version for result in results}
    return TranslationResult(
        translations=[translations[index] for index in range(len(translations))],
        model=",".join(versions),
        model_version=",".join(versions.values()),
        beam_size=min(result.beam_size for result in results),
    )
