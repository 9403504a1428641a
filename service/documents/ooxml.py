"""Office Open XML (docx, pptx, xlsx): which parts and elements are language, and how their text is written."""

import re
from html import unescape

from service.documents.draft import FileDraft, Source
from service.documents.inline import ALONE, Format, escaped
from service.documents.package import Package, draft_of_parts
from service.documents.paragraphs import PartReader, Vocabulary, labels_in, names
from service.documents.xml import Element, Tag, attributes_at

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
_ALT = ("descr", "title")
_TOOLTIP = ("tooltip",)
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


def _write(form: Format, text: str) -> Source:
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


_WORDS = Vocabulary(
    namespaces=_NAMESPACES,
    paragraphs=frozenset({"w:p", "a:p", "x:si", "x:is", "x:text"}),
    write=_write,
    runs=frozenset({"w:r", "a:r", "x:r"}),
    properties=frozenset({"w:rPr", "a:rPr", "x:rPr"}),
    texts=frozenset({"w:t", "a:t", "x:t"}),
    containers={
        **dict.fromkeys(("w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:customXml", "w:dir", "w:bdo"), ""),
        "w:fldSimple": "",
        "w:sdt": "w:sdtContent",
    },
    ruby={"w:ruby": "w:rubyBase"},
    characters={"w:tab": "\t", "w:br": "\n", "w:cr": "\n", "w:noBreakHyphen": "\u2011", "a:br": "\n"},
    shown=frozenset({"a:fld"}),
    dropped=frozenset({"w:proofErr", "w:lastRenderedPageBreak", "w:softHyphen", "x:rPh"}),
    plain=names(dc="title subject description language", cp="keywords", p="text", tc="text", c="v", cx="v pt"),
    named={
        **dict.fromkeys(("wp:docPr", "pic:cNvPr", "p:cNvPr", "xdr:cNvPr"), _ALT),
        "v:shape": ("alt",),
        "v:textpath": ("string",),
        **dict.fromkeys(("w:tblCaption", "w:tblDescription", "w:helpText", "w:statusText", "w:lvlText"), ("val",)),
        **dict.fromkeys(("w:hyperlink", "x:hyperlink", "a:hlinkClick", "a:hlinkHover"), _TOOLTIP),
        "x:dataValidation": ("prompt", "promptTitle", "error", "errorTitle"),
    },
    groups=frozenset({"p:sp", *_SHEET_HEADERS}),
    languages={
        "w:lang": ("val", "eastAsia", "bidi"),
        **dict.fromkeys(("a:rPr", "a:endParaRPr", "a:defRPr"), ("lang",)),
        "dc:language": ("",),
    },
    no_format=_NO_FORMAT,
    spacing=_SPACING,
)


class OfficeReader(PartReader):
    """Reads a part of an Office file."""

    def __init__(self, text: str, labels: frozenset[str] = frozenset(), *, is_master: bool = False) -> None:
        """Read nothing yet.

        Args:
            labels: texts of cells that stay as they are.
            is_master: whether its placeholders hold what no reader of a presentation sees.
        """
        super().__init__(text, _WORDS)
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
        first = next((child for child in paragraph.children if isinstance(child, Element)), None)
        if first is None or first.name != "w:pPr":
            return True
        style = next((one for one in first.children if isinstance(one, Element) and one.name == "w:pStyle"), None)
        return style is None or not self.is_code(self.text[style.begin : style.end])

    def is_break(self, node: Element) -> bool:
        """Whether an element ends a page or a column."""
        return (
            node.name == "w:br"
            and "type=" in self.text[node.begin : node.end]
            and "textWrapping" not in self.text[node.begin : node.end]
        )

    def field_part(self, node: Element) -> str:
        """Return which part of a field an element in a run is, and what the field is."""
        if node.name == "w:fldChar":
            named = attributes_at(self.text, node.begin, node.content)
            return next((one.value for name, one in named.items() if name.endswith("fldCharType")), "")
        return node.text if node.name == "w:instrText" else ""

    def is_chosen(self, node: Element) -> bool:
        """Whether a content control takes its text from a list or from data; a field, unless it is a link."""
        if node.name == "w:fldSimple":
            return "HYPERLINK" not in self.text[node.begin : node.content].upper()
        content = next((one for one in node.elements if one.name == "w:sdtContent"), node)
        return bool(_CHOSEN.search(self.text, node.begin, content.begin))


def read(package: Package, target_language: str = "") -> FileDraft:
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
