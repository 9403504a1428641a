"""The work on one text: taken apart, each segment translated, put together again, byte for byte between segments.

Knows neither how a text's searches get to an engine (`search.py`), nor how a segment is translated (`segment.py`).
"""

from collections.abc import Iterable, Iterator, Sequence

from service.errors import InvalidInput
from service.models.info import untranslated
from service.records import Link, Segmentation, Span, TextFormat, TranslatedSegment, Translation
from service.text.document import Part, Segment, borders, joined
from service.text.document import split as split_at
from service.text.markup import parse
from service.text.patterns import has_branches
from service.text.protect import Alphabet, find_spans, spans_of
from service.text.readable import readable
from service.text.restore import strip_outer
from service.text.sentences import cuts, split
from service.translate.raw import Settings, join_hypotheses
from service.translate.segment import has_language, translate_segment, translate_whole


async def translate_text(text: str, index: int, settings: Settings, prefix: str = "") -> Translation:
    """Return the translation of a text, or its error.

    Args:
        text: as the caller sent it.
        index: the text's place in its request; only for errors.
        settings: of the request.
        prefix: what the translation has to begin with.
    """
    try:
        settings.codec.check(text, index)
        if not text.strip():
            return Translation(hypotheses=(untranslated(text),))
        if settings.segmentation is Segmentation.NONE or prefix:
            parts: list[Part] = [Segment(text, 0, text)]
            works = [translate_whole(text, index, settings, prefix)]
        else:
            parts = take_apart(text, settings)
            works = [translate_segment(part, index, settings) for part in parts if isinstance(part, Segment)]
        segments = await settings.searches.together(works)
    except InvalidInput as error:
        return Translation(error=error)
    return assemble(parts, segments)


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
    """Yield the parts, with what says nothing at the ends of segments apart from them, and without empty segments."""
    for part in parts:
        if isinstance(part, str):
            yield part
            continue
        segment = readable(part, alphabet)
        spans = spans_of(segment, alphabet)
        if not segment.tags and any(has_branches(segment.text[begin:end]) for begin, end in spans):
            yield segment._replace(spans=spans)  # gets a warning, though it may be a message alone
        elif not has_language(segment.text, spans):
            yield from _stripped(_in_tags(segment), alphabet)
        elif spans:
            before, inner, after = strip_outer(segment._replace(spans=spans))
            yield before
            if inner is not None:
                yield inner._replace(spans=spans_of(inner, alphabet))
            yield after
        else:
            yield segment


def _in_tags(segment: Segment) -> Iterator[Part]:
    """Yield the parts of a segment that has language in its tags at most: values of alt, title, ..."""
    place = segment.begin
    for tag in segment.tags:
        if tag.parts:
            yield segment.source[place - segment.begin : tag.begin - segment.begin]
            yield from tag.parts
            place = tag.end
    yield segment.source[place - segment.begin :]


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
    for part in parts:
        if isinstance(part, str):
            place += len(part)
            continue
        segment = next(remaining)
        begin, place = place, place + len(segment.hypotheses[0].text)
        segment.target = Span(begin, place)
        if segment.links and begin:
            segment.links = tuple(
                [Link(source, Span(begin + target.begin, begin + target.end)) for source, target in segment.links]
            )
    remaining = iter(segments)
    whole.segments = tuple(segments)
    whole.terms = tuple([use for segment in segments for use in segment.terms])
    whole.hypotheses = (
        segments[0].hypotheses
        if len(parts) == len(segments) == 1
        else join_hypotheses([part if isinstance(part, str) else next(remaining).hypotheses for part in parts])
    )
    return whole
