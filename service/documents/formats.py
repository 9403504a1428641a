"""Which format a file has, and who reads it."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from pathlib import PurePath

from service.documents import app_strings, markup_files, messages, ooxml, opendocument, subtitles
from service.documents.draft import Draft, Line, Part, Unit, report_of
from service.documents.package import Package
from service.extras import how_to_install
from service.records import Translation

_UTF_16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_BYTE_ORDER_MARK = "\ufeff"  # it comes back, and no reader sees it


class DocumentFormat(StrEnum):
    """Formats of files."""

    TEXT = "text"
    HTML = "html"
    XML = "xml"
    XLIFF = "xliff"
    MARKDOWN = "markdown"
    SRT = "srt"
    VTT = "vtt"
    PO = "po"
    DOCX = "docx"
    PPTX = "pptx"
    XLSX = "xlsx"
    ODT = "odt"
    ODP = "odp"
    ODS = "ods"
    EPUB = "epub"
    JSON = "json"
    ARB = "arb"
    YAML = "yaml"
    STRINGS = "strings"
    STRINGSDICT = "stringsdict"
    PROPERTIES = "properties"
    CSV = "csv"


def _read_markdown(text: str, _: str) -> Part:
    from service.documents import markdown

    return markdown.read(text)


# Suffixes, and what reads a file for a target language.
_TEXTS: dict[DocumentFormat, tuple[str, Callable[[str, str], Part]]] = {
    DocumentFormat.TEXT: (".txt", markup_files.read_plain),
    DocumentFormat.HTML: (".html .htm .xhtml", markup_files.read_html),
    DocumentFormat.XML: (".xml", markup_files.read_xml),
    DocumentFormat.XLIFF: (".xliff .xlf", markup_files.read_xliff),
    DocumentFormat.MARKDOWN: (".md .markdown", _read_markdown),
    DocumentFormat.SRT: (".srt", partial(subtitles.read, has_references=False)),
    DocumentFormat.VTT: (".vtt", partial(subtitles.read, has_references=True)),
    DocumentFormat.PO: (".po .pot", app_strings.read_po),
    DocumentFormat.JSON: (".json", messages.read_json),
    DocumentFormat.ARB: (".arb", partial(messages.read_json, is_arb=True)),
    DocumentFormat.YAML: (".yaml .yml", messages.read_yaml),
    DocumentFormat.STRINGS: (".strings", app_strings.read_strings),
    DocumentFormat.STRINGSDICT: (".stringsdict", app_strings.read_stringsdict),
    DocumentFormat.PROPERTIES: (".properties", app_strings.read_properties),
    DocumentFormat.CSV: (".csv .tsv", messages.read_csv),
}
# Formats that are no texts; the limits of packages hold for them.
PACKAGES: dict[DocumentFormat, tuple[str, Callable[[Package, str], Draft]]] = {
    DocumentFormat.DOCX: (".docx .docm .dotx .dotm", ooxml.read),
    DocumentFormat.PPTX: (".pptx .pptm .potx .potm .ppsx .ppsm", ooxml.read),
    DocumentFormat.XLSX: (".xlsx .xlsm .xltx .xltm", ooxml.read),
    DocumentFormat.ODT: (".odt .ott", opendocument.read),
    DocumentFormat.ODP: (".odp .otp .odg", opendocument.read),
    DocumentFormat.ODS: (".ods .ots", opendocument.read),
    DocumentFormat.EPUB: (".epub", markup_files.read_book),
}
SUFFIXES = {
    suffix: document_format
    for document_format in DocumentFormat
    for suffix in (_TEXTS | PACKAGES)[document_format][0].split()
}
# What to do with files that are read by none.
_ADVICE = {
    ".pdf": "has lines and no paragraphs: open it in Word or LibreOffice, save it as docx, and translate that",
    **dict.fromkeys((".doc", ".rtf"), "is of an old format: save it as docx"),
    ".xls": "is of an old format: save it as xlsx",
    ".ppt": "is of an old format: save it as pptx",
}


def format_of(file: PurePath) -> DocumentFormat:
    """Return the format that a file's suffix names.

    Raises:
        ValueError: it names none.
    """
    known = SUFFIXES.get(file.suffix.lower())
    if advice := _ADVICE.get(file.suffix.lower()):
        raise ValueError(f"{file} {advice}")
    if known is None:
        raise ValueError(f"{file} has none of the suffixes {', '.join(SUFFIXES)}: say what it is with --format")
    return known


def load_readers() -> None:
    """Import what reads each format, as far as its packages are installed, so that no document waits for it."""
    for document_format in (DocumentFormat.MARKDOWN, DocumentFormat.PO, DocumentFormat.YAML):
        with suppress(ModuleNotFoundError):
            _TEXTS[document_format][1]("", "")


def read_file(content: bytes, document_format: DocumentFormat, target_language: str = "") -> Draft:
    """Return the draft of a file.

    Args:
        target_language: BCP 47, for formats that name it; empty: they do not say.

    Raises:
        ValueError: the file is not of this format, or may be meant to harm, or a package for it is missing.
    """
    if document_format in PACKAGES:
        return PACKAGES[document_format][1](Package.open(content), target_language)
    encoding = next((name for mark, name in _UTF_16.items() if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        advice = "convert it with `iconv --from-code ENCODING --to-code UTF-8`"
        raise ValueError(f"the file is not valid {encoding.upper()} at byte {error.start}: {advice}") from error
    mark = _BYTE_ORDER_MARK if text.startswith(_BYTE_ORDER_MARK) else ""
    try:
        part = _TEXTS[document_format][1](text.removeprefix(mark), target_language)
    except ModuleNotFoundError as error:
        raise ValueError(f"{document_format} files need {error.name}: {how_to_install('documents')}") from error
    return Draft({"": part}, lambda texts: (mark + texts[""]).encode(encoding))


def units_of(content: bytes, document_format: DocumentFormat, target_language: str = "") -> tuple[Unit, ...]:
    """Return the units of a file; raises as `read_file`."""
    return read_file(content, document_format, target_language).units


def translated_file(
    content: bytes, document_format: DocumentFormat, target_language: str, translations: Sequence[Translation]
) -> tuple[bytes, list[Line], tuple[str, ...]]:
    """Return a file, read again, with a translation for each of its units; what went wrong; and remarks.

    A draft in memory takes ten times what its text does, and cannot go from one process to another.
    """
    draft = read_file(content, document_format, target_language)
    written = draft.write(translations)
    return written.content, report_of(draft.units, translations, written.notices), draft.remarks
