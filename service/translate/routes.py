"""Which models translate which language pair: one of them, or two with a third language between them, the pivot.

    models and a language pair -> route -> for each model of it the request that it gets, a hop

Knows what models say of themselves (`ModelInfo`), not their state, and no text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from service.errors import InvalidInput
from service.models.catalogue import for_languages, pair_distance
from service.records import NO_OPTIONS, ModelInfo, TranslateOptions, TranslationRequest
from service.text.languages import closeness

Route: TypeAlias = tuple[ModelInfo, ...]  # the model of a language pair, or two with the pivot language between them
Routes: TypeAlias = Mapping[str, Route]  # by source language; none: the one model that fits

ONE_MODEL: Routes = {}
_LISTS_KEPT = 16  # by the models that a caller may use; a list of many takes long, and anybody may ask


def source_languages(infos: Sequence[ModelInfo]) -> list[str]:
    """Return the languages that these models translate from: of those that serve for each other, the first."""
    languages: list[str] = []
    for info in infos:
        if info.languages:
            languages += [code for code in info.source_languages if code not in languages]
        elif all(closeness(language, info.source_language) is None for language in languages):
            languages.append(info.source_language)
    return languages


def all_languages(infos: Sequence[ModelInfo]) -> list[str]:
    """Return the languages that these models translate from or into, those from which they do first."""
    languages = source_languages(infos)
    for info in infos:
        for target in info.target_languages:
            if all(closeness(language, target) is None for language in languages):
                languages.append(target)
    return languages


class Offered(NamedTuple):
    """A language that can be translated from."""

    code: str  # BCP 47
    targets: tuple[str, ...]  # that it can be translated into, also through a third language


def offered(infos: Sequence[ModelInfo]) -> list[Offered]:
    """Return the languages that these models translate from, in the order of their codes."""
    return list(_offered(tuple(infos)))


@lru_cache(maxsize=_LISTS_KEPT)
def _offered(infos: tuple[ModelInfo, ...]) -> tuple[Offered, ...]:
    targets, languages = target_languages(infos), []
    for source in sorted(source_languages(infos)):
        direct = {code for info in infos if source in info.source_languages for code in info.target_languages}
        can = [code for code in targets if code != source and (code in direct or find_route(infos, source, code))]
        languages.append(Offered(source, tuple(can)))
    return tuple(languages)


def target_languages(infos: Sequence[ModelInfo]) -> list[str]:
    """Return the languages that these models translate into, in the order of their codes."""
    return sorted({code for info in infos for code in info.target_languages})


def routes_of(infos: Sequence[ModelInfo], source_language: str, target_language: str) -> Routes:
    """Return the routes from the language, or all, that a request's texts can be in.

    None where it is plainly one model: the translator finds that by itself, or says that there is none.  Where only the
    target language is named, a text may be in it, so that one model is a route, too.
    """
    sources = [source_language] if source_language else source_languages(infos)
    routes = {source: route for source in sources if (route := find_route(infos, source, target_language))}
    is_auto = bool(target_language) and not source_language
    if len(routes) <= 1 and not is_auto and all(len(route) == 1 for route in routes.values()):
        return ONE_MODEL
    return routes


def find_route(infos: Sequence[ModelInfo], source_language: str, target_language: str) -> Route:
    """Return the closest model of a language pair; if there is none, the closest two; if there are none, nothing.

    An empty target language is that of the model.
    """
    direct = [
        (distance, index)
        for index, info in enumerate(infos)
        if (distance := pair_distance(info, source_language, target_language)) is not None
    ]
    if direct:
        return (for_languages(infos[min(direct)[1]], source_language, target_language),)
    if not target_language or closeness(source_language, target_language) is not None:
        return ()
    pivots: list[tuple[int, int, int]] = []
    for index, first in enumerate(infos):
        if (to_pivot := pair_distance(first, source_language, "")) is None:
            continue
        for other, second in enumerate(infos):
            pivot = second.source_language if first.languages else first.target_language
            if other == index or pair_distance(first, source_language, pivot) is None:
                continue
            if (onwards := pair_distance(second, pivot, target_language)) is not None:
                pivots.append((to_pivot + onwards, index, other))
    if not pivots:
        return ()
    _, index, other = min(pivots)
    pivot = infos[other].source_language if infos[index].languages else infos[index].target_language
    return for_languages(infos[index], source_language, pivot), for_languages(infos[other], pivot, target_language)


def hops_of(request: TranslationRequest, route: Route) -> tuple[TranslationRequest, ...]:
    """Return what each model of a route is asked for; of two, the second one's texts are still those of the first.

    Raises:
        InvalidInput: the request wants something that is lost between two models.
    """
    if len(route) == 1:
        return (_hop(request, route[0]),)
    first, second = route
    is_asked = {"glossary": request.glossary_name or request.terms, "return_alignments": request.return_alignments}
    for field in filter(is_asked.get, is_asked):
        pair = f"{first.source_language} to {second.target_language}"
        message = f"{field} needs a model that translates {pair} directly; this server goes through"
        raise InvalidInput(f"{message} {first.target_language}: leave it out, or load such a model", field=field)
    whole = replace(request, source_language="", target_language="")
    return (
        replace(_hop(whole, first), options=_to_pivot(request.options), target_prefixes=()),
        _hop(whole, second),
    )


def _hop(request: TranslationRequest, info: ModelInfo) -> TranslationRequest:
    """Return the request for this model; one of several languages is told which."""
    if not info.languages:
        return replace(request, model=info.name)
    source, target = info.source_language, info.target_language
    return replace(request, model=info.name, source_language=source, target_language=target)


def _to_pivot(options: TranslateOptions) -> TranslateOptions:
    """Return the options without those that are about the final text."""
    if options is NO_OPTIONS:
        return options
    return replace(
        options,
        num_hypotheses=None,
        max_target_tokens=None,
        min_target_tokens=None,
        suppressed_phrases=(),
        sampling_top_k=None,
        sampling_top_p=None,
        sampling_temperature=None,
        sampling_seed=None,
        return_alternatives=None,
    )
