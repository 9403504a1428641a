"""OpenDocument (odt, odp, ods): which parts and elements are language, and how their text is written."""

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from service.documents.draft import Draft, Source
from service.documents.inline import Atom, Format, Text, escaped
from service.documents.package import Package, draft_of_parts
from service.documents.paragraphs import PartReader, labels_in, names
from service.documents.xml import Element, Tag, attributes_at

_OASIS = "urn:oasis:names:tc:opendocument:xmlns:"
_NAMESPACES = {
    **{
        f"{_OASIS}{name}:1.0": name
        for name in ("text", "table", "office", "style", "draw", "presentation", "meta", "form")
    },
    f"{_OASIS}xsl-fo-compatible:1.0": "fo",
    f"{_OASIS}svg-compatible:1.0": "svg",
    "http://purl.org/dc/elements/1.1/": "dc",
}
_PIECES = re.compile(r"(\t|\n|  +)")
_RULE = re.compile(r"""\s(?:table|style):(?:formula|condition)\s*=\s*"([^"]*)\"""")
_PARTS = re.compile(r"(?:.*/)?(?:content|styles|meta)\.xml\Z")
_NO_LOOK = re.compile(r"rsid\Z|\Alanguage|\Acountry|\Arfc-language-tag|\Aletter-(?:spacing|kerning)\Z|\Atext-scale\Z")


_FIELDS = """
    page-number page-count date time author-name author-initials chapter sequence sequence-ref bookmark-ref
    reference-ref note-ref variable-get variable-set user-field-get user-defined expression file-name title subject
    description creation-date modification-date sender-firstname sender-lastname sheet-name placeholder
    database-display conditional-text text-input drop-down
"""


