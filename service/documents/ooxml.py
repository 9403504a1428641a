"""Office Open XML (docx, pptx, xlsx): which parts and elements are language, and how their text is written."""

import re
from collections.abc import Iterator
from html import unescape
from typing import ClassVar

from service.documents.draft import Draft, Source
from service.documents.inline import ALONE, Atom, Format, Mark, Text, escaped
from service.documents.package import Package, draft_of_parts
from service.documents.paragraphs import PartReader, labels_in, names
from service.documents.xml import Element, Tag, attributes_at
from service.text.segments import TagKind

_PATHS = {
    "w": "wordprocessingml/{}main",
    "a": "drawingml/{}main",
    "p": "presentationml/{}main",
    "x": "spreadsheetml/{}main",
    "wp": "drawingml/{}wordprocessingDrawing",
    "pic": "drawingml/{}picture",
    "xdr": "drawingml/{}spreadsheetDrawing",
    "c": "drawingml/{}chart",
}
_NAMESPACES = {
    **{"http://schemas.openxmlformats.org/" + path.format("2006/"): name for name, path in _PATHS.items()},
    **{"http://purl.oclc.org/ooxml/" + path.format(""): name for name, path in _PATHS.items()},  # "strict"
    "http://schemas.openxmlformats.org/package/2006/metadata/core-properties": "cp",
    "http://purl.org/dc/elements/1.1/": "dc",
    "http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments": "tc",
    "http://schemas.microsoft.com/office/drawing/2014/chartex": "cx",
    "urn:schemas-microsoft-com:vml": "v",
}
_PIECES = re.compile(r"([\t\n\u2011])")
_ELEMENTS = {"\t": "tab", "\n": "br", "\u2011": "noBreakHyphen"}
# What makes no difference to a reader: languages, marks of the spelling check, numbers of revisions.
_NO_FORMAT = re.compile(
    r"<(?:\w+:)?(?:lang|noProof|webHidden)\b[^<>]*/>|<(?:\w+:)?rFonts \w+:hint=\"\w+\"/>|"
    r"<(?P<change>(?:\w+:)?rPrChange)\b[^<>]*+(?<!/)>.*?</(?P=change)>|"
    r"\s(?:lang|altLang|dirty|err|smtClean|noProof|(?:\w+:)?rsid\w*)=\"[^\"]*\"",
    re.DOTALL,
)
# What hardly makes one: programs that read PDF files set letters closer here and wider there.
_SPACING = re.compile(r'<(?:\w+:)?(?:spacing|w|kern)(?=[\s/])[^<>]*/>|\s(?:spc|kern)="[^"]*"')
_BULLET = re.compile(r'<[^<>]*"[^\w"]*\w?[^\w"]*"/?>')  # of a list; Word's circle is an "o" of Courier
_SHEET_HEADERS = {f"x:{kind}{place}" for kind in ("odd", "even", "first") for place in ("Header", "Footer")}
_HEADER_CODE = re.compile(r'&amp;(?:"[^"]*"|&quot;.*?&quot;|[0-9]+|K[0-9A-F]{6}|.)')
_DROP_CAP = re.compile(r'<w:framePr\b[^<>]*\bw:dropCap="(?:drop|margin)"')
_CHOSEN = re.compile(r"<\w+:(?:dataBinding|dropDownList|comboBox|date|checkbox)\b")
_SHEET_TEXT = re.compile(
    r"inlineStr|Header>|Footer>|<(?:\w+:)?(?:dataValidation|hyperlink)\s[^>]*(?:prompt|error|tooltip)"
)
# What formulas, rules, tables and pivots know texts of cells by.
_LITERAL = re.compile(r"<(?:\w+:)?(?:f|formula[12]?|definedName)(?:\s[^<>]*)?>([^<]*)<")
_NAME = re.compile(r"""<(?:\w+:)?(?:tableColumn|cacheField|filter|customFilter|s)\s[^<>]*?\b(?:name|val|v)="([^"]*)""")


_EMPTY = re.compile(r"<[^\s<>/]+\s*/>|<[^\s<>]+\s*>\s*</[^<>]+>")
_RUNS = frozenset({"w:r", "a:r", "x:r"})  # hold properties, and text elements among others
_PROPERTIES = frozenset({"w:rPr", "a:rPr", "x:rPr"})
_TEXTS = frozenset({"w:t", "a:t", "x:t"})


