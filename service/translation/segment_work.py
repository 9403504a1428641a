"""The work on one segment: to token ids, through the engine, back to text, with everything in it that is not language.

    spans found -> rungs of a ladder, the first that keeps every span: search -> [links] -> restore
                -> faults? one safer try -> tags placed -> outcome

A segment whose spans no rung keeps stays as it is, with a warning.  Knows neither asyncio nor the engine; see
`tasks.py` for how the work gets done.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from service.engine.job import SearchParams
from service.errors import InternalError
from service.records import Link, Span, TermUse, TextWarning, TranslatedText, WarningKind
from service.registry.model_info import untranslated
from service.text.document import Segment, Tag
from service.text.guard import Fault, faults
from service.text.placement import place_tags
from service.text.retries import Attempt, better, safer
from service.text.sentences import rewrap
from service.text.spans import find_spans
from service.translation.drafts import Draft, Settings, draft, piecewise
from service.translation.rungs import Rung, rungs
from service.translation.tasks import Rounds, Task, together


class SegmentOutcome(NamedTuple):
    """What became of a segment."""

    hypotheses: tuple[TranslatedText, ...] = ()  # as they stand in the text, best first
    warnings: tuple[TextWarning, ...] = ()
    quality: float | None = None
    links: tuple[Link, ...] = ()  # source: in the text of the request; target: in the best hypothesis
    terms: tuple[TermUse, ...] = ()
    source_tokens: int = 0
    row_steps: int = 0
    error: InternalError | None = None  # then there is no hypothesis

    def place(self, link: Link, begin: int) -> Link:
        """Return a link of this segment whose best hypothesis begins at `begin` of the text's."""
        return Link(link.source, Span(begin + link.target.begin, begin + link.target.end))


class _Restored(NamedTuple):
    """A draft whose hypotheses have everything of the segment but its tags."""

    draft: Draft  # of what the model saw
    hypotheses: tuple[TranslatedText, ...]
    links: tuple[tuple[Link, ...], ...]  # of each hypothesis, with the segment's text
    faults: Sequence[Fault]

    @property
    def attempt(self) -> Attempt:
        """What decides whether it is better than another one."""
        return Attempt(self.faults, self.hypotheses[0].score)


def translate_whole(segment: Segment, index: int, settings: Settings, prefix: str = "") -> Rounds[SegmentOutcome]:
    """Return what the model makes of a text as it is; raises InvalidInput if that has more tokens than fit."""
    codec = settings.codec
    ids = tuple(codec.encode(segment.text, index))
    if not ids:
        return SegmentOutcome(hypotheses=(untranslated(segment.text),))
    prefix_ids = codec.prefix_ids(prefix, index, settings.params)
    (reply,) = yield [Task(ids, settings.params, prefix_ids)]
    if isinstance(reply.result, InternalError):
        return SegmentOutcome(source_tokens=len(ids), error=reply.result)
    hypotheses = codec.decode(reply.result.hypotheses)
    return SegmentOutcome(hypotheses=hypotheses, source_tokens=len(ids), row_steps=reply.row_steps)


def translate_segment(
    segment: Segment, index: int, settings: Settings, escape: Callable[[str], str]
) -> Rounds[SegmentOutcome]:
    """Return the translation of a segment; raises InvalidInput if its text cannot be put into tokens.

    Args:
        segment: of the text.
        index: the text's place in its request; only for errors.
        settings: of the request.
        escape: language -> as the text's format writes it.
    """
    spans = find_spans(segment.text, settings.codec.alphabet)
    if not has_language(segment.text, spans):
        return SegmentOutcome(hypotheses=(untranslated(segment.source),))
    if any(tag.parts for tag in segment.tags):
        segment = yield from _with_translated_tags(segment, index, settings, escape)
    source_tokens = row_steps = 0
    best: _Restored | None = None
    for rung in rungs(segment, spans, settings.codec.alphabet):
        found = yield from _drafted(rung, index, settings, settings.params)
        source_tokens = source_tokens or found.source_tokens
        row_steps += found.row_steps
        if found.error is not None:
            return SegmentOutcome(source_tokens=source_tokens, row_steps=row_steps, error=found.error)
        best = yield from _restore(found, rung, segment, settings)
        if best is not None:
            again, steps = yield from _safer_try(best, rung, segment, index, settings)
            best, row_steps = again or best, row_steps + steps
            break
    if best is None:
        warning = TextWarning(
            WarningKind.NOT_TRANSLATED, "what has to come back as it is would have been lost", segment.span
        )
        kept = SegmentOutcome(hypotheses=(untranslated(segment.source),), warnings=(warning,))
        return kept._replace(source_tokens=source_tokens, row_steps=row_steps)
    return _outcome(best, segment, settings, escape)._replace(source_tokens=source_tokens, row_steps=row_steps)