class OpenDocumentReader(PartReader):
    """Reads a part of an OpenDocument file."""

    namespaces = _NAMESPACES
    paragraphs = frozenset({"text:p", "text:h"})
    groups = frozenset({"office:annotation"})
    skipped = names(text="tracked-changes sequence-decls variable-decls soft-page-break", office="scripts")
    text_attributes: ClassVar = {
        **dict.fromkeys(
            names(
                dc="title subject description",
                meta="keyword",
                svg="title desc",
                table="title desc",
                text="index-title-template",
            ),
            ("",),
        ),
        "text:a": ("title",),
        **dict.fromkeys(
            names(text="toc-mark alphabetical-index-mark user-index-mark"), ("string-value", "key1", "key2")
        ),
        "text:hidden-text": ("string-value",),
        **dict.fromkeys(names(text="list-level-style-number outline-level-style"), ("num-prefix", "num-suffix")),
        **dict.fromkeys(names(form="button checkbox radio fixed-text frame"), ("label", "title")),
    }
    language_attributes: ClassVar = {
        "style:text-properties": tuple(
            name + script for script in ("", "-asian", "-complex") for name in ("language", "country")
        ),
        "dc:language": ("",),
    }
    containers: ClassVar = {"text:a": "", "text:meta": ""}
    characters: ClassVar = {"text:tab": "\t", "text:line-break": "\n"}
    ruby: ClassVar = {"text:ruby": "text:ruby-base"}
    shown = names(text=_FIELDS)
    space = re.compile(r"[ \t\r\n]+")

    def __init__(self, text: str, styles: "dict[str, tuple[str, bool]]") -> None:
        """Read nothing yet.

        Args:
            styles: of the parts before; what this one adds is added.  By name: what it looks like, whether it is code.
        """
        super().__init__(text)
        self._labels = labels_in(_RULE.findall(text))
        self._is_chart = "<office:chart" in text
        self._styles = styles
        self._style = ""  # that is being read
        self._is_value = False  # whether the cell that is being read holds no text

    def start(self, tag: Tag) -> None:
        """Take in styles and cells, too."""
        super().start(tag)
        if tag.name == "style:style":
            named = self._attributes(tag.begin, tag.end)
            self._style = named.get("name", "")
            parent = named.get("parent-style-name", "")
            look, is_code = self._styles.get(parent, (parent, self.is_code(parent)))
            self._styles[self._style] = look, is_code or self.is_code(self._style)
        elif tag.name == "style:text-properties" and self._style:
            named = self._attributes(tag.begin, tag.end)
            look, is_code = self._styles[self._style]
            own = "".join(f" {name}={value}" for name, value in sorted(named.items()) if not _NO_LOOK.search(name))
            is_mono = any(self.is_code(value) for name, value in named.items() if name == "font-name")
            self._styles[self._style] = look + own, is_code or is_mono
        elif tag.name == "table:table-cell":
            named = self._attributes(tag.begin, tag.end)
            self._is_value = named.get("value-type", "string") != "string" or bool(
                {"formula", "string-value"} & named.keys()
            )

    def take(self, node: Element) -> None:
        """Take in an element; the note of a cell is text, whatever the cell is."""
        is_value = self._is_value
        self._is_value = is_value and node.name != "office:annotation"
        if not (self._is_chart and node.name == "svg:desc"):  # which cells a chart shows
            super().take(node)
        self._is_value = is_value

    def _attributes(self, begin: int, end: int) -> Mapping[str, str]:
        return {name.rpartition(":")[2]: one.value for name, one in attributes_at(self.text, begin, end).items()}

    def is_translated(self, paragraph: Element) -> bool:
        """Whether a paragraph is neither the value of a cell, nor known by what it says, nor code."""
        if paragraph.text in self._labels:
            return False
        name = self._attributes(paragraph.begin, paragraph.content).get("style-name", "")
        is_code = self._knows_code and self._styles.get(name, ("", self.is_code(name)))[1]
        return not (self._is_value or is_code)

    def atoms_of(self, node: Element, around: Format) -> Iterator[Atom]:
        """Yield what an element in a paragraph is: of a span, what is in it."""
        if node.name == "text:span":
            yield from self._atoms(node.children, self._span_format(node, around))
        elif node.name == "text:s":
            count = self._attributes(node.begin, node.content).get("c", "1")
            yield Text(around, " " * (min(int(count), 1_000) if count.isascii() and count.isdigit() else 1))
        else:
            yield from super().atoms_of(node, around)

    def _span_format(self, span: Element, around: Format) -> Format:
        style = self._attributes(span.begin, span.content).get("style-name", "")
        look, is_code = self._styles.get(style, (style, self.is_code(style)))
        if not look:
            return around
        name = self.text[span.begin + 1 : span.content].split()[0].rstrip(">")
        source, ends = (*around.source, (span.begin, span.content)), f"</{name}>{around.ends}"
        is_code = around.is_code or (is_code and self._knows_code)
        return Format(around.key + look, source, around.family, around.prefix, ends, is_code)

    def written(self, form: Format, text: str) -> Source:
        """Return text in its spans."""
        prefix = form.prefix

        def element(piece: str) -> str:
            if piece == "\t":
                return f"<{prefix}tab/>"
            if piece == "\n":
                return f"<{prefix}line-break/>"
            return f'<{prefix}s {prefix}c="{len(piece)}"/>' if piece.startswith("  ") else escaped(piece)

        return *form.source, "".join(map(element, _PIECES.split(text))) + form.ends


def read(package: Package, target_language: str = "") -> Draft:
    """Return the draft of an OpenDocument file; raises ValueError."""
    if "content.xml" not in package.entries:
        raise ValueError("the package is no OpenDocument file: it has no part content.xml")
    if "META-INF/manifest.xml" in package.entries and b"encryption-data" in package.read("META-INF/manifest.xml"):
        raise ValueError("the file is encrypted: save it without a password")
    texts = package.read_texts(lambda name: bool(_PARTS.match(name)))
    styles: dict[str, tuple[str, bool]] = {}
    order = sorted(texts, key=lambda name: not name.endswith("styles.xml"))  # the styles first
    parts = {name: OpenDocumentReader(texts[name], styles).read(is_main=name == "content.xml") for name in order}
    return draft_of_parts(package, parts, target_language)