class OfficeReader(PartReader):
    """Reads a part of an Office file."""

    namespaces = _NAMESPACES
    paragraphs = frozenset({"w:p", "a:p", "x:si", "x:is", "x:text"})
    groups = frozenset({"p:sp", *_SHEET_HEADERS})
    skipped = frozenset({"w:proofErr", "w:lastRenderedPageBreak", "w:softHyphen", "x:rPh"})
    text_attributes: ClassVar = {
        **dict.fromkeys(names(dc="title subject description", cp="keywords", p="text", tc="text"), ("",)),
        **dict.fromkeys(("c:v", "cx:v", "cx:pt"), ("",)),
        **dict.fromkeys(("wp:docPr", "pic:cNvPr", "p:cNvPr", "xdr:cNvPr"), ("descr", "title")),
        "v:shape": ("alt",),
        "v:textpath": ("string",),
        **dict.fromkeys(names(w="tblCaption tblDescription helpText statusText lvlText"), ("val",)),
        **dict.fromkeys(("w:hyperlink", "x:hyperlink", "a:hlinkClick", "a:hlinkHover"), ("tooltip",)),
        "x:dataValidation": ("prompt", "promptTitle", "error", "errorTitle"),
    }
    language_attributes: ClassVar = {
        "w:lang": ("val", "eastAsia", "bidi"),
        **dict.fromkeys(("a:rPr", "a:endParaRPr", "a:defRPr"), ("lang",)),
        "dc:language": ("",),
    }
    containers: ClassVar = {
        **dict.fromkeys(names(w="hyperlink ins moveTo smartTag customXml dir bdo fldSimple"), ""),
        "w:sdt": "w:sdtContent",
    }
    characters: ClassVar = {"w:tab": "\t", "w:br": "\n", "w:cr": "\n", "w:noBreakHyphen": "\u2011", "a:br": "\n"}
    ruby: ClassVar = {"w:ruby": "w:rubyBase"}
    shown = frozenset({"a:fld"})

    def __init__(self, text: str, labels: frozenset[str] = frozenset(), *, is_master: bool = False) -> None:
        """Read nothing yet.

        Args:
            labels: texts of cells that stay as they are.
            is_master: whether its placeholders hold what no reader of a presentation sees.
        """
        super().__init__(text)
        self._keys: dict[tuple[str, bool], tuple[str, bool, bool]] = {}  # what `_key` has returned
        self._labels = labels
        self._is_master = is_master

    def start(self, tag: Tag) -> None:
        """Take in what a start tag says; of the labels of lists those with words."""
        if tag.name != "w:lvlText" or not _BULLET.fullmatch(self.text, tag.begin, tag.end):
            super().start(tag)

    def take(self, node: Element) -> None:
        """Take in an element; of a sheet's header or footer the texts between its codes."""
        if node.name in _SHEET_HEADERS:
            begin = node.content
            for code in [*_HEADER_CODE.finditer(self.text, begin, node.content_end), None]:
                self.take_text(begin, code.start() if code else node.content_end)
                begin = code.end() if code else begin
        elif node.name in {"c:v", "cx:pt"} and node.text in self._labels:
            return  # as the cell that it shows
        elif (
            node.name == "w:p"
            and (first := node.elements[:1])
            and _DROP_CAP.search(self.text, node.begin, first[0].end)
        ):
            texts = [text for run in node.elements for text in run.elements if text.name == "w:t"]
            self._initial = texts[0] if len(texts) == 1 else None
        elif not (self._is_master and node.name == "p:sp" and ":ph" in self.text[node.begin : node.end]):
            super().take(node)

    def is_translated(self, paragraph: Element) -> bool:
        """Whether a paragraph is neither a label nor code."""
        if paragraph.name.startswith("x:"):
            return paragraph.text not in self._labels
        first = next(iter(paragraph.elements), None)
        if first is None or first.name != "w:pPr":
            return True
        style = next((one for one in first.elements if one.name == "w:pStyle"), None)
        return style is None or not self.is_code(self.text[style.begin : style.end])

    def atoms_of(self, node: Element, around: Format) -> Iterator[Atom]:
        """Yield what an element in a paragraph is: of a run, what is in it."""
        if node.name in _RUNS:
            yield from self._run(node, around)
        elif node.name in _TEXTS:  # without a run
            yield Text(around._replace(key=ALONE), node.text)
        else:
            yield from super().atoms_of(node, around)

    def _run(self, run: Element, form: Format) -> Iterator[Atom]:
        for child in run.elements:
            if child.name in _PROPERTIES:
                key, is_kept, is_code = self._key(self.text[child.begin : child.end])
                own: Source = ((child.begin, child.end),) if is_kept else ()
                form = form._replace(key=key, source=own, is_code=is_code)
                continue
            around = (run.begin, run.content), *form.source, (child.begin, child.end), (run.content_end, run.end)
            is_break = self._is_break(child)
            if child.name in _TEXTS:
                yield Text(form, child.text, around)
            elif child.name in self.ruby:
                yield Text(form, self.base_of(child), around)
            elif child.name in self.characters and not is_break:
                yield Text(form, self.characters[child.name], around)
            elif child.name not in self.skipped:
                shows = child.text if child.name in self.shown else ""
                part = self._field_part(child)
                yield Mark(TagKind.POINT, shows=shows, is_break=is_break, pieces=around, field_part=part)

    def _key(self, properties: str) -> tuple[str, bool, bool]:
        """Return what is equal for properties that look alike, whether they are kept, and whether they are for code."""
        known = properties, self._knows_code
        if known not in self._keys:
            written = _NO_FORMAT.sub("", properties)
            key = _SPACING.sub("", written)
            key = "" if _EMPTY.fullmatch(key) else key
            self._keys[known] = key, not _EMPTY.fullmatch(written), self.is_code(key)
        return self._keys[known]

    def _is_break(self, node: Element) -> bool:
        """Whether an element ends a page or a column, and comes back as it is."""
        tag = self.text[node.begin : node.end] if node.name == "w:br" else ""
        return "type=" in tag and "textWrapping" not in tag

    def _field_part(self, node: Element) -> str:
        """Return which part of a field an element in a run is, and what the field is."""
        if node.name == "w:fldChar":
            named = attributes_at(self.text, node.begin, node.content)
            return next((one.value for name, one in named.items() if name.endswith("fldCharType")), "")
        return node.text if node.name == "w:instrText" else ""

    def written(self, form: Format, text: str) -> Source:
        """Return text as runs."""
        prefix = form.prefix

        def run(content: str) -> Source:
            return f"<{prefix}r>", *form.source, f"{content}</{prefix}r>"

        if form.family == "a":
            written: Source = ()
            for number, line in enumerate(text.split("\n")):
                written += (f"<{prefix}br>", *form.source, f"</{prefix}br>") if number else ()
                written += run(f"<{prefix}t>{escaped(line)}</{prefix}t>") if line else ()
            return written
        content = "".join(
            f"<{prefix}{_ELEMENTS[piece]}/>"
            if piece in _ELEMENTS
            else f'<{prefix}t xml:space="preserve">{escaped(piece)}</{prefix}t>'
            for piece in (_PIECES.split(text) if form.family == "w" else [text])
            if piece
        )
        return (content,) if form.family == "x" and form.key == ALONE else run(content)

    def is_chosen(self, node: Element) -> bool:
        """Whether a content control takes its text from a list or from data; a field, unless it is a link."""
        if node.name == "w:fldSimple":
            return "HYPERLINK" not in self.text[node.begin : node.content].upper()
        content = next((one for one in node.elements if one.name == "w:sdtContent"), node)
        return bool(_CHOSEN.search(self.text, node.begin, content.begin))


