"""Terms with the translation that they have to get: where they stand in a text, and whether a translation has them.

    uses = glossary.find(text, spans)                    # terms to keep are spans to protect: `kept`
    honoured = honour(uses, target)                      # needs links only where it is not all honoured
    honoured = honour(uses, target, links)

Whole words, as they are written: upper and lower case count, and other forms of a word are other words.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from service.errors import InvalidInput
from service.records import Link, Span, Term, TermUse
from service.text.restore import whole
from service.text.spans import IN_WORD

MAX_CHARACTERS = 100_000  # of a request's terms: an index of so many takes some milliseconds

_FIRST = re.compile(rf"{IN_WORD}++|.", re.DOTALL)
_INSIDE_WORD = re.compile(rf"(?<={IN_WORD})(?={IN_WORD})")


class Honoured(NamedTuple):
    """A translation with the terms that it has to have, as far as that could be done."""

    text: str
    links: tuple[Link, ...]
    uses: tuple[TermUse, ...]

    @property
    def is_complete(self) -> bool:
        """Whether the translation has every term as asked for."""
        return all(use.is_honoured for use in self.uses)


class Glossary:
    """Terms by their first words."""

    def __init__(self, terms: Iterable[Term] = (), others: "Glossary | None" = None) -> None:
        """Index the terms; of several with the same source the first one counts.

        Args:
            others: terms that count where these say nothing.
        """
        self._terms: dict[str, Term] = {}
        self._lengths: dict[str, set[int]] = {}  # first word -> of the terms that begin with it
        self._others = others
        for term in terms:
            self._terms.setdefault(term.source, term)
        for source in self._terms:
            self._lengths.setdefault(_first(source), set()).add(len(source))

    def __len__(self) -> int:
        return len(self._terms) + (len(self._others) if self._others else 0)

    def find(self, text: str, spans: Sequence[Span] = ()) -> tuple[TermUse, ...]:
        """Return the terms of a text in its order, of several at a place the longest; none is honoured yet.

        Args:
            spans: in order; what these protect holds no terms.
        """
        return tuple(self._find(text, spans))

    def _find(self, text: str, spans: Sequence[Span]) -> Iterator[TermUse]:
        end, next_span = 0, 0
        for word in _FIRST.finditer(text):
            begin = word.start()
            while next_span < len(spans) and spans[next_span].end <= begin:
                next_span += 1
            limit = spans[next_span].begin if next_span < len(spans) else len(text)
            term = self._longest(text, begin, limit, word[0]) if end <= begin < limit else None
            if term is not None:
                end = begin + len(term.source)
                yield TermUse(term, Span(begin, end), is_honoured=False)

    def _longest(self, text: str, begin: int, limit: int, first: str) -> Term | None:
        for length in sorted(self._lengths_of(first), reverse=True):
            end = begin + length
            term = self._term(text[begin:end]) if end <= limit and not _INSIDE_WORD.match(text, end) else None
            if term is not None:
                return term
        return None

    def _lengths_of(self, first: str) -> set[int]:
        own = self._lengths.get(first, set())
        return own | self._others._lengths_of(first) if self._others else own  # noqa: SLF001 - another of its kind

    def _term(self, source: str) -> Term | None:
        return self._terms.get(source) or (self._others._term(source) if self._others else None)  # noqa: SLF001


def check_terms(terms: Sequence[Term]) -> None:
    """Raise InvalidInput for the terms of a request that are too long together, or if one has no source."""
    for index, term in enumerate(terms):
        if not term.source.strip():
            message = f"glossary.terms[{index}].source is {term.source!r}: a term is a word or more"
            raise InvalidInput(message, field=f"glossary.terms[{index}].source")
    length = sum(len(term.source) + len(term.target) for term in terms)
    if length > MAX_CHARACTERS:
        message = (
            f"glossary.terms have {length} characters, at most {MAX_CHARACTERS} are accepted; "
            "larger glossaries belong on the server (models.glossaries)"
        )
        raise InvalidInput(message, field="glossary.terms")


def kept(uses: Iterable[TermUse]) -> tuple[Span, ...]:
    """Return where the terms stand that are not to be translated: spans to protect."""
    return tuple(use.span for use in uses if not use.term.target)


def honour(uses: Sequence[TermUse], target: str, links: Sequence[Link] = ()) -> Honoured:
    """Return a translation with the terms that it misses in place of the words that are linked to theirs.

    A term whose target stands in the translation as often as it is asked for is honoured.  Another one is put in place
    of the words that are linked to it, if these stand together: no word between belongs to another part of the source.

    Args:
        uses: in the text that was translated, from `Glossary.find`.
        target: its translation, with the protected spans put back.
        links: between the words of both; without them nothing is replaced.
    """
    present = _copies([_wanted(use) for use in uses], target)
    found = [_take(present, _wanted(use)) for use in uses]
    edits: list[tuple[Span, TermUse]] = []
    for use in (use for use, is_found in zip(uses, found, strict=True) if not is_found and use.term.target):
        place = _place(use.span, links)
        if place is not None and all(place.end <= other.begin or other.end <= place.begin for other, _ in edits):
            edits.append((place, use))
    replaced = {use.span for _, use in edits}
    done = tuple(
        use._replace(is_honoured=is_found or use.span in replaced) for use, is_found in zip(uses, found, strict=True)
    )
    text, moved = _edited(target, links, sorted(edits))
    return Honoured(text, moved, done)


def _wanted(use: TermUse) -> str:
    return use.term.target or use.term.source


def _copies(texts: Sequence[str], target: str) -> Counter[str]:
    """Count how often a translation has each text, none inside another or inside a word."""
    if not texts:
        return Counter()
    pattern = "|".join(whole(text) for text in sorted(set(texts), key=len, reverse=True))
    return Counter(match[0] for match in re.finditer(pattern, target))


def _take(present: Counter[str], text: str) -> bool:
    present[text] -= 1
    return present[text] >= 0


def _place(source: Span, links: Iterable[Link]) -> Span | None:
    """Return the range of the translation that belongs to a part of the source alone; None if there is none."""
    own = [link.target for link in links if link.source.begin < source.end and source.begin < link.source.end]
    if not own:
        return None
    place = Span(min(one.begin for one in own), max(one.end for one in own))
    foreign = (link.target for link in links if link.source.end <= source.begin or source.end <= link.source.begin)
    is_alone = all(one.end <= place.begin or place.end <= one.begin for one in foreign)
    return place if is_alone else None


def _edited(target: str, links: Iterable[Link], edits: Sequence[tuple[Span, TermUse]]) -> tuple[str, tuple[Link, ...]]:
    """Return the translation with the targets of terms in their places, and the links moved along."""
    pieces, end = [], 0
    for place, use in edits:
        pieces += [target[end : place.begin], use.term.target]
        end = place.end
    return "".join((*pieces, target[end:])), tuple(Link(link.source, _moved(link.target, edits)) for link in links)


def _moved(word: Span, edits: Iterable[tuple[Span, TermUse]]) -> Span:
    shift = 0
    for place, use in edits:
        length = len(use.term.target)
        if place.begin <= word.begin and word.end <= place.end:
            return Span(place.begin + shift, place.begin + shift + length)
        if place.end <= word.begin:
            shift += length - (place.end - place.begin)
    return Span(word.begin + shift, word.end + shift)


def _first(source: str) -> str:
    match = _FIRST.match(source)
    assert match is not None, "a term has a source"
    return match[0]
