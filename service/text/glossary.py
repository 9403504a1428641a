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
from service.text.protect import IN_WORD
from service.text.restore import find_all

MAX_CHARACTERS = 100_000  # of a request's terms: an index of so many takes some 10 ms
MAX_SOURCE_CHARACTERS = 200  # of one of them, so that no text is slow to search

_WORD = re.compile(rf"{IN_WORD}++|.", re.DOTALL)


class Honoured(NamedTuple):
    """A translation with the terms that it has to have, as far as that could be done."""

    text: str
    links: tuple[Link, ...]
    uses: tuple[TermUse, ...]

    @property
    def is_complete(self) -> bool:
        """Whether the translation has every term as asked for."""
        return all(use.is_honoured for use in self.uses)


class _Node:
    """What terms go on with after some words."""

    __slots__ = ("following", "term")

    def __init__(self) -> None:
        self.following: dict[str, _Node] = {}
        self.term: Term | None = None  # that ends here


class Glossary:
    """Terms by their words."""

    def __init__(self, terms: Iterable[Term] = (), others: "Glossary | None" = None) -> None:
        """Index the terms; of several with the same source the first one counts.

        Args:
            others: terms that count where these say nothing.
        """
        self.roots: list[_Node] = [_Node(), *(others.roots if others else [])]
        self._num_terms = len(others) if others else 0
        for term in terms:
            node = self.roots[0]
            for word in _WORD.findall(term.source):
                node = node.following.setdefault(word, _Node())
            self._num_terms += node.term is None
            node.term = node.term or term

    def __len__(self) -> int:
        return self._num_terms

    def find(self, text: str, spans: Sequence[Span] = ()) -> tuple[TermUse, ...]:
        """Return the terms of a text in its order, of several at a place the longest; none is honoured yet.

        Args:
            spans: in order; what these protect holds no terms.
        """
        return tuple(self._find(text, spans))

    def _find(self, text: str, spans: Sequence[Span]) -> Iterator[TermUse]:
        words = [Span(*match.span()) for match in _WORD.finditer(text)]
        end, next_span = 0, 0
        for number, (begin, _) in enumerate(words):
            while next_span < len(spans) and spans[next_span].end <= begin:
                next_span += 1
            limit = spans[next_span].begin if next_span < len(spans) else len(text)
            if end <= begin < limit:
                found = [_longest(root, text, words, number, limit) for root in self.roots]
                term = max(found, key=lambda one: len(one.source) if one else 0)
                if term is not None:
                    end = begin + len(term.source)
                    yield TermUse(term, Span(begin, end), is_honoured=False)


def _longest(root: _Node, text: str, words: Sequence[Span], number: int, limit: int) -> Term | None:
    """Return the longest term that begins with a word and ends before a limit."""
    node, term = root, None
    while number < len(words) and words[number].end <= limit:
        begin, end = words[number]
        following = node.following.get(text[begin:end])
        if following is None:
            break
        node, term, number = following, following.term or term, number + 1
    return term


def check_terms(terms: Sequence[Term]) -> None:
    """Raise InvalidInput for the terms of a request that are too long together, or if one has no source."""
    for index, term in enumerate(terms):
        if not term.source.strip():
            message = f"glossary.terms[{index}].source is {term.source!r}: a term is a word or a phrase"
            raise InvalidInput(message, field=f"glossary.terms[{index}].source")
        if len(term.source) > MAX_SOURCE_CHARACTERS:
            given = f"glossary.terms[{index}].source has {len(term.source)} characters"
            message = f"{given}, at most {MAX_SOURCE_CHARACTERS} are accepted: a term is a word or a phrase"
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
    copies = find_all([_wanted(use) for use in uses], target)
    present = Counter({text: len(spans) for text, spans in copies.items()})
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
