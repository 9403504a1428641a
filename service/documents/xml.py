"""Well-formed XML with the places of its tags and its text, and names that do not depend on prefixes.

As a stream, for files of many megabytes, of which nothing is kept but what a reader keeps; and as a tree of elements.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import unescape
from typing import NamedTuple, Self, TypeAlias
from xml.parsers import expat

from service.documents.draft import has_language
from service.text.lexer import XML, TokenKind, attributes, lex

MAX_DEPTH = 256  # of elements in each other
MAX_NODES = 200_000  # in a paragraph

# The text is known to be well-formed (`package.require_plain_xml`), so that few rules tell its tokens apart.
_TOKEN = re.compile(
    r"""<(?P<end>/)?+ (?P<name>[^\s/<>!?]++) (?: [^<>"'/]++ | "[^"]*+" | '[^']*+' | /(?!>) )*+ (?P<empty>/)?+>
    | <!--.*?--> | <\?.*?\?> | <!\[CDATA\[(?P<cdata>.*?)\]\]> | <![^>]*+> | (?P<text>[^<]++)""",
    re.VERBOSE | re.DOTALL,
)
_ATTRIBUTE = re.compile(r"""\s(?P<name>[^\s"'<>/=]++)\s*+=\s*+(?:"(?P<value>[^"]*+)"|'(?P<other>[^']*+)')""")


class Attribute(NamedTuple):
    """An attribute of a tag; places are those of its value."""

    begin: int
    end: int
    value: str  # without references


class Tag(NamedTuple):
    """A start tag, an end tag, or both in one."""

    name: str  # with the prefix that NAMESPACES gives; an unknown namespace leaves it as it is, with a "?" before it
    begin: int
    end: int
    is_start: bool
    is_end: bool


Piece: TypeAlias = Tag | str  # a tag, or text without references


def pieces(text: str, namespaces: Mapping[str, str]) -> Iterator[Piece]:
    """Yield tags and text in their order.

    Args:
        namespaces: the prefix to call each by.

    Raises:
        ValueError: elements are nested too deeply.
    """
    prefixes: dict[str, str] = {}
    names: dict[str, str] = {}  # as they are written -> as they are called
    depth = 0
    for match in _TOKEN.finditer(text):
        written = match["name"]
        if written is None:
            if match["text"] is not None:
                yield unescape(match["text"]) if "&" in match["text"] else match["text"]
            elif match["cdata"] is not None:
                yield match["cdata"]
            continue
        if not match["end"] and "xmlns" in match[0]:
            for name, attribute in attributes_at(text, match.start(), match.end()).items():
                if name.startswith("xmlns"):
                    prefixes[name[len("xmlns:") :]] = namespaces.get(attribute.value, "?")
            names.clear()
        called = names.get(written)
        if called is None:
            prefix, _, local = written.rpartition(":")
            called = names[written] = f"{prefixes.get(prefix, '?')}:{local}"
        depth += 1 if not match["end"] else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"elements are nested more than {MAX_DEPTH} deep")
        yield Tag(called, *match.span(), not match["end"], bool(match["end"] or match["empty"]))
        depth -= bool(match["empty"])


def attributes_at(text: str, begin: int, end: int) -> dict[str, Attribute]:
    """Return the attributes of the start tag there, by their names as they are written."""
    found: dict[str, Attribute] = {}
    for match in _ATTRIBUTE.finditer(text, begin, end):
        group = "value" if match["value"] is not None else "other"
        found[match["name"]] = Attribute(match.start(group), match.end(group), unescape(match[group]))
    return found


@dataclass(slots=True, eq=False)
class Node:
    """An element with all that is in it; places are code points of the text."""

    name: str
    begin: int
    content: int
    content_end: int
    end: int
    children: list["Node | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it."""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)


def node_of(tag: Tag, rest: Iterator[Piece]) -> Node:
    """Return the element that begins with this tag, and take what is in it from the rest; raises ValueError."""
    root = Node(tag.name, tag.begin, tag.end, tag.end, tag.end)
    around = [] if tag.is_end else [root]
    num_nodes = 0
    while around:
        piece = next(rest)
        num_nodes += 1
        if num_nodes > MAX_NODES:
            raise ValueError(f"a paragraph has more than {MAX_NODES:,} elements and texts in it")
        parent = around[-1]
        if isinstance(piece, str):
            parent.children.append(piece)
        elif piece.is_start:
            child = Node(piece.name, piece.begin, piece.end, piece.end, piece.end)
            parent.children.append(child)
            if not piece.is_end:
                around.append(child)
        else:
            parent.content_end, parent.end = piece.begin, piece.end
            around.pop()
    return root


_REFERENCE = re.compile(r"&[^;\s]*;")


@dataclass(slots=True, eq=False)
class Element:
    """An element; places are code points of the file."""

    name: str  # without its prefix
    prefix: str  # with its colon; empty: none
    attributes: dict[str, str]  # as they are written
    begin: int
    content: int  # where its content begins; that of an empty tag begins and ends behind the tag
    content_end: int = 0
    end: int = 0
    parent: Self | None = None
    children: list[Self] = field(default_factory=list)
    has_text: bool = False  # a letter directly inside

    @property
    def is_translated(self) -> bool:
        """Whether neither the element nor one around it says that it stays as it is."""
        element: Element | None = self
        while element is not None:
            if "no" in (element.attributes.get("translate"), element.attributes.get("its:translate")):
                return False
            element = element.parent
        return self.attributes.get("translatable") != "false"  # Android's resources


def read_elements(text: str) -> list[Element]:
    """Return all elements in the order of their beginnings.

    Raises:
        ValueError: the text is no well-formed XML.
    """
    _require_well_formed(text)
    found: list[Element] = []
    current: Element | None = None
    for token in lex(text, XML):
        if token.kind in (TokenKind.OPEN, TokenKind.EMPTY):
            prefix, colon, name = token.name.rpartition(":")
            values = {attribute.name: attribute.value for attribute in attributes(text[token.begin : token.end])}
            element = Element(name, prefix + colon, values, token.begin, token.end, token.end, token.end, current)
            found.append(element)
            if current is not None:
                current.children.append(element)
            if token.kind is TokenKind.OPEN:
                current = element
        elif token.kind is TokenKind.CLOSE and current is not None:
            current.content_end, current.end = token.begin, token.end
            current = current.parent
        elif token.kind is TokenKind.TEXT and current is not None:
            current.has_text |= has_language(_REFERENCE.sub("", text[token.begin : token.end]))
    return found


def _require_well_formed(text: str) -> None:
    parser = expat.ParserCreate("UTF-8")
    parser.DefaultHandler = lambda _: None  # so that entities of the file's own are not expanded
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        raise ValueError(f"the file is no well-formed XML: {error}") from error
