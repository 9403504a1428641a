"""Packages that tests make of a few parts, as small as their formats allow."""

import io
import zipfile
from collections.abc import Mapping

from service.documents.draft import Draft, Part
from service.documents.formats import DocumentFormat, read_file
from tests.fakes.shouting import shouted

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_DRAWING = "http://schemas.openxmlformats.org/drawingml/2006"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OASIS = "urn:oasis:names:tc:opendocument:xmlns"
_ODF = (
    f'xmlns:office="{_OASIS}:office:1.0" xmlns:text="{_OASIS}:text:1.0" xmlns:table="{_OASIS}:table:1.0" '
    f'xmlns:style="{_OASIS}:style:1.0" xmlns:fo="{_OASIS}:xsl-fo-compatible:1.0" xmlns:o="o"'
)


def packed(parts: Mapping[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A package of these parts."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", method) as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), content, method)
    return written.getvalue()


def parts_of(content: bytes) -> dict[str, str]:
    """The texts of a package's parts, in their order."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def office(**parts: str) -> bytes:
    """An Office file; `word__document` is the part word/document.xml."""
    named = {name.replace("__", "/") + ".xml": text for name, text in parts.items()}
    return packed({"[Content_Types].xml": "<Types/>", **named})


def word(body: str) -> bytes:
    """A docx with this body."""
    spaces = f'xmlns:w="{_WORD}" xmlns:wp="{_DRAWING}/wordprocessingDrawing" xmlns:o="o"'
    return office(word__document=f"<w:document {spaces}><w:body>{body}</w:body></w:document>")


def sheet_part(name: str, content: str) -> str:
    """A part of an xlsx."""
    return f'<{name} xmlns="{_SHEET}">{content}</{name}>'


def run(text: str, properties: str = "", revision: str = "") -> str:
    """A run of Word."""
    rpr = f"<w:rPr>{properties}</w:rPr>" if properties else ""
    return f'<w:r{revision}>{rpr}<w:t xml:space="preserve">{text}</w:t></w:r>'


# As Word cuts it: marks of spelling, revisions, languages.
CUT_SENTENCE = (
    '<w:p w:rsidR="1">'
    + run("The ", revision=' w:rsidR="2"')
    + '<w:proofErr w:type="spellStart"/>'
    + run("gar", '<w:b/><w:lang w:val="en-US"/>')
    + run("den", '<w:b/><w:lang w:val="en-GB"/>', ' w:rsidR="3"')
    + run("er", "<w:b/><w:noProof/>")
    + '<w:proofErr w:type="spellEnd"/>'
    + run(" wa")
    + '<w:ins w:id="1">'
    + run("te")
    + "</w:ins>"
    + run("rs", '<w:lang w:val="en-US"/>')
    + "<w:r><w:lastRenderedPageBreak/><w:t> the</w:t></w:r>"
    + run(" ro", revision=' w:rsidR="4"')
    + run("ses.", '<w:rPrChange w:id="1"><w:rPr><w:i/></w:rPr></w:rPrChange>')
    + "</w:p>"
)


def open_text(body: str, styles: str = "") -> bytes:
    """An odt with this body, and these automatic styles."""
    content = f"<office:automatic-styles>{styles}</office:automatic-styles><office:body>{body}</office:body>"
    return packed({"content.xml": f"<office:document-content {_ODF}>{content}</office:document-content>"})


def draft_of(content: bytes, name: str, target: str = "") -> Draft:
    """The draft of a file of this format."""
    return read_file(content, DocumentFormat(name), target)


def texts_of(draft: Draft | Part) -> list[str]:
    """What is to be translated."""
    return [unit.text for unit in draft.units]


def shouted_part(draft: Draft, name: str) -> str:
    """A part of a file in capital letters."""
    return parts_of(shouted(draft).content)[name]
