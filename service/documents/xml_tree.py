"""The elements of a well-formed XML file and their places in it."""

import re
from dataclasses import dataclass, field
from typing import Self
from xml.parsers import expat

from service.documents.draft import has_language
from service.text.lexer import XML, TokenKind, attributes, lex

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
