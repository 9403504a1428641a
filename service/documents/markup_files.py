"""Plain text, HTML and XML: pieces that the server takes as they are, cut where no sentence is.

Books (EPUB) are pages of HTML.  Of XML, Android's resources, Apple's plurals and XLIFF have rules of their own.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from html import unescape
from itertools import chain, pairwise
from typing import NamedTuple
from unicodedata import category

from service.documents.draft import (
    Answer,
    Draft,
    FileDraft,
    Lines,
    Passage,
    Slot,
    Unit,
    draft_of_passages,
    has_language,
)
from service.documents.inline import escaped
from service.documents.messages import Message, apple_escaped, draft_of_messages, unescaped
from service.documents.package import Package, Part, Said, draft_of_parts
from service.documents.paragraphs import PartReader, Vocabulary, names
from service.documents.xml import Element, attributes_at, prefix_at, read_tree, translated_elements
from service.records import TextFormat, WarningKind
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


def read_html(text: str, begin: int = 0, always: Sequence[Slot] = ()) -> Draft:
    """Return the draft of an HTML file, some blocks a unit; what is not to be translated is not cut.

    Args:
        begin: of what is read.
        always: what is written before it.
    """
    ends = [*(place for place in _block_ends(text) if place > begin), len(text)]
    cuts = [begin]
    for place, following in zip(ends, [*ends[1:], len(text)], strict=True):
        if place == len(text) or following - cuts[-1] > PIECE:
            cuts.append(place)
    return _draft(text, pairwise(cuts), TextFormat.HTML, always)


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


def _draft(text: str, places: Iterable[tuple[int, int]], text_format: TextFormat, always: Sequence[Slot] = ()) -> Draft:
    """Return the draft of a file with a unit at each of the places that has language."""
    lines = Lines(text)
    passages = [
        Passage((Unit(said, text_format, lines.number(begin)),), partial(_slots, begin, end))
        for begin, end in places
        if has_language(said := text[begin:end])
    ]
    return draft_of_passages(text, passages, always=always)


def _slots(begin: int, end: int, answers: Sequence[Answer]) -> tuple[Slot]:
    return (Slot(begin, end, answers[0].text),)


_HTML_ROOT = re.compile(r"<html\b[^<>]*+>")
_BOOK = Vocabulary(
    namespaces={
        "http://www.idpf.org/2007/opf": "opf",
        "http://purl.org/dc/elements/1.1/": "dc",
        "http://www.daisy.org/z3986/2005/ncx/": "ncx",
    },
    paragraphs=frozenset(),
    write=lambda _, text: (text,),
    plain=names(dc="title description subject language", ncx="text"),
    named={"opf:reference": ("title",)},
    languages={
        "dc:language": ("",),
        **dict.fromkeys(("opf:package", "ncx:ncx", "dc:title", "dc:description", "dc:subject"), ("lang",)),
    },
)


class _Page:
    """A page, as the readers of other parts are."""

    def __init__(self, text: str) -> None:
        self.text = text
        root = _HTML_ROOT.search(text)
        self._begin = root.end() if root else 0
        named = attributes_at(text, root.start(), root.end()) if root else {}
        self.languages = [
            Said("lang", one.value, one.begin, one.end, one.value)
            for name, one in named.items()
            if name in {"lang", "xml:lang"}
        ]

    def draft(self) -> Draft:
        return read_html(self.text, self._begin, always=[one.slot for one in self.languages])


def read_book(package: Package, target_language: str = "") -> FileDraft:
    """Return the draft of a book; raises ValueError."""
    if "META-INF/container.xml" not in package.entries:
        raise ValueError("the package is no EPUB: it has no part META-INF/container.xml")
    locked = package.read("META-INF/encryption.xml") if "META-INF/encryption.xml" in package.entries else b""
    if re.search(rb"URI\s*=\s*[\"'][^\"']*\.x?html?[\"']", locked):
        raise ValueError("the book is protected against copying (DRM): its pages cannot be read")
    pages = package.read_texts(lambda name: name.lower().endswith((".xhtml", ".html", ".htm")), document_type=None)
    others = package.read_texts(lambda name: name.lower().endswith((".opf", ".ncx")), document_type="empty")
    found: dict[str, Part] = {name: _Page(text) for name, text in pages.items()}
    found |= {name: PartReader(text, _BOOK).read() for name, text in others.items()}
    parts = {name: found[name] for name in package.entries if name in found}
    return draft_of_parts(package, parts, target_language)


_NO_TEXT = re.compile(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|&[^;\s]*;", re.DOTALL)


def read_xml(text: str) -> Draft:
    """Return the draft of an XML file: an element with text in it is a unit, with all elements inside as inline tags.

    Raises:
        ValueError: the file is no well-formed XML.
    """
    root = read_tree(text)
    if root.name == "resources":
        return _read_resources(text, root)
    places: list[tuple[int, int]] = []
    end = 0
    for element in translated_elements(root, text):
        if element.begin >= end and _has_text(element, text):  # directly inside
            places.append((element.content, element.content_end))
            end = element.end
    return _draft(text, places, TextFormat.XML)


def _has_text(element: Element, text: str) -> bool:
    inside = element.elements
    begins, ends = (
        [element.content, *(one.end for one in inside)],
        [*(one.begin for one in inside), element.content_end],
    )
    return any(has_language(_NO_TEXT.sub("", text[slice(*place)])) for place in zip(begins, ends, strict=True))


_CDATA = re.compile(r"(\s*<!\[CDATA\[)(.*)(\]\]>\s*)", re.DOTALL)
_TAG = re.compile(r"(<[^<>]*>)")
# Without quotes around all of a text, Android shows one space for many, and no quotes.
_SPACES, _QUOTE = re.compile(r"\s+"), re.compile(r'(?<!\\)"')
_KEPT = re.compile(r"<xliff:g(?=[\s>])")
_MARK = '  translate="no"'  # two spaces: it is known again, and taken out
_ARRAYS = frozenset({"string-array", "plurals"})


def _read_resources(text: str, root: Element) -> Draft:
    """Return the draft of Android's resources: strings, items of arrays and plurals, with their escapes."""
    messages: list[Message] = []
    for element in translated_elements(root, text):
        if element.name == "string":
            messages += _resource(text, element)
        elif element.name in _ARRAYS:
            messages += (found for item in element.elements if item.name == "item" for found in _resource(text, item))
    return draft_of_messages(text, messages)


