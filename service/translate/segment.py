"""The work on one segment: to token ids, through the engine, back to text, with everything in it that is not language.

    spans found -> placeholder strategies, the first that keeps every span: search -> [links] -> restore
                -> numbers changed? with the numbers as spans -> other issues? one safer try -> tags placed -> outcome

A segment whose spans no strategy keeps stays as it is, with a warning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from service.engine.wire import Job, SearchParams
from service.errors import InternalError
from service.models.info import untranslated
from service.records import Link, Span, TermUse, TextWarning, TranslatedSegment, TranslatedText, WarningKind
from service.text.alignment import moved, mover_to_written
from service.text.document import Segment, Tag
from service.text.glossary import honour, kept
from service.text.number_check import difference, quantity, rewritten
from service.text.numbers import numbers, written_amount
from service.text.patterns import has_branches
from service.text.placeholders import Strategy, strategies
from service.text.placement import is_well_formed, place_tags
from service.text.protect import spans_of
from service.text.quality import EMPTY, Attempt, Issue, better, coverage, estimate, is_empty, issues, safer
from service.text.readable import as_in_source, begun_as_in_source, eased, readable, spelled, with_no_break_spaces
from service.text.sentences import rewrap
from service.translate.raw import RawTranslation, Settings, piecewise, translate_raw


class _Restored(NamedTuple):
    """A raw translation whose hypotheses have everything of the segment but its tags."""

    raw: RawTranslation  # of what the model saw
    strategy: Strategy
    hypotheses: tuple[TranslatedText, ...]
    links: tuple[tuple[Link, ...], ...]  # of each hypothesis, with the segment's text
    uses: tuple[TermUse, ...]  # of the best hypothesis, in the segment's text
    issues: Sequence[Issue]
    coverage: float | None

    @property
    def attempt(self) -> Attempt:
        """What decides whether it is better than another one."""
        return Attempt(self.issues, self.hypotheses[0].score, self.coverage)


async def translate_whole(text: str, index: int, settings: Settings, prefix: str = "") -> TranslatedSegment:
    """Return what the model makes of a text as it is; raises InvalidInput if that has more tokens than fit."""
    codec, whole = settings.codec, Span(0, len(text))
    ids = tuple(codec.encode(text, index))
    if not ids:
        return TranslatedSegment(source=whole, hypotheses=(untranslated(text),))
    prefix_ids = codec.prefix_ids(prefix, index, settings.params)
    (result,) = await settings.searches.search([Job(ids, settings.params, prefix_ids)])
    if isinstance(result, InternalError):
        return TranslatedSegment(source=whole, source_tokens=len(ids), error=result)
    hypotheses = codec.decode(result.hypotheses)
    empty = [is_empty(text, hypothesis.text) for hypothesis in hypotheses]
    return TranslatedSegment(
        source=whole,
        hypotheses=tuple([replace(one, text=text) if no else one for one, no in zip(hypotheses, empty, strict=True)]),
        warnings=(TextWarning(*EMPTY, whole),) if empty[0] else (),
        source_tokens=len(ids),
        row_steps=result.row_steps,
    )


async def translate_segment(segment: Segment, index: int, settings: Settings) -> TranslatedSegment:
    """Return the translation of a segment; raises InvalidInput if its text cannot be put into tokens.

    Args:
        segment: of the text, with its spans.
        index: the text's place in its request; only for errors.
        settings: of the request.
    """
    spans = segment.spans
    uses = settings.glossary.find(segment.text, spans) if settings.glossary else ()
    if uses:
        spans = tuple(sorted([*spans, *kept(uses)]))
    if not has_language(segment.text, spans):
        return TranslatedSegment(
            source=segment.span, hypotheses=(untranslated(segment.source),), warnings=_of_branches(segment)
        )
    inner: list[TranslatedSegment] = []
    if segment.tags and any(tag.parts for tag in segment.tags):
        segment, inner = await _with_translated_tags(segment, index, settings)
    tries = _Tries(segment, _eased(segment, spans, settings), spans, uses, index, settings)
    best = await tries.first(spans)
    if tries.error is not None:
        outcome = TranslatedSegment(source=segment.span, error=tries.error)
    elif best is None:
        outcome = _untouched(segment, uses)
    else:
        best = await tries.safer(best) if best.issues else best
        outcome = _outcome(best, segment, tries.kept, settings)
    outcome.source_tokens, outcome.row_steps, outcome.retries = tries.source_tokens, tries.row_steps, tries.retries
    for one in inner:
        outcome.warnings += one.warnings
        outcome.error = outcome.error or one.error
        outcome.source_tokens += one.source_tokens
        outcome.row_steps += one.row_steps
        outcome.retries += one.retries
    return outcome


def _eased(segment: Segment, spans: Sequence[Span], settings: Settings) -> Segment:
    """Return the segment with the punctuation that the model reads best."""
    text = eased(segment.text, spans, has_tags=bool(segment.tags))
    if text == segment.text or any(tag.shown.end > len(text) for tag in segment.tags):
        return segment
    return (
        segment
        if settings.codec.alphabet.lacks(text) - settings.codec.alphabet.lacks(segment.text)
        else (segment._replace(text=text))
    )


def _of_branches(segment: Segment) -> tuple[TextWarning, ...]:
    """Return the warning of a segment with a message whose branches stay as they are."""
    if not any(has_branches(segment.text[begin:end]) for begin, end in segment.spans):
        return ()
    message = "the branches of an ICU message are not translated"
    return (TextWarning(WarningKind.NOT_TRANSLATED, message, segment.span),)


def _untouched(segment: Segment, uses: Sequence[TermUse]) -> TranslatedSegment:
    """Return the outcome of a segment that no strategy could keep the spans of."""
    message = "a translation would lose a protected span or a tag"
    return TranslatedSegment(
        source=segment.span,
        hypotheses=(untranslated(segment.source),),
        warnings=(TextWarning(WarningKind.NOT_TRANSLATED, message, segment.span),),
        terms=tuple([use._replace(span=segment.origin(use.span)) for use in uses]),
    )


@dataclass(slots=True)
class _Tries:
    """The translations of one segment, one after the other, and what they cost."""

    segment: Segment
    shown: Segment  # with its text as the model gets it
    spans: Sequence[Span]
    uses: tuple[TermUse, ...]
    index: int
    settings: Settings
    source_tokens: int = 0
    row_steps: int = 0
    retries: int = 0
    error: InternalError | None = None  # of the first try
    prices: dict[Span, str] = field(init=False)  # spans that are amounts of money, as the translation has to write them
    kept: tuple[str, ...] = field(init=False)  # parts of the text that say nothing about a translation

    def __post_init__(self) -> None:
        self.prices, self.kept = {}, ()
        if not self.spans and not self.uses:
            return
        text, languages = self.segment.text, (self.settings.source_language, self.settings.target_language)
        tagged = {tag.position for tag in self.segment.tags}
        self.prices = {
            span: written_amount(text[slice(*span)], *languages)
            for span in self.spans
            if tagged.isdisjoint(range(span.begin + 1, span.end))
        }
        terms = [text for use in self.uses for text in use.term[:2] if any(map(str.isdigit, text))]
        self.kept = (*(text[slice(*span)] for span in self.spans), *self.prices.values(), *terms)

    async def first(self, spans: Sequence[Span], forms: Mapping[Span, str] = MappingProxyType({})) -> _Restored | None:
        """Return what the first strategy gives that keeps every span; with numbers as spans, pieces are no help."""
        codec, languages = self.settings.codec, (self.settings.source_language, self.settings.target_language)
        nothing = None
        shown = self.segment if forms and "--" in self.segment.text else self.shown  # numbers behind dashes have moved
        for strategy in strategies(shown, spans, codec.alphabet, codec.sentinels, {**self.prices, **forms}, languages):
            if forms and strategy.pieces and has_language(self.segment.text, spans):
                break
            best = await self._try(strategy, self.settings.params)
            if self.error is not None or (best is not None and not (EMPTY in best.issues and spans)):
                return best
            nothing = nothing or best
        return nothing

    async def safer(self, best: _Restored) -> _Restored:
        """Return what a second try makes of a translation with issues, if that is better: first its numbers."""
        for all_numbers in (False, True):
            if forms := self._forms(best, all_numbers=all_numbers):
                self.retries = 1
                others = [one for one in self.spans if not any(begin <= one.begin < end for begin, end in forms)]
                again = await self.first(sorted([*others, *forms]), forms)
                best = again if again is not None and better(best.attempt, again.attempt) else best
        params = self.settings.params
        if (retry := safer(self.segment.text, best.issues, params) if best.issues else None) is not None:
            self.retries = 1
            limit = max(2, best.raw.source_tokens // 2) if retry.in_pieces else 0
            again = await self._try(best.strategy, retry.params, limit)
            best = again if again is not None and better(best.attempt, again.attempt) else best
        return best

    def _forms(self, best: _Restored, *, all_numbers: bool) -> dict[Span, str]:
        """Return how the numbers that a translation lacks, or all, have to be written in it; empty: it is right."""
        text, languages = self.segment.text, (self.settings.source_language, self.settings.target_language)
        if all(kind is not WarningKind.NUMBERS for kind, _ in best.issues):
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

    async def _try(self, strategy: Strategy, params: SearchParams, limit: int = 0) -> _Restored | None:
        """Return the translation of a strategy; None if a span would be lost, or the engine failed."""
        settings = self.settings
        settings = settings._replace(codec=settings.codec.marked) if strategy.is_marked else settings
        if strategy.pieces:
            found = await piecewise(strategy.pieces, self.index, settings, params, strategy.kept)
        else:
            found = await translate_raw(strategy.text, self.index, settings, params, kept=strategy.kept, limit=limit)
        self.source_tokens = self.source_tokens or found.source_tokens
        self.row_steps += found.row_steps
        self.error = found.error
        if found.error is not None:
            return None
        return await _restore(found, strategy, self, settings)


async def _restore(found: RawTranslation, strategy: Strategy, tries: _Tries, settings: Settings) -> _Restored | None:
    """Return the hypotheses of a raw translation with all spans and terms in them; None if none has all spans."""
    segment, uses = tries.segment, tries.uses
    languages = settings.source_language, settings.target_language
    has_tags = bool(segment.tags) and not _is_wrapped(segment)
    has_terms = bool(uses) and any(use.term.target for use in uses)
    links: Sequence[Sequence[Link]] = [()] * len(found.hypotheses)
    if strategy.needs_links or settings.wants_links or has_tags or has_terms:
        links = await found.links(settings)
    hypotheses, all_links, best_uses = list[TranslatedText](), list[tuple[Link, ...]](), uses
    for hypothesis, own in zip(found.hypotheses, links, strict=True):
        restored = strategy.restore(hypothesis.text, own)
        if restored is None:
            continue
        text, source_move, target_move = as_in_source(
            segment.text, restored.target, tries.spans, has_tags=bool(segment.tags), kept=tries.kept
        )
        moved_links = tuple(_within(moved(restored.moved(own), source_move, target_move), text)) if own else ()
        text = with_no_break_spaces(segment.text, text)
        text = rewritten(segment.text, text, *languages, tries.spans)
        text = begun_as_in_source(segment.text, text, languages=languages, kept=tries.kept)
        if uses:
            text, moved_links, own_uses = honour(uses, text, moved_links)
            best_uses = best_uses if hypotheses else own_uses
        if segment.quotes:
            text, moved_links = spelled(segment, text, moved_links)
        hypotheses.append(_with_text(hypothesis, text))
        all_links.append(moved_links)
    if not hypotheses:
        return None
    share = coverage(segment.text, all_links[0]) if all_links[0] else None
    noticed = issues(
        segment.text,
        hypotheses[0].text,
        finish_reason=hypotheses[0].finish_reason,
        source_language=settings.source_language,
        target_language=settings.target_language,
        source_tokens=found.source_tokens,
        target_tokens=hypotheses[0].target_tokens,
        coverage=share,
        kept=tries.kept,
    )
    return _Restored(found, strategy, tuple(hypotheses), tuple(all_links), best_uses, noticed, share)


def _outcome(best: _Restored, segment: Segment, kept: Sequence[str], settings: Settings) -> TranslatedSegment:
    """Return the hypotheses with their tags, as they stand in the text; where one says nothing, the source does."""
    written = []
    for hypothesis, links in zip(best.hypotheses, best.links, strict=True):
        if is_empty(segment.text, hypothesis.text, kept):
            text = segment.source
        elif not segment.tags:
            text = segment.escape(hypothesis.text)
        elif _is_wrapped(segment):
            text = rewrap(segment, hypothesis.text)
        else:
            text = place_tags(segment, hypothesis.text, links)
        written.append(_with_text(hypothesis, text))
    if segment.tags and not is_well_formed(segment.tags, written[0].text):
        return _untouched(segment, best.uses)
    noticed = [*best.raw.issues, *best.issues]
    if best.uses and not all(use.is_honoured for use in best.uses):
        noticed.append((WarningKind.TERM_MISSED, "a term of the glossary is not in the translation"))
    return TranslatedSegment(
        source=segment.span,
        hypotheses=tuple(written),
        warnings=(*(TextWarning(kind, message, segment.span) for kind, message in noticed), *_of_branches(segment)),
        quality=_quality(best, segment, settings),
        links=_written_links(best, segment, written[0].text) if settings.wants_links else (),
        terms=tuple([use._replace(span=segment.origin(use.span)) for use in best.uses]),
    )


def _within(links: Sequence[Link], text: str) -> list[Link]:
    """Return the links whose words a translation still has."""
    return [link for link in links if link.target.end <= len(text)]


def _with_text(hypothesis: TranslatedText, text: str) -> TranslatedText:
    return hypothesis if text == hypothesis.text else replace(hypothesis, text=text)


def _written_links(best: _Restored, segment: Segment, written: str) -> tuple[Link, ...]:
    """Return the links of the best hypothesis, from the text of the request to what is written for the segment."""
    move = mover_to_written(best.hypotheses[0].text, written, [tag.source for tag in segment.tags], segment.escape)
    return tuple([Link(segment.origin(link.source), move(link.target)) for link in best.links[0]])


def _quality(best: _Restored, segment: Segment, settings: Settings) -> float:
    """Return the estimate for the best hypothesis."""
    found = best.hypotheses[0]
    mean = found.score * max(1, found.target_tokens) ** (settings.params.length_penalty - 1.0)
    source_tokens, target_tokens = best.raw.source_tokens, found.target_tokens
    return estimate(segment.text, found.text, score=mean, source_tokens=source_tokens, target_tokens=target_tokens)


def _is_wrapped(segment: Segment) -> bool:
    """Whether the segment's tags are the line breaks of wrapped prose."""
    return all(tag.is_break for tag in segment.tags)


async def _with_translated_tags(
    segment: Segment, index: int, settings: Settings
) -> tuple[Segment, list[TranslatedSegment]]:
    """Return the segment with the values of alt, title, ... in its tags translated, and what became of each."""
    parts = [part for tag in segment.tags for part in tag.parts if isinstance(part, Segment)]
    alphabet = settings.codec.alphabet
    inner = [part._replace(spans=spans_of(part, alphabet)) for part in (readable(part, alphabet) for part in parts)]
    outcomes = await settings.searches.together([translate_segment(part, index, settings) for part in inner])
    translated = iter([outcome.hypotheses[0].text if outcome.hypotheses else None for outcome in outcomes])
    tags: list[Tag] = []
    for tag in segment.tags:
        texts = [part if isinstance(part, str) else next(translated) or part.source for part in tag.parts]
        tags.append(tag._replace(source="".join(texts)) if texts else tag)
    return segment._replace(tags=tuple(tags)), outcomes


def has_language(text: str, spans: Sequence[Span]) -> bool:
    """Whether there are letters outside the spans."""
    place = 0
    for span in spans:
        if any(map(str.isalpha, text[place : span.begin])):
            return True
        place = span.end
    return any(map(str.isalpha, text[place:]))
