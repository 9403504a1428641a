"""The strategies that keep a segment's spans: a strategy is a text for the model, and how to mend what comes out.

    signs as words, where it has some -> sentinels in place of the spans, where the model has them
    -> stand-ins in place of the spans -> without the spans, put back by alignment -> cut in pieces

As they are, models lose most spans (`bench/quality/stand_ins.py`), so that is not tried.
Knows neither the model nor the engine.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from service.records import Link, Span
from service.text.alignment import Anchor, Move, moved, mover
from service.text.document import Segment
from service.text.protect import Alphabet
from service.text.restore import (
    StandIn,
    cut_at,
    find_copies,
    insert_by_links,
    is_intact,
    put_back,
    replaced,
    take_out,
    with_sentinels,
    with_stand_ins,
)
from service.text.signs import Read, read


class Restored(NamedTuple):
    """A translation with all spans in it."""

    target: str
    source_move: Move | None = None  # from the strategy's text to the segment's; None: they are the same
    target_move: Move | None = None  # from what came out to `target`
    has_links: bool = True  # whether links of what came out can be moved

    def moved(self, links: Sequence[Link]) -> list[Link]:
        """Return the links between its text and what came out as links of the segment's text and `target`."""
        return moved(links, self.source_move, self.target_move) if self.has_links else []


Restore = Callable[[str, Sequence[Link]], Restored | None]  # what came out, links -> None: a span would be lost


class Strategy(NamedTuple):
    """A way to keep the spans of a segment."""

    text: str  # what the model gets
    restore: Restore
    kept: tuple[str, ...] = ()  # parts of `text` that stay as they are
    needs_links: bool = False
    is_marked: bool = False  # whether `text` has sentinels
    pieces: tuple[str, ...] = ()  # `text` in pieces that are translated apart; those without language stay


def strategies(
    segment: Segment,
    spans: Sequence[Span],
    alphabet: Alphabet,
    sentinels: Sequence[str] = (),
    written: Mapping[Span, str] = MappingProxyType({}),
    languages: tuple[str, str] = ("", ""),
) -> Iterator[Strategy]:
    """Yield the strategies for a segment, the best first.

    Args:
        segment: with its text, which may have signs that are read as words.
        spans: in the text, in order.
        alphabet: of the model.
        sentinels: of the model.
        written: what stands in the translation for spans that do not come back as they are.
        languages: of source and target, BCP 47.
    """
    if (found := read(segment.text, spans, *languages)) is not None:
        forms = {found.spans[span]: form for span, form in written.items() if span in found.spans}
        without = segment._replace(text=found.text)
        strategy = next(_of_spans(without, tuple(found.spans.values()), alphabet, sentinels, forms))
        yield strategy._replace(restore=_with_signs(strategy.restore, found))
    yield from _of_spans(segment, spans, alphabet, sentinels, written)


def _with_signs(restore: Restore, found: Read) -> Restore:
    """Return what restores as well, and writes the signs."""

    def with_signs(target: str, links: Sequence[Link]) -> Restored | None:
        restored = restore(target, links)
        written = None if restored is None else found.written(restored.target)
        if restored is None or written is None:
            return None
        source_move, target_move = _after(restored.source_move, found.move), _after(restored.target_move, written[1])
        return Restored(written[0], source_move, target_move, restored.has_links)

    return with_signs


def _after(first: Move | None, second: Move) -> Move:
    return second if first is None else lambda span: second(first(span))


def _of_spans(
    segment: Segment,
    spans: Sequence[Span],
    alphabet: Alphabet,
    sentinels: Sequence[str],
    written: Mapping[Span, str],
) -> Iterator[Strategy]:
    if not spans:
        yield Strategy(segment.text, lambda target, _: Restored(target.strip()))
        return
    kept = tuple([written.get(span, segment.text[span.begin : span.end]) for span in spans])
    wanted = replaced(segment.text, spans, kept)
    for strategy in _strategies(segment, spans, kept, alphabet, sentinels):
        yield strategy._replace(restore=_checked(strategy.restore, wanted, kept))


