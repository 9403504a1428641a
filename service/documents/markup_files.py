"""Plain text, HTML and XML: pieces that the server takes as they are, cut where no sentence is.

Books (EPUB) are pages of HTML.  Of XML, XLIFF has rules of its own, and Android's resources are in `app_strings.py`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import ClassVar
from unicodedata import category

from service.documents.app_strings import read_resources
from service.documents.draft import (
    Answer,
    Draft,
    LanguageMark,
    Lines,
    Part,
    Passage,
    Slot,
    Unit,
    has_language,
    passage_at,
)
from service.documents.package import Package, draft_of_parts
from service.documents.paragraphs import PartReader, names
from service.documents.xml import Element, attributes_at, prefix_at, read_tree, translated_elements
from service.records import TextFormat, WarningKind
from service.text.markup_lexer import HTML, Elements, TokenKind, lex

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


def read_plain(text: str, _: str = "") -> Part:
    """Return a file of plain text, a paragraph a unit: blank lines stand between them.

    A long paragraph, such as a file with a sentence a line and no blank line, is cut where a line ends, and a long line
    where a sentence does.
    """
    paragraphs = (match.span() for match in _PARAGRAPH.finditer(text))
    return _part(text, chain.from_iterable(_pieces(text, *place) for place in paragraphs), TextFormat.PLAIN)


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


def read_html(text: str, _: str = "", *, begin: int = 0) -> Part:
    """Return an HTML file, some blocks a unit; what is not to be translated is not cut.

    Args:
        begin: of what is read.
    """
    ends = [*(place for place in _block_ends(text) if place > begin), len(text)]
    cuts = [begin]
    for place, following in zip(ends, [*ends[1:], len(text)], strict=True):
        if place == len(text) or following - cuts[-1] > PIECE:
            cuts.append(place)
    return _part(text, pairwise(cuts), TextFormat.HTML)


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


def _part(text: str, places: Iterable[tuple[int, int]], text_format: TextFormat) -> Part:
    """Return a file with a unit at each of the places that has language."""
    lines = Lines(text)
    passages = [
        passage_at(begin, end, Unit(said, text_format, lines.number(begin)))
        for begin, end in places
        if has_language(said := text[begin:end])
    ]
    return Part(text, passages)


_HTML_ROOT = re.compile(r"<html\b[^<>]*+>")


class _BookReader(PartReader):
    """Reads what a book says of itself."""

    namespaces: ClassVar = {
        "http://www.idpf.org/2007/opf": "opf",
        "http://purl.org/dc/elements/1.1/": "dc",
        "http://www.daisy.org/z3986/2005/ncx/": "ncx",
    }
    text_attributes: ClassVar = {
        **dict.fromkeys(names(dc="title description subject", ncx="text"), ("",)),
        "opf:reference": ("title",),
    }
    language_attributes: ClassVar = {
        "dc:language": ("",),
        **dict.fromkeys(names(opf="package", ncx="ncx", dc="title description subject"), ("lang",)),
    }


def read_book(package: Package, target_language: str = "") -> Draft:
    """Return the draft of a book; raises ValueError."""
    if "META-INF/container.xml" not in package.entries:
        raise ValueError("the package is no EPUB: it has no part META-INF/container.xml")
    locked = package.read("META-INF/encryption.xml") if "META-INF/encryption.xml" in package.entries else b""
    if re.search(rb"URI\s*=\s*[\"'][^\"']*\.x?html?[\"']", locked):
        raise ValueError("the book is protected against copying (DRM): its pages cannot be read")
    pages = package.read_texts(lambda name: name.lower().endswith((".xhtml", ".html", ".htm")), document_type=None)
    others = package.read_texts(lambda name: name.lower().endswith((".opf", ".ncx")), document_type="empty")
    found: dict[str, Part] = {name: _read_page(text) for name, text in pages.items()}
    found |= {name: _BookReader(text).read() for name, text in others.items()}
    return draft_of_parts(package, {name: found[name] for name in package.entries if name in found}, target_language)


def _read_page(text: str) -> Part:
    root = _HTML_ROOT.search(text)
    if root is None:
        return read_html(text)
    page = read_html(text, begin=root.end())
    page.languages = [
        LanguageMark("lang", one.value, one.begin, one.end, one.value)
        for name, one in attributes_at(text, *root.span()).items()
        if name in {"lang", "xml:lang"}
    ]
    return page


_NO_TEXT = re.compile(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|&[^;\s]*;", re.DOTALL)


def read_xml(text: str, _: str = "") -> Part:
    """Return an XML file: an element with text in it is a unit, with all elements inside as inline tags.

    Raises:
        ValueError: the file is no well-formed XML.
    """
    root = read_tree(text)
    if root.name == "resources":
        return read_resources(text, root)
    places: list[tuple[int, int]] = []
    end = 0
    for element in translated_elements(root, text):
        if element.begin >= end and _has_text(element, text):  # directly inside
            places.append((element.content, element.content_end))
            end = element.end
    return _part(text, places, TextFormat.XML)


def _has_text(element: Element, text: str) -> bool:
    inside = element.elements
    begins, ends = (
        [element.content, *(one.end for one in inside)],
        [*(one.begin for one in inside), element.content_end],
    )
    return any(has_language(_NO_TEXT.sub("", text[slice(*place)])) for place in zip(begins, ends, strict=True))


_TAG = re.compile(r"<[^<>]*>")
_TO_DO = ("new", "needs-translation", "initial")  # states of targets that are written over
_UNTRANSLATED = frozenset({WarningKind.NOT_TRANSLATED, WarningKind.EMPTY, WarningKind.COPIED})


def read_xliff(text: str, target_language: str = "") -> Part:
    """Return a file of XLIFF 1.2 or 2: sources without a translation get a target, "translated" where it is one.

    Raises:
        ValueError: it is neither.
    """
    root = read_tree(text)
    version = _attribute(text, root, "version")
    if root.name != "xliff" or version.split(".")[0] not in {"1", "2"}:
        raise ValueError(f"the file is no XLIFF 1.2 or 2: it begins with {root.name} of version {version or 'none'}")
    holder = "segment" if version[0] == "2" else "trans-unit"
    file, attribute = ("file", "target-language") if holder == "trans-unit" else ("xliff", "trgLang")
    lines = Lines(text)
    part = Part(text)
    for element in translated_elements(root, text):
        if element.name == holder and (pair := _pair(element, text)):
            source = pair[0]
            unit = Unit(text[source.content : source.content_end], TextFormat.XLIFF, lines.number(source.begin))
            part.passages.append(Passage((unit,), partial(_target_slots, text, *pair), is_beside=True))
        elif element.name == file and target_language and not _attribute(text, element, attribute):
            part.also.append(_with_attribute(text, element, attribute, target_language))
    return part


def _pair(holder: Element, text: str) -> tuple[Element, Element | None, Element | None] | None:
    """Return source, target and, in XLIFF 2, the segment of a unit; None where there is nothing to do."""
    named = {child.name: child for child in holder.elements}
    source, target = named.get("seg-source", named.get("source")), named.get("target")
    if source is None or _attribute(text, holder, "approved") == "yes":
        return None
    if not has_language(_TAG.sub("", text[source.content : source.content_end])):
        return None
    segment = holder if holder.name == "segment" else None
    state = _attribute(text, segment or target or holder, "state")
    is_empty = target is None or not text[target.content : target.content_end].strip()
    return (source, target, segment) if is_empty or state in _TO_DO else None


def _target_slots(
    text: str, source: Element, target: Element | None, segment: Element | None, answers: Sequence[Answer]
) -> Iterator[Slot]:
    """Yield what is written of a source: its target and, in XLIFF 2, the state of the segment."""
    ((translation, result),) = answers
    is_translated = _UNTRANSLATED.isdisjoint(warning.kind for warning in result.warnings)
    prefix = prefix_at(text, source.begin)
    tag = f"<{prefix}target>"
    if target is not None:
        tag = text[target.begin : target.content].replace("/>", ">")
    if segment is None:
        tag = _tag_with(tag, "state", "translated" if is_translated else "needs-translation")
    else:
        yield _with_attribute(text, segment, "state", "translated" if is_translated else "initial")
    written = f"{tag}{translation}</{prefix}target>"
    if target is not None:
        yield Slot(target.begin, target.end, written)
    else:
        begin = source.begin
        while text[begin - 1].isspace():
            begin -= 1
        yield Slot(source.end, source.end, text[begin : source.begin] + written)


def _attribute(text: str, element: Element, name: str) -> str:
    """Return the value of an attribute; empty: it is not there."""
    found = attributes_at(text, element.begin, element.content).get(name)
    return found.value if found else ""


def _with_attribute(text: str, element: Element, name: str, value: str) -> Slot:
    return Slot(element.begin, element.content, _tag_with(text[element.begin : element.content], name, value))


def _tag_with(tag: str, name: str, value: str) -> str:
    """Return a start tag with this value of the attribute."""
    known = re.compile(rf"""(\s{name}\s*=\s*)(?:"[^"]*"|'[^']*')""")
    if known.search(tag):
        return known.sub(rf'\g<1>"{value}"', tag)
    end = "/>" if tag.endswith("/>") else ">"
    return f'{tag.removesuffix(end).rstrip()} {name}="{value}"{end}'
