"""Well-formed XML with the places of its tags and its text, and names that do not depend on prefixes.

As a stream, for files of many megabytes, of which nothing is kept but what a reader keeps; and as a tree of elements.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import unescape
from typing import Literal, NamedTuple, TypeAlias
from xml.parsers import expat

MAX_DEPTH = 256  # of elements in each other
MAX_NODES = 200_000  # in a paragraph
_PIECE = 256 << 10  # bytes that expat takes at a time: it lets no other thread run meanwhile

# The text is known to be well-formed (`require_well_formed`), so that few rules tell its tokens apart.
_TOKEN = re.compile(
    r"""<(?P<end>/)?+ (?P<name>[^\s/<>!?]++) (?: [^<>"'/]++ | "[^"]*+" | '[^']*+' | /(?!>) )*+ (?P<empty>/)?+>
    | <!--.*?--> | <\?.*?\?> | <!\[CDATA\[(?P<cdata>.*?)\]\]>
    | <!DOCTYPE[^\[>]*+\[.*?\]\s*> | <![^>]*+> | (?P<text>[^<]++)""",
    re.VERBOSE | re.DOTALL,
)
_PREFIX = re.compile(r"<(?P<prefix>[^\s/<>:]++:)?+")
_ATTRIBUTE = re.compile(r"""\s(?P<name>[^\s"'<>/=]++)\s*+=\s*+(?:"(?P<value>[^"]*+)"|'(?P<other>[^']*+)')""")


DocumentType: TypeAlias = Literal["none", "empty", "any"]  # accepted: none, one without declarations of its own, any


def require_well_formed(text: str, name: str = "the file", *, document_type: DocumentType) -> None:
    """Raise ValueError if a text is no well-formed XML, or has a document type, whose entities can be bombs.

    Args:
        name: what messages call it.
        document_type: which are accepted.
    """
    parser = expat.ParserCreate("UTF-8")

    def refuse_type(_: str, __: str | None, ___: str | None, has_subset: int) -> None:
        if has_subset or document_type == "none":
            raise ValueError(f"{name} has a document type (DTD), which can hide a bomb: none is accepted")

    if document_type == "any":
        parser.DefaultHandler = lambda _: None  # so that entities of the file's own are not expanded
    else:
        parser.StartDoctypeDeclHandler = refuse_type
    content = text.encode()
    try:
        for begin in range(0, len(content), _PIECE):
            parser.Parse(content[begin : begin + _PIECE])
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise ValueError(f"{name} is no well-formed XML: {error}") from None


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


def pieces(text: str, namespaces: Mapping[str, str] | None) -> Iterator[Piece]:
    """Yield tags and text in their order.

    Args:
        namespaces: the prefix to call each by; None: names have none.

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
        if namespaces is not None and not match["end"] and "xmlns" in match[0]:
            for name, attribute in attributes_at(text, match.start(), match.end()).items():
                if name.startswith("xmlns"):
                    prefixes[name[len("xmlns:") :]] = namespaces.get(attribute.value, "?")
            names.clear()
        called = names.get(written)
        if called is None:
            prefix, _, local = written.rpartition(":")
            called = names[written] = f"{prefixes.get(prefix, '?')}:{local}" if namespaces is not None else local
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


def prefix_at(text: str, begin: int) -> str:
    """Return the prefix of the tag there as it is written, with its colon; empty: it has none."""
    match = _PREFIX.match(text, begin)
    return (match["prefix"] or "") if match else ""


@dataclass(slots=True, eq=False)
class Element:
    """An element with all that is in it; places are code points of the text."""

    name: str
    begin: int
    content: int  # where its content begins; that of an empty tag begins and ends behind the tag
    content_end: int
    end: int
    children: list["Element | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it."""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    @property
    def elements(self) -> list["Element"]:
        """The elements directly in it."""
        return [child for child in self.children if isinstance(child, Element)]


def element_of(tag: Tag, rest: Iterator[Piece], max_nodes: int = MAX_NODES) -> Element:
    """Return the element that begins with this tag, and take what is in it from the rest; raises ValueError."""
    root = Element(tag.name, tag.begin, tag.end, tag.end, tag.end)
    around = [] if tag.is_end else [root]
    num_nodes = 0
    while around:
        piece = next(rest)
        num_nodes += 1
        if num_nodes > max_nodes:
            raise ValueError(f"a paragraph has more than {max_nodes:,} elements and texts in it")
        parent = around[-1]
        if isinstance(piece, str):
            parent.children.append(piece)
        elif piece.is_start:
            child = Element(piece.name, piece.begin, piece.end, piece.end, piece.end)
            parent.children.append(child)
            if not piece.is_end:
                around.append(child)
        else:
            parent.content_end, parent.end = piece.begin, piece.end
            around.pop()
    return root


def read_tree(text: str) -> Element:
    """Return the outermost element of a file of text, whose elements have names without prefixes; raises ValueError."""
    require_well_formed(text, document_type="any")
    rest = pieces(text, None)
    first = next(piece for piece in rest if not isinstance(piece, str))
    return element_of(first, rest, max_nodes=len(text))


def translated_elements(element: Element, text: str) -> Iterator[Element]:
    """Yield an element and those in it, in their order, without those that are said to stay, and what is in them."""
    if "translat" in text[element.begin : element.content]:
        said = {name: one.value for name, one in attributes_at(text, element.begin, element.content).items()}
        if "no" in (said.get("translate"), said.get("its:translate")) or said.get("translatable") == "false":
            return
    yield element
    for child in element.elements:
        yield from translated_elements(child, text)