def _resource(text: str, element: Element) -> Iterator[Message]:
    begin, end, text_format = element.content, element.content_end, TextFormat.XML
    if data := _CDATA.fullmatch(text[begin:end]):
        begin, end, text_format = begin + data.start(2), begin + data.end(2), TextFormat.HTML
    elif text[begin:end].lstrip()[:1] in ("@", "?"):  # which refer to other resources
        return
    said = text[begin:end].strip()
    begin = text.index(said, begin)
    end = begin + len(said)
    if is_quoted := len(said) > 1 and said[0] == said[-1] == '"' and said[-2] != "\\":
        begin, end, said = begin + 1, end - 1, said[1:-1]
    if has_language(_TAG.sub("", said)):
        parts = (
            part if part.startswith("<") else unescaped(part if is_quoted else _QUOTE.sub("", _SPACES.sub(" ", part)))
            for part in _TAG.split(said)
        )
        marked = _KEPT.sub(lambda match: match[0] + _MARK, "".join(parts))
        yield Message(begin, end, marked, _escaped_resource, text_format)


def _escaped_resource(text: str) -> str:
    parts = (
        part if part.startswith("<") else apple_escaped(part).replace("'", "\\'")
        for part in _TAG.split(text.replace(_MARK, ""))
    )
    return re.sub(r"\A([@?])", r"\\\1", "".join(parts))


_FORMS = frozenset({"zero", "one", "two", "few", "many", "other", "NSStringLocalizedFormatKey"})
_VARIABLE = re.compile(r"%(?:\d+\$)?#@\w+@")


def read_stringsdict(text: str) -> Draft:
    """Return the draft of Apple's .stringsdict, the forms of plurals and widths; raises ValueError."""
    messages: list[Message] = []
    for element in translated_elements(read_tree(text), text):
        for key, value in pairwise(element.elements):
            said = unescape(text[value.content : value.content_end])
            is_form = (key.name, value.name) == ("key", "string") and (key.text in _FORMS or key.text.isdigit())
            if is_form and has_language(_VARIABLE.sub("", said)):
                messages.append(Message(value.content, value.content_end, said, escaped))
    return draft_of_messages(text, sorted(messages))


_TO_DO = ("new", "needs-translation", "initial")  # states of targets that are written over
_UNTRANSLATED = frozenset({WarningKind.NOT_TRANSLATED, WarningKind.EMPTY, WarningKind.COPIED})


class _Pair(NamedTuple):
    """A source and the place of its target."""

    source: Element
    target: Element | None
    segment: Element | None  # in XLIFF 2, has the state


def read_xliff(text: str, target_language: str = "") -> Draft:
    """Return the draft of XLIFF 1.2 or 2: sources without a translation get a target, "translated" where it is one.

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
    passages: list[Passage] = []
    languages: list[Slot] = []
    for element in translated_elements(root, text):
        if element.name == holder and (pair := _pair(element, text)):
            source = pair.source
            unit = Unit(text[source.content : source.content_end], TextFormat.XLIFF, lines.number(source.begin))
            passages.append(Passage((unit,), partial(_target_slots, text, pair), is_beside=True))
        elif element.name == file and target_language and not _attribute(text, element, attribute):
            languages.append(_with_attribute(text, element, attribute, target_language))
    return draft_of_passages(text, passages, also=languages)


def _pair(holder: Element, text: str) -> _Pair | None:
    """Return the source and the target of a unit, None where there is nothing to do."""
    named = {child.name: child for child in holder.elements}
    source, target = named.get("seg-source", named.get("source")), named.get("target")
    if source is None or _attribute(text, holder, "approved") == "yes":
        return None
    if not has_language(_TAG.sub("", text[source.content : source.content_end])):
        return None
    segment = holder if holder.name == "segment" else None
    state = _attribute(text, segment or target or holder, "state")
    is_empty = target is None or not text[target.content : target.content_end].strip()
    is_to_do = is_empty or state in _TO_DO
    return _Pair(source, target, segment) if is_to_do else None


def _target_slots(text: str, pair: _Pair, answers: Sequence[Answer]) -> Iterator[Slot]:
    """Yield what is written of a pair: its target and, in XLIFF 2, the state of the segment."""
    ((translation, result),) = answers
    is_translated = _UNTRANSLATED.isdisjoint(warning.kind for warning in result.warnings)
    source, target, segment = pair
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