def _checked(restore: Restore, text: str, kept: Sequence[str]) -> Restore:
    """Return what restores as well, but nothing that has a span more or less often than the text, be it in a word."""

    def checked(target: str, links: Sequence[Link]) -> Restored | None:
        restored = restore(target, links)
        if restored is None or any(restored.target.count(one) != text.count(one) for one in set(kept)):
            return None
        return restored._replace(target=restored.target.strip())

    return checked


def _strategies(
    segment: Segment, spans: Sequence[Span], kept: tuple[str, ...], alphabet: Alphabet, sentinels: Sequence[str]
) -> Iterator[Strategy]:
    text = segment.text
    if len(spans) <= len(sentinels):
        yield _marked(text, spans, kept, sentinels)
    attempt = 0
    while (made := with_stand_ins(text, spans, alphabet, attempt=attempt)) is not None:
        attempt += 1
        with_words, stand_ins = made
        stand_ins = tuple([one._replace(text=text) for one, text in zip(stand_ins, kept, strict=True)])
        words = tuple([stand_in.word for stand_in in stand_ins])
        if not any(word in segment.source for word in words):
            source_move = mover(_anchors(with_words, words, spans))
            yield Strategy(with_words, _by_stand_ins(stand_ins, source_move), words)
    without, gaps = take_out(text, spans)
    gaps = tuple([gap._replace(text=one) for gap, one in zip(gaps, kept, strict=True)])
    if any(map(str.isalpha, without)):

        def restore(target: str, links: Sequence[Link]) -> Restored | None:
            done = insert_by_links(without, gaps, target, links)
            return Restored(done, has_links=False) if done is not None and is_intact(kept, done) else None

        yield Strategy(without, restore, needs_links=True)
    of_spans = iter(kept)
    pieces = [piece if isinstance(piece, str) else next(of_spans) for piece in cut_at(text, spans)]

    def if_intact(target: str, _: Sequence[Link]) -> Restored | None:
        return Restored(target, has_links=False) if is_intact(kept, target) else None

    yield Strategy(text, if_intact, kept, pieces=tuple(pieces))


def _marked(text: str, spans: Sequence[Span], kept: Sequence[str], sentinels: Sequence[str]) -> Strategy:
    """A sentinel in place of each span; those that the text has itself are blanks, as any control character."""
    blanks = text.translate({ord(sentinel): " " for sentinel in sentinels})
    marked, found = with_sentinels(blanks, spans, sentinels)
    stand_ins = [stand_in._replace(text=one) for stand_in, one in zip(found, kept, strict=True)]
    words = tuple([stand_in.word for stand_in in stand_ins])
    restore = _by_stand_ins(stand_ins, mover(_anchors(marked, words, spans)))

    def if_no_other(target: str, links: Sequence[Link]) -> Restored | None:
        return None if any(sentinel in target for sentinel in sentinels[len(spans) :]) else restore(target, links)

    return Strategy(marked, if_no_other, words, is_marked=True)


def _by_stand_ins(stand_ins: Sequence[StandIn], source_move: Move) -> Restore:
    texts = {stand_in.word: stand_in.text for stand_in in stand_ins}

    def restore(target: str, _: Sequence[Link]) -> Restored | None:
        done = put_back(target, stand_ins)
        if done is None:
            return None
        words = sorted(texts, key=target.find)
        copies = find_copies([texts[word] for word in words], done)
        if copies is None:
            return None
        anchors = _anchors(target, words, copies)
        return Restored(done, source_move, mover(anchors))

    return restore


def _anchors(text: str, words: Sequence[str], spans: Sequence[Span]) -> list[Anchor]:
    """Return where words, each of which stands in a text once, have spans of another text in their place."""
    places = [Span(begin, begin + len(word)) for word in words for begin in (text.find(word),)]
    return [Anchor(place, span) for place, span in zip(places, spans, strict=True)]
