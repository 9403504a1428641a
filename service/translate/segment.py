"""The work on one segment of a text: strategies for its spans, its searches, a second try, its tags.

    placeholder strategies, the first that keeps every span: search -> [links] -> restore
    -> numbers changed? with the numbers as spans -> other issues? one safer try -> tags placed

A segment whose spans no strategy keeps stays as it is, with a warning.  How a search gets to an engine is in
`search_batcher.py`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from service.errors import InternalError
from service.models.codec import untranslated
from service.records import (
    Link,
    Span,
    TermUse,
    TextWarning,
    TranslatedSegment,
    TranslatedText,
    WarningKind,
)
from service.text.alignment import mover_to_written
from service.text.copied_words import lost_codes
from service.text.normalization import as_in_source, begun_as_in_source, eased, readable, spelled, with_no_break_spaces
from service.text.number_check import difference, quantity, rewritten, without
from service.text.numbers import numbers, written_amount
from service.text.protected_spans import spans_of
from service.text.quality import EMPTY, Attempt, Issue, better, coverage, estimate, is_empty, issues, safer
from service.text.segments import Segment, Tag, between
from service.text.span_patterns import has_branches
from service.text.span_strategies import Strategy, strategies
from service.text.tag_placement import is_well_formed, place_tags, rewrap
from service.translate.glossaries import honour
from service.translate.raw_translation import RawTranslation, Settings, links, piecewise, translate_raw


def has_language(text: str, spans: Sequence[Span]) -> bool:
    """Whether there are letters outside the spans."""
    outside = "".join([text[slice(*piece)] for piece in between(spans, 0, len(text))]) if spans else text
    return any(map(str.isalpha, outside))


async def translate_segment(segment: Segment, settings: Settings) -> TranslatedSegment:
    """Return the translation of a segment; raises InvalidInput if its text cannot be put into tokens.

    Args:
        segment: of the text, with its spans.
        settings: of the request.
    """
    spans: Sequence[Span] = segment.spans
    uses = settings.glossary.find(segment.text, spans) if settings.glossary else ()
    if uses:
        spans = sorted([*spans, *(use.span for use in uses if not use.term.target)])
    if not has_language(segment.text, spans):
        return TranslatedSegment(
            source=segment.span, hypotheses=(untranslated(segment.source),), warnings=_of_branches(segment)
        )
    inner: list[TranslatedSegment] = []
    if segment.tags and any(tag.parts for tag in segment.tags):
        segment, inner = await _with_translated_tags(segment, settings)
    tries = _Tries(segment, _eased(segment, spans, settings), spans, uses, settings)
    best = await tries.first(spans)
    if tries.error is not None:
        outcome = TranslatedSegment(source=segment.span, error=tries.error)
    elif best is None:
        outcome = _untouched(segment, uses)
    else:
        best = await tries.safer(best)
        outcome = _outcome(best, segment, tries.kept, settings)
    outcome.source_tokens, outcome.row_steps, outcome.retries = tries.source_tokens, tries.row_steps, tries.retries
    for one in inner:
        outcome.warnings += one.warnings
        outcome.error = outcome.error or one.error
        outcome.source_tokens += one.source_tokens
        outcome.row_steps += one.row_steps
        outcome.retries += one.retries
    return outcome


async def _with_translated_tags(segment: Segment, settings: Settings) -> tuple[Segment, list[TranslatedSegment]]:
    """Return the segment with the values of alt, title, ... in its tags translated, and what became of each."""
    alphabet = settings.codec.alphabet
    parts = [readable(part, alphabet) for tag in segment.tags for part in tag.parts if isinstance(part, Segment)]
    works = [translate_segment(part._replace(spans=spans_of(part, alphabet)), settings) for part in parts]
    outcomes = await settings.batcher.together(works)
    translated = iter([outcome.hypotheses[0].text if outcome.hypotheses else None for outcome in outcomes])
    tags: list[Tag] = []
    for tag in segment.tags:
        texts = [part if isinstance(part, str) else next(translated) or part.source for part in tag.parts]
        tags.append(tag._replace(source="".join(texts)) if texts else tag)
    return segment._replace(tags=tuple(tags)), outcomes


def _eased(segment: Segment, spans: Sequence[Span], settings: Settings) -> Segment:
    """Return the segment with the punctuation that the model reads best."""
    text, lacks = eased(segment.text, spans, has_tags=bool(segment.tags)), settings.codec.alphabet.lacks
    if text == segment.text or any(tag.shown.end > len(text) for tag in segment.tags):
        return segment
    return segment if lacks(text) - lacks(segment.text) else segment._replace(text=text)


class _Restored(NamedTuple):
    """A raw translation with the spans and terms of its segment, but without its tags."""

    raw: RawTranslation  # of what the model saw
    strategy: Strategy
    hypotheses: Sequence[TranslatedText]
    links: Sequence[Sequence[Link]]  # of each hypothesis, with the segment's text
    uses: tuple[TermUse, ...]  # of the best hypothesis, in the segment's text
    issues: Sequence[Issue]
    coverage: float | None

    @property
    def attempt(self) -> Attempt:
        """What decides whether it is better than another one."""
        return Attempt(self.issues, self.hypotheses[0].score, self.coverage)


@dataclass(slots=True)
class _Tries:
    """The translations of one segment, one after the other, and what they cost."""

    segment: Segment
    shown: Segment  # with its text as the model gets it
    spans: Sequence[Span]
    uses: tuple[TermUse, ...]
    settings: Settings
    source_tokens: int = 0
    row_steps: int = 0
    retries: int = 0
    error: InternalError | None = None  # of the first try
    prices: dict[Span, str] = field(default_factory=dict)  # spans that are money, as the translation has to write them
    kept: tuple[str, ...] = ()  # parts of the text that say nothing about a translation

    def __post_init__(self) -> None:
        if not self.spans and not self.uses:
            return
        text, tagged = self.segment.text, {tag.position for tag in self.segment.tags}
        self.prices = {
            span: written_amount(text[slice(*span)], *self.settings.languages)
            for span in self.spans
            if tagged.isdisjoint(range(span.begin + 1, span.end))
        }
        terms = [text for use in self.uses for text in use.term[:2] if any(map(str.isdigit, text))]
        self.kept = (*(text[slice(*span)] for span in self.spans), *self.prices.values(), *terms)

    async def first(self, spans: Sequence[Span], forms: Mapping[Span, str] = MappingProxyType({})) -> _Restored | None:
        """Return what the first strategy gives that keeps every span; with numbers as spans, pieces are no help."""
        codec, nothing = self.settings.codec, None
        shown = self.segment if forms and "--" in self.segment.text else self.shown  # numbers behind dashes have moved
        written = {**self.prices, **forms}
        for strategy in strategies(shown, spans, codec.alphabet, codec.sentinels, written, self.settings.languages):
            if forms and strategy.pieces and has_language(self.segment.text, spans):
                break
            best = await self._try(strategy, self.settings)
            if self.error is not None or (best is not None and not (EMPTY in best.issues and spans)):
                return best
            nothing = nothing or best
        return nothing

    async def safer(self, best: _Restored) -> _Restored:
        """Return what a second try makes of a translation that lacks codes or has issues, if that is better."""
        text, languages = without(self.segment.text, self.kept), self.settings.languages
        if lost_codes(text, best.hypotheses[0].text, *languages):
            forms = {one.span: one.text for one in lost_codes(text, "", *languages)}
            spans = sorted([*self.spans, *forms])
            again = await self.first(spans, forms) if has_language(self.segment.text, spans) else None
            # What was said in another way ("Großbritannien") left no gap, so that its code adds no word.
            adds = again is not None and _num_words(again) > _num_words(best)
            if again is not None and better(best.attempt, Attempt(again.issues, math.inf if adds else -math.inf)):
                best = again
            self.retries = 1
        for all_numbers in (False, True):
            if forms := self._forms(best, all_numbers=all_numbers):
                others = [one for one in self.spans if not any(begin <= one.begin < end for begin, end in forms)]
                best = self._better(best, await self.first(sorted([*others, *forms]), forms))
        if best.issues and (retry := safer(self.segment.text, best.issues, self.settings.params)) is not None:
            settings = self.settings._replace(params=retry.params)
            if retry.in_pieces:
                settings = settings._replace(max_tokens=max(2, best.raw.source_tokens // 2))
            best = self._better(best, await self._try(best.strategy, settings))
        return best

    def _better(self, best: _Restored, again: _Restored | None) -> _Restored:
        self.retries = 1
        return again if again is not None and better(best.attempt, again.attempt) else best

    def _forms(self, best: _Restored, *, all_numbers: bool) -> dict[Span, str]:
        """Return how the numbers that a translation lacks, or all, have to be written in it; empty: it is right.

        Where phrases are suppressed, the caller may want it so: "Montag" must not come back.
        """
        text, languages = self.segment.text, self.settings.languages
        if self.settings.params.suppressed or all(kind is not WarningKind.NUMBERS for kind, _ in best.issues):
            return {}
        changed = difference(text, best.hypotheses[0].text, *languages)
        chosen = numbers(text, languages[0]) if all_numbers or not changed else (*changed.missing, *changed.bare)
        forms = {}
        for one in chosen:
            (begin, end), form = quantity(text, one, *languages)
            over = [span for span in self.spans if begin < span.end and span.begin < end]
            if over and (end == one.span.end or over[0].end != one.span.end):
                continue
            if over:  # "~5" of "~5 min"
                begin, form = over[0].begin, text[over[0].begin : begin] + form
            if text[end - 1] == "." != form[-1] and not any(map(str.isalnum, text[end:])):
                end -= 1  # "at 5 p.m." ends a sentence too
            forms[Span(begin, end)] = form
        return forms

    async def _try(self, strategy: Strategy, settings: Settings) -> _Restored | None:
        """Return the translation of a strategy; None if a span would be lost, or the engine failed."""
        settings = settings._replace(codec=settings.codec.marked) if strategy.is_marked else settings
        if strategy.pieces:
            raw = await piecewise(strategy.pieces, settings, strategy.kept)
        else:
            raw = await translate_raw(strategy.text, settings, kept=strategy.kept)
        self.source_tokens = self.source_tokens or raw.source_tokens
        self.row_steps += raw.row_steps
        self.error = raw.error
        if raw.error is not None:
            return None
        has_tags = bool(self.segment.tags) and not _is_wrapped(self.segment)
        has_terms = bool(self.uses) and any(use.term.target for use in self.uses)
        found: Sequence[Sequence[Link]] = [()] * len(raw.hypotheses)
        if settings.wants_links or has_tags or has_terms:
            found = await links(raw, settings)
        return self._restored(raw, strategy, found)

    def _restored(self, raw: RawTranslation, strategy: Strategy, found: Sequence[Sequence[Link]]) -> _Restored | None:
        """Return the hypotheses of a raw translation with all spans and terms in them; None if none has all spans."""
        segment, languages = self.segment, self.settings.languages
        hypotheses, all_links, best_uses = list[TranslatedText](), list[Sequence[Link]](), self.uses
        for hypothesis, own in zip(raw.hypotheses, found, strict=True):
            if (restored := strategy.restore(hypothesis.text, own)) is None:
                continue
            text, own = as_in_source(  # noqa: PLW2901 - the links of the text as it is now
                segment.text, *restored, self.spans, has_tags=bool(segment.tags), kept=self.kept
            )
            text = with_no_break_spaces(segment.text, text)
            text = rewritten(segment.text, text, *languages, self.spans)
            text = begun_as_in_source(segment.text, text, languages=languages, kept=self.kept)
            if self.uses:
                text, own, own_uses = honour(self.uses, text, own, self.kept)  # noqa: PLW2901 - likewise
                best_uses = best_uses if hypotheses else own_uses
            if segment.quotes:
                text, own = spelled(segment, text, own)  # noqa: PLW2901 - likewise
            hypotheses.append(with_text(hypothesis, text))
            all_links.append(own)
        if not hypotheses:
            return None
        best, share = hypotheses[0], coverage(segment.text, all_links[0]) if all_links[0] else None
        noticed = issues(
            segment.text,
            best.text,
            finish_reason=best.finish_reason,
            source_language=languages[0],
            target_language=languages[1],
            source_tokens=raw.source_tokens,
            target_tokens=best.target_tokens,
            coverage=share,
            kept=self.kept,
        )
        return _Restored(raw, strategy, hypotheses, all_links, best_uses, noticed, share)


def _outcome(best: _Restored, segment: Segment, kept: Sequence[str], settings: Settings) -> TranslatedSegment:
    """Return the hypotheses with their tags; an empty one is replaced by the source."""
    written = []
    for hypothesis, own in zip(best.hypotheses, best.links, strict=True):
        if is_empty(segment.text, hypothesis.text, kept):
            text = segment.source
        elif not segment.tags:
            text = segment.escape(hypothesis.text)
        elif _is_wrapped(segment):
            text = rewrap(segment, hypothesis.text)
        else:
            text = place_tags(segment, hypothesis.text, own)
        written.append(with_text(hypothesis, text))
    if segment.tags and not is_well_formed(segment.tags, written[0].text):
        return _untouched(segment, best.uses)
    noticed = [*best.raw.issues, *best.issues]
    if best.uses and not all(use.is_honoured for use in best.uses):
        noticed.append((WarningKind.TERM_MISSED, "a term of the glossary is not in the translation"))
    found, all_links = best.hypotheses[0], tuple[Link, ...]()
    if settings.wants_links:
        move = mover_to_written(found.text, written[0].text, [tag.source for tag in segment.tags], segment.escape)
        all_links = tuple([Link(segment.origin(link.source), move(link.target)) for link in best.links[0]])
    return TranslatedSegment(
        source=segment.span,
        hypotheses=tuple(written),
        warnings=(*(TextWarning(kind, message, segment.span) for kind, message in noticed), *_of_branches(segment)),
        quality=estimate(
            segment.text,
            found.text,
            score=found.score * max(1, found.target_tokens) ** (settings.params.length_penalty - 1.0),
            source_tokens=best.raw.source_tokens,
            target_tokens=found.target_tokens,
        ),
        links=all_links,
        terms=_in_request(best.uses, segment) if best.uses else (),
    )


def _untouched(segment: Segment, uses: Sequence[TermUse]) -> TranslatedSegment:
    """Return the outcome of a segment that no strategy could keep the spans of."""
    message = "a translation would lose a protected span or a tag"
    return TranslatedSegment(
        source=segment.span,
        hypotheses=(untranslated(segment.source),),
        warnings=(TextWarning(WarningKind.NOT_TRANSLATED, message, segment.span),),
        terms=_in_request(uses, segment),
    )


def _of_branches(segment: Segment) -> tuple[TextWarning, ...]:
    """Return the warning for an ICU message whose branches are not translated."""
    if not segment.spans or not any(has_branches(segment.text[slice(*span)]) for span in segment.spans):
        return ()
    message = "the branches of an ICU message are not translated"
    return (TextWarning(WarningKind.NOT_TRANSLATED, message, segment.span),)


def _in_request(uses: Sequence[TermUse], segment: Segment) -> tuple[TermUse, ...]:
    return tuple([use._replace(span=segment.origin(use.span)) for use in uses])


def with_text(hypothesis: TranslatedText, text: str) -> TranslatedText:
    """Return the hypothesis with this text."""
    return hypothesis if text == hypothesis.text else replace(hypothesis, text=text)


def _is_wrapped(segment: Segment) -> bool:
    """Whether the segment's tags are the line breaks of wrapped prose."""
    return all(tag.is_break for tag in segment.tags)


def _num_words(restored: _Restored) -> int:
    return len(restored.hypotheses[0].text.split())