def _drafted(rung: Rung, index: int, settings: Settings, params: SearchParams, limit: int = 0) -> Rounds[Draft]:
    if rung.pieces:
        return (yield from piecewise(rung.pieces, index, settings, params))
    return (yield from draft(rung.text, index, settings, params, kept=rung.kept, limit=limit))


def _restore(found: Draft, rung: Rung, segment: Segment, settings: Settings) -> Rounds[_Restored | None]:
    """Return the hypotheses of a draft with all spans in them; None if none has them all."""
    needs_links = rung.needs_links or settings.wants_links or bool(segment.tags and not _is_wrapped(segment))
    links: Sequence[Sequence[Link]] = [()] * len(found.hypotheses)
    if needs_links:
        links = yield from found.links(settings)
    hypotheses, kept_links = [], []
    for hypothesis, own in zip(found.hypotheses, links, strict=True):
        restored = rung.restore(hypothesis.text, own)
        if restored is not None:
            hypotheses.append(replace(hypothesis, text=restored.target))
            kept_links.append(tuple(restored.moved(own)) if settings.wants_links or segment.tags else ())
    if not hypotheses:
        return None
    best = hypotheses[0]
    noticed = faults(
        segment.text,
        best.text,
        finish_reason=best.finish_reason,
        source_language=settings.source_language,
        target_language=settings.target_language,
        source_tokens=found.source_tokens,
        target_tokens=best.target_tokens,
    )
    return _Restored(found, tuple(hypotheses), tuple(kept_links), noticed)


def _safer_try(
    first: _Restored, rung: Rung, segment: Segment, index: int, settings: Settings
) -> Rounds[tuple[_Restored | None, int]]:
    """Translate in a safer way if something is wrong; return the result if it is better, and its row steps."""
    retry = safer(segment.text, first.faults, settings.params) if first.faults else None
    if retry is None:
        return None, 0
    limit = max(2, first.draft.source_tokens // 2) if retry.in_pieces else 0
    found = yield from _drafted(rung, index, settings, retry.params, limit)
    if found.error is not None:
        return None, found.row_steps
    second = yield from _restore(found, rung, segment, settings)
    is_better = second is not None and better(first.attempt, second.attempt)
    return (second if is_better else None), found.row_steps


def _outcome(best: _Restored, segment: Segment, settings: Settings, escape: Callable[[str], str]) -> SegmentOutcome:
    """Return the hypotheses with their tags, as they stand in the text."""
    written = []
    for hypothesis, links in zip(best.hypotheses, best.links, strict=True):
        if not segment.tags:
            text = escape(hypothesis.text)
        elif _is_wrapped(segment):
            text = rewrap(segment, hypothesis.text)
        else:
            text = place_tags(segment, hypothesis.text, links, escape)
        written.append(replace(hypothesis, text=text))
    noticed = [*best.draft.faults, *best.faults]
    return SegmentOutcome(
        hypotheses=tuple(written),
        warnings=tuple([TextWarning(kind, message, segment.span) for kind, message in noticed]),
        links=tuple(
            [Link(segment.origin(link.source), link.target) for link in best.links[0]] if settings.wants_links else ()
        ),
    )


def _is_wrapped(segment: Segment) -> bool:
    """Whether the segment's tags are the line breaks of wrapped prose."""
    return all(tag.source.isspace() for tag in segment.tags)


def _with_translated_tags(
    segment: Segment, index: int, settings: Settings, escape: Callable[[str], str]
) -> Rounds[Segment]:
    """Return the segment with the language in its tags translated: the values of alt, title, ..."""
    inner = [part for tag in segment.tags for part in tag.parts if isinstance(part, Segment)]
    outcomes = yield from together([translate_segment(part, index, settings, part.escape or escape) for part in inner])
    translated = iter([outcome.hypotheses[0].text if outcome.hypotheses else None for outcome in outcomes])
    tags: list[Tag] = []
    for tag in segment.tags:
        texts = [part if isinstance(part, str) else next(translated) or part.source for part in tag.parts]
        tags.append(tag._replace(source="".join(texts)) if texts else tag)
    return segment._replace(tags=tuple(tags))


def has_language(text: str, spans: Sequence[Span]) -> bool:
    """Whether there are letters outside the spans."""
    place = 0
    for span in spans:
        if any(map(str.isalpha, text[place : span.begin])):
            return True
        place = span.end
    return any(map(str.isalpha, text[place:]))
