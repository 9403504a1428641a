"""The work on one text: taken apart, each segment translated, put together again, byte for byte between segments.

    markup or lines -> segments, each with its spans -> `segment.py` for each -> hypotheses, segments, terms

How a search gets to an engine is in `search_batcher.py`.
"""

from collections.abc import Iterable, Iterator, Sequence

from service.engine.wire import Job
from service.errors import InternalError, InvalidInput
from service.models.codec import untranslated
from service.records import (
    Link,
    Segmentation,
    Span,
    TextFormat,
    TextWarning,
    TranslatedSegment,
    TranslatedText,
    Translation,
)
from service.text.markup import parse
from service.text.normalization import readable
from service.text.protected_spans import Alphabet, find_spans, spans_of
from service.text.quality import EMPTY, is_empty
from service.text.segmentation import cuts, split
from service.text.segments import Part, Segment, borders, joined, verbatim
from service.text.segments import split as split_at
from service.text.span_patterns import has_branches
from service.text.span_strategies import outer_ends
from service.translate.raw_translation import Settings, join_hypotheses
from service.translate.segment import has_language, translate_segment, with_text


async def translate_text(text: str, index: int, settings: Settings, prefix: str = "") -> Translation:
    """Return the translation of a text, or its error.

    Args:
        text: as the caller sent it.
        index: the text's place in its request; only for errors.
        settings: of the request.
        prefix: what the translation has to begin with.
    """
    try:
        settings.codec.check(text)
        if not text.strip():
            return Translation(hypotheses=(untranslated(text),))
        if settings.segmentation is Segmentation.NONE or prefix:
            parts: list[Part] = [Segment(text, 0, text)]
            works = [translate_whole(text, settings, prefix)]
        else:
            parts = take_apart(text, settings)
            works = [translate_segment(part, settings) for part in parts if isinstance(part, Segment)]
        segments = await settings.batcher.together(works)
    except InvalidInput as error:
        return Translation(error=error.at(index))
    return assemble(parts, segments)


async def translate_whole(text: str, settings: Settings, prefix: str = "") -> TranslatedSegment:
    """Return what the model makes of a text as it is; raises InvalidInput if that has more tokens than fit."""
    codec, whole = settings.codec, Span(0, len(text))
    ids = tuple(codec.encode(text))
    if not ids:
        return TranslatedSegment(source=whole, hypotheses=(untranslated(text),))
    prefix_ids = codec.prefix_ids(prefix, settings.params)
    (result,) = await settings.batcher.search([Job(ids, settings.params, prefix_ids)])
    if isinstance(result, InternalError):
        return TranslatedSegment(source=whole, source_tokens=len(ids), error=result)
    hypotheses = codec.decode(result.hypotheses)
    return TranslatedSegment(
        source=whole,
        hypotheses=tuple([with_text(one, text) if is_empty(text, one.text) else one for one in hypotheses]),
        warnings=(TextWarning(*EMPTY, whole),) if is_empty(text, hypotheses[0].text) else (),
        source_tokens=len(ids),
        row_steps=result.row_steps,
    )


def take_apart(text: str, settings: Settings) -> list[Part]:
    """Return the text in sentences, with their spans, and what stands between them."""
    alphabet, language = settings.codec.alphabet, settings.source_language
    if settings.text_format is TextFormat.PLAIN:
        parts = split(Segment(text, 0, text), language, lambda: find_spans(text, alphabet), settings.segmentation)
        return joined(_stripped(parts, alphabet))
    parts = []
    for part in parse(text, settings.text_format):
        if isinstance(part, str):
            parts.append(part)
        else:
            kept = spans_of(part, alphabet)
            places = sorted({*cuts(part, language, kept, settings.segmentation), *borders(part)})
            parts += split_at(part, places) if places else [part]
    return joined(_stripped(parts, alphabet))


def _stripped(parts: Iterable[Part], alphabet: Alphabet) -> Iterator[Part]:
    """Yield the parts without empty segments; signs at the ends of a segment are parts of their own."""
    for part in parts:
        if isinstance(part, str):
            yield part
            continue
        segment = readable(part, alphabet)
        if spans := spans_of(segment, alphabet):
            segment = segment._replace(spans=spans)
        if not segment.tags and any(has_branches(segment.text[begin:end]) for begin, end in segment.spans):
            yield segment  # gets a warning, though it may be a message alone
        elif not has_language(segment.text, segment.spans):
            yield from _stripped(verbatim(segment), alphabet)
        elif segment.spans and (ends := outer_ends(segment)) != (0, len(segment.text)):
            for piece in split_at(segment, ends):
                is_language = isinstance(piece, Segment) and has_language(piece.text, piece.spans)
                yield piece if isinstance(piece, str) or is_language else piece.source
        else:
            yield segment


def assemble(parts: Sequence[Part], segments: Sequence[TranslatedSegment]) -> Translation:
    """Return the translation of a text from its parts and its translated segments, which get their places, in order."""
    whole = Translation()
    for segment in segments:
        whole.source_tokens += segment.source_tokens
        whole.row_steps += segment.row_steps
        whole.retries += segment.retries
        whole.error = whole.error or segment.error
    if whole.error is not None:
        return whole
    place, remaining = 0, iter(segments)
    pieces = list[str | tuple[TranslatedText, ...]]()
    for part in parts:
        if isinstance(part, str):
            pieces.append(part)
            place += len(part)
            continue
        segment = next(remaining)
        begin, place = place, place + len(segment.hypotheses[0].text)
        segment.target = Span(begin, place)
        if begin:
            segment.links = tuple(
                [Link(source, Span(begin + target.begin, begin + target.end)) for source, target in segment.links]
            )
        pieces.append(segment.hypotheses)
    whole.segments = tuple(segments)
    whole.terms = tuple([use for segment in segments for use in segment.terms])
    whole.hypotheses = segments[0].hypotheses if len(parts) == len(segments) == 1 else join_hypotheses(pieces)
    return whole
