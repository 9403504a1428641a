"""EPUB: the pages as HTML, the table of contents, and what the package says of the book."""

import re
from collections.abc import Sequence

from service.documents.draft import Draft, FileDraft, Slot, Written, filled
from service.documents.markup_files import read_html
from service.documents.package import Package, Part, Said, draft_of_parts
from service.documents.paragraphs import PartReader, Vocabulary, names
from service.documents.xml import attributes_at
from service.records import Translation

_ROOT = re.compile(r"<html\b[^<>]*+>")
_WORDS = Vocabulary(
    namespaces={
        "http://www.idpf.org/2007/opf": "opf",
        "http://purl.org/dc/elements/1.1/": "dc",
        "http://www.daisy.org/z3986/2005/ncx/": "ncx",
    },
    paragraphs=frozenset(),
    write=lambda _, __, text: text,
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
        root = _ROOT.search(text)
        self._end = root.end() if root else 0
        named = attributes_at(text, root.start(), root.end()) if root else {}
        self.languages = [
            Said("lang", one.value, one.begin, one.end, one.value)
            for name, one in named.items()
            if name in {"lang", "xml:lang"}
        ]

    def draft(self) -> Draft:
        draft = read_html(self.text[self._end :])

        def write(translations: Sequence[Translation]) -> Written:
            head = filled(self.text[: self._end], (Slot(one.begin, one.end, one.written) for one in self.languages))
            return Written(head + draft.write(translations).text)

        return Draft(draft.units, write)


def read(package: Package, target_language: str = "") -> FileDraft:
    """Return the draft of a book; raises ValueError."""
    if "META-INF/container.xml" not in package.entries:
        raise ValueError("the package is no EPUB: it has no part META-INF/container.xml")
    locked = package.read("META-INF/encryption.xml") if "META-INF/encryption.xml" in package.entries else b""
    if re.search(rb"URI\s*=\s*[\"'][^\"']*\.x?html?[\"']", locked):
        raise ValueError("the book is protected against copying (DRM): its pages cannot be read")
    pages = package.read_texts(lambda name: name.lower().endswith((".xhtml", ".html", ".htm")), document_type=None)
    others = package.read_texts(lambda name: name.lower().endswith((".opf", ".ncx")), document_type="empty")
    found: dict[str, Part] = {name: _Page(text) for name, text in pages.items()}
    found |= {name: PartReader(text, _WORDS).read() for name, text in others.items()}
    parts = {name: found[name] for name in package.entries if name in found}
    return draft_of_parts(package, parts, target_language)