def read(package: Package, target_language: str = "") -> Draft:
    """Return the draft of an Office file; raises ValueError."""
    if "[Content_Types].xml" not in package.entries:
        raise ValueError("the package is no Office file: it has no part [Content_Types].xml")
    texts = package.read_texts(_is_text)
    labels = _labels(texts)
    parts = {
        name: OfficeReader(text, labels, is_master="Master" in name or "Layout" in name).read(
            is_main=name == "word/document.xml"
        )
        for name, text in texts.items()
        if not name.startswith(("xl/tables", "xl/pivot")) and ("/worksheets/" not in name or _SHEET_TEXT.search(text))
    }
    return draft_of_parts(package, parts, target_language)


def _is_text(name: str) -> bool:
    """Whether a part may hold language, or say what refers to it."""
    folder, _, rest = name.partition("/")
    if not name.endswith(".xml") or "/theme/" in name or name.startswith("word/glossary/"):
        return False
    if folder == "docProps":
        return rest == "core.xml"
    return folder in {"word", "ppt"} or (folder == "xl" and rest != "styles.xml" and "Records" not in rest)


def _labels(texts: dict[str, str]) -> frozenset[str]:
    """Return texts of cells that something in a workbook refers to by what they say."""
    labels = set[str]()
    for name, text in texts.items():
        if name.startswith("xl/"):
            labels.update(unescape(label) for label in _NAME.findall(text))
            labels |= labels_in(_LITERAL.findall(text))
    return frozenset(labels)
