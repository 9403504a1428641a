"""Plain text, HTML and XML: pieces that the server takes as they are, cut where no sentence is."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from unicodedata import category

from service.documents import android
from service.documents.draft import Draft, Lines, Slot, Unit, Written, filled, has_language, text_of
from service.documents.xml import Element, read_elements
from service.records import TextFormat, Translation
from service.text.lexer import HTML, Elements, TokenKind, lex

# Characters of a piece, far below any limit of a server; one of HTML ends with the next block, one of text before that.
PIECE = 2_000

_PARAGRAPH = re.compile(r"(?:[^\r\n]*\S[^\r\n]*(?:\r\n|\n|\r|\Z))+")
_JOINER = "\u200d"
_LINE_END = r"(?:\r\n|\r|\n)"
_CLOSING = "[\"'»«”“’)\\]]{0,3}"
_LOWER = "a-zß-öø-ÿά-ώа-џ"
# Where a long paragraph of plain text is cut, the best kind of place first.  What matches is a few characters long, so
# that the search takes time in proportion to the piece.
_CUTS = tuple(
    map(
        re.compile,
        (
            rf"[.!?…:;。！？।؟]{_CLOSING}[ \t]{{0,8}}{_LINE_END}",  # the end of a line and of a sentence
            rf"{_LINE_END}(?![{_LOWER}])",  # of a line, where no wrapped sentence goes on
            rf"[.!?…]{_CLOSING}\s{{1,8}}|[。！？।؟]{_CLOSING}",  # of a sentence
            _LINE_END,
            r"\s",
        ),
    )
)


def read_plain(text: str) -> Draft:
    """Return the draft of a file of plain text, a paragraph a unit: blank lines stand between them.

    A long paragraph, such as a file with a sentence a line and no blank line, is cut where a line ends, and a long line
    where a sentence does.
    """
    paragraphs = (match.span() for match in _PARAGRAPH.finditer(text))
    return _draft(text, chain.from_iterable(_pieces(text, *place) for place in paragraphs), TextFormat.PLAIN)


def _pieces(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the pieces of a paragraph, each as long as the best kind of place to cut it allows."""
    while end - begin > PIECE:
        cut = _cut(text, begin + PIECE // 2, begin + PIECE)
        yield begin, cut
        begin = cut
    yield begin, end


def _cut(text: str, least: int, most: int) -> int:
    for cuts in _CUTS:
        if found := [match.end() for match in cuts.finditer(text, least, most)]:
            return found[-1] + (text[found[-1] - 1 : found[-1] + 1] == "\r\n")
    cut = most
    while cut > least and (category(text[cut]).startswith("M") or _JOINER in text[cut - 1 : cut + 1]):
        cut -= 1  # a character goes with its accents, an emoji with what it is joined to
    return cut if cut > least else most


def read_html(text: str) -> Draft:
    """Return the draft of an HTML file, some blocks a unit; what is not to be translated is not cut."""
    ends = [*_block_ends(text), len(text)]
    cuts = [0]
    for place, following in zip(ends, [*ends[1:], len(text)], strict=True):
        if place == len(text) or following - cuts[-1] > PIECE:
            cuts.append(place)
    return _draft(text, pairwise(cuts), TextFormat.HTML)


def read_xml(text: str) -> Draft:
    """Return the draft of an XML file: an element with text in it is a unit, with all elements inside as inline tags.

    Android's resources have rules of their own.

    Raises:
        ValueError: the file is no well-formed XML.
    """
    every = read_elements(text)
    if every[0].name == "resources":
        return android.read(text, every)
    elements = [one for one in every if one.has_text and one.is_translated]
    return _draft(text, _outermost(elements), TextFormat.XML)


def _outermost(elements: Iterable[Element]) -> Iterator[tuple[int, int]]:
    """Yield where the contents of the elements are that are in no other of them."""
    end = 0
    for element in elements:
        if element.begin >= end:
            yield element.content, element.content_end
            end = element.end


def _block_ends(text: str) -> Iterator[int]:
    """Yield the places between the blocks of an HTML text."""
    tokens = list(lex(text, HTML))
    elements = Elements(text, tokens, HTML)
    untouched_to = 0  # number of a token
    for number, token in enumerate(tokens):
        if elements.order_of(number) is False:
            untouched_to = max(untouched_to, elements.end_of(number))
        if number >= untouched_to and token.name in HTML.blocks:
            yield token.end if token.kind is TokenKind.CLOSE else token.begin


def _draft(text: str, places: Iterable[tuple[int, int]], text_format: TextFormat) -> Draft:
    """Return the draft of a file with a unit at each of the places that has language."""
    kept = [place for place in places if has_language(text[slice(*place)])]
    lines = Lines(text)
    units = tuple(Unit(text[slice(*place)], text_format, lines.number(place[0])) for place in kept)
    return Draft(units, partial(_write, text, kept, units))


def _write(
    text: str, places: Sequence[tuple[int, int]], units: Sequence[Unit], translations: Sequence[Translation]
) -> Written:
    texts = map(text_of, units, translations)
    return Written(filled(text, (Slot(*place, new) for place, new in zip(places, texts, strict=True))))
