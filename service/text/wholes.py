"""Parts of a segment that come back letter by letter with the tags in them, where they stand.

    H<sub>2</sub>SO<sub>4</sub>   <span class="invisible">https://</span><span>example.org</span>   <code>ls</code>

Knows tags and text, no format and no model.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from service.records import Link, Span
from service.text.document import Segment, Tag, TagKind

_ENDS = ".,;:!?()[]\"'“”„‚‘’«»‹›…"
_OPERATORS = frozenset("+-\u2212=*/^\u00b7\u00d7<>$€£%")
_WORDS_OF_LANGUAGE = re.compile(r"[^\W\d_]{4}|\d(?:st|nd|rd|th)\b")


class Whole(NamedTuple):
    """A part of a segment with all that is written in it."""

    shown: Span  # in the text of the segment
    source: str
    first: int  # tag in it
    last: int


def wholes(segment: Segment) -> list[Whole]:
    """Return what tags show, and words with tags in them; longer ones go before the words that they hold."""
    found = [Whole(tag.shown, tag.source, index, index) for index, tag in enumerate(segment.tags) if tag.width]
    places = [number for number, tag in enumerate(segment.tags) if _is_inner(segment, tag)]
    return [*found, *dict.fromkeys(whole for number in places for whole in _around(segment, number))]


def formulas(segment: Segment) -> Iterator[Span]:
    """Yield words with tags in them that are no language: "H<sub>2</sub>O", "x<sup>2</sup>+1"."""
    end = 0
    for tag in segment.tags:
        if tag.position >= end and _is_inner(segment, tag):
            for span in _candidates(segment, tag.position):
                text = segment.text[slice(*span)]
                if any(map(str.isdigit, text)) and not _WORDS_OF_LANGUAGE.search(text):
                    end = span.end
                    yield span
                    break


def found_again(candidates: Sequence[Whole], segment: Segment, target: str, links: Sequence[Link]) -> dict[Whole, Span]:
    """Return where a translation has these parts; of several copies those that are linked."""
    by_text: dict[str, list[Whole]] = {}
    for whole in candidates:
        by_text.setdefault(segment.text[slice(*whole.shown)], []).append(whole)
    linked: dict[str, set[int]] = _linked(by_text, links)
    found: dict[Whole, Span] = {}
    taken: set[int] = set()
    taken_tags: set[int] = set()
    # Longer ones first: "ls" is not looked for in "ls -l".
    for text in sorted(by_text, key=len, reverse=True):
        wanted = [one for one in by_text[text] if taken_tags.isdisjoint(range(one.first, one.last + 1))]
        if not wanted:
            continue
        copies = (
            Span(*match.span()) for match in _pattern(segment.text, [one.shown for one in wanted]).finditer(target)
        )
        free = [copy for copy in copies if taken.isdisjoint(range(*copy))]
        is_linked = [not linked[text].isdisjoint(range(*copy)) for copy in free]
        best = sorted(range(len(free)), key=is_linked.__getitem__, reverse=True)
        chosen = sorted([free[index] for index in best[: len(wanted)]])
        for whole, copy in zip(wanted, chosen, strict=False):
            found[whole] = copy
            taken.update(range(*copy))
            taken_tags.update(range(whole.first, whole.last + 1))
    return found


def _linked(by_text: Mapping[str, Sequence[Whole]], links: Sequence[Link]) -> dict[str, set[int]]:
    """Return the places in the translation that are linked to parts with these texts."""
    texts_at: dict[int, list[str]] = {}
    for text, found in by_text.items():
        for whole in found:
            for place in range(*whole.shown):
                texts_at.setdefault(place, []).append(text)
    linked: dict[str, set[int]] = {text: set() for text in by_text}
    for link in links:
        for text in texts_at.get(link.source.begin, ()):
            linked[text].add(link.target.begin)
    return linked


def _is_inner(segment: Segment, tag: Tag) -> bool:
    """Whether a tag stands between two characters of a word, a number or a formula."""
    around = segment.text[max(0, tag.position - 1) : tag.position + 1]
    is_inner = len(around) == 2 and all(one.isalnum() or one in _OPERATORS for one in around)
    return is_inner and tag.position > 0 and not tag.width


def _candidates(segment: Segment, position: int) -> Iterator[Span]:
    """Yield what may come back as it is around a place: its span, or what stands between white space; then its word."""
    around = next((span for span in segment.spans if span.begin < position < span.end), None)
    if around is not None:
        yield around
        return
    text = segment.text
    for begins, is_part in ((str.isspace, False), (lambda one: one.isalnum() or one == "_", True)):
        begin = end = position
        while begin and begins(text[begin - 1]) is is_part:
            begin -= 1
        while end < len(text) and begins(text[end]) is is_part:
            end += 1
        trimmed = text[begin:end]
        begin += len(trimmed) - len(trimmed.lstrip(_ENDS))
        end -= len(trimmed) - len(trimmed.rstrip(_ENDS))
        if begin < position < end:
            yield Span(begin, end)


def _around(segment: Segment, number: int) -> Iterator[Whole]:
    """Yield the parts around a tag whose tags are all inside."""
    for span in _candidates(segment, segment.tags[number].position):
        tags = _tags_in(segment, span)
        if tags is None:
            continue
        first, last = tags
        begin = min(segment.origin(Span(span.begin, span.begin + 1)).begin, segment.tags[first].begin)
        end = max(segment.origin(Span(span.end - 1, span.end)).end, segment.tags[last].end)
        pieces, place = list[str](), begin
        for tag in segment.tags[first : last + 1]:
            pieces += segment.source[place - segment.begin : tag.begin - segment.begin], tag.source
            place = tag.end
        yield Whole(span, "".join((*pieces, segment.source[place - segment.begin : end - segment.begin])), first, last)


def _tags_in(segment: Segment, span: Span) -> tuple[int, int] | None:
    """Return the first and the last tag of those in a span and their partners; None: one reaches beyond it."""
    inner = [number for number, tag in enumerate(segment.tags) if span.begin < tag.position < span.end]
    first, last = inner[0], inner[-1]
    while True:
        partners = [tag.partner for tag in segment.tags[first : last + 1] if tag.partner is not None]
        wanted = min([first, *partners]), max([last, *partners])
        if wanted == (first, last):
            break
        first, last = wanted
    tags = segment.tags[first : last + 1]
    is_whole = all(
        span.begin <= tag.position
        and tag.shown.end <= span.end
        and (tag.partner is not None or tag.kind is TagKind.POINT)
        for tag in tags
    )
    return (first, last) if is_whole else None


def _pattern(text: str, shown: Sequence[Span]) -> re.Pattern[str]:
    """Return what finds spans with the same text in a translation: not as a part of a word unless one of them is."""
    is_in_word = any(re.search(r"\w\w", text[max(0, place - 1) : place + 1]) for span in shown for place in span)
    written = text[slice(*shown[0])]
    if is_in_word:
        return re.compile(re.escape(written))
    left, right = (r"\b" if end.isalnum() else "" for end in (written[0], written[-1]))
    return re.compile(f"{left}{re.escape(written)}{right}")
