"""The formats of files, by suffix, and the functions that read and write each."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from pathlib import PurePath
from typing import Self, TypeAlias

from service.documents import app_strings, markup_files, message_files, ooxml, opendocument, subtitles
from service.documents.draft import Draft, Line, Part, Unit, report_of
from service.documents.package import Package
from service.extras import how_to_install
from service.records import Translation

_UTF_16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_BYTE_ORDER_MARK = "\ufeff"  # it comes back, and no reader sees it


def _read_markdown(text: str, _: str) -> Part:
    from service.documents import markdown

    return markdown.read(text)


_ReadText: TypeAlias = Callable[[str, str], Part]  # text, target language
_ReadPackage: TypeAlias = Callable[[Package, str], Draft]


class DocumentFormat(StrEnum):
    """Formats of files: name, suffixes, and what reads a text or a package."""

    suffixes: str
    read_text: _ReadText | None
    read_package: _ReadPackage | None  # of formats that are no texts; the limits of packages hold for them

    def __new__(
        cls, name: str, suffixes: str = "", read_text: _ReadText | None = None, read_package: _ReadPackage | None = None
    ) -> Self:
        """Return a format, which is its name."""
        member = str.__new__(cls, name)
        member._value_, member.suffixes = name, suffixes
        member.read_text, member.read_package = read_text, read_package
        return member

    TEXT = "text", ".txt", markup_files.read_plain
    HTML = "html", ".html .htm .xhtml", markup_files.read_html
    XML = "xml", ".xml", markup_files.read_xml
    XLIFF = "xliff", ".xliff .xlf", markup_files.read_xliff
    MARKDOWN = "markdown", ".md .markdown", _read_markdown
    SRT = "srt", ".srt", partial(subtitles.read, has_references=False)
    VTT = "vtt", ".vtt", partial(subtitles.read, has_references=True)
    PO = "po", ".po .pot", app_strings.read_po
    DOCX = "docx", ".docx .docm .dotx .dotm", None, ooxml.read
    PPTX = "pptx", ".pptx .pptm .potx .potm .ppsx .ppsm", None, ooxml.read
    XLSX = "xlsx", ".xlsx .xlsm .xltx .xltm", None, ooxml.read
    ODT = "odt", ".odt .ott", None, opendocument.read
    ODP = "odp", ".odp .otp .odg", None, opendocument.read
    ODS = "ods", ".ods .ots", None, opendocument.read
    EPUB = "epub", ".epub", None, markup_files.read_book
    JSON = "json", ".json", message_files.read_json
    ARB = "arb", ".arb", partial(message_files.read_json, is_arb=True)
    YAML = "yaml", ".yaml .yml", message_files.read_yaml
    STRINGS = "strings", ".strings", app_strings.read_strings
    STRINGSDICT = "stringsdict", ".stringsdict", app_strings.read_stringsdict
    PROPERTIES = "properties", ".properties", app_strings.read_properties
    CSV = "csv", ".csv .tsv", message_files.read_csv


SUFFIXES = {
    suffix: document_format for document_format in DocumentFormat for suffix in document_format.suffixes.split()
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
        with suppress(ValueError):
            read_file(b"", document_format)


def read_file(content: bytes, document_format: DocumentFormat, target_language: str = "") -> Draft:
    """Return the draft of a file.

    Args:
        target_language: BCP 47, for formats that name it; empty: they do not say.

    Raises:
        ValueError: the file is not of this format, or may be meant to harm, or a package for it is missing.
    """
    if document_format.read_package is not None:
        return document_format.read_package(Package.open(content), target_language)
    encoding = next((name for mark, name in _UTF_16.items() if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        advice = "convert it with `iconv --from-code ENCODING --to-code UTF-8`"
        raise ValueError(f"the file is not valid {encoding.upper()} at byte {error.start}: {advice}") from error
    mark = _BYTE_ORDER_MARK if text.startswith(_BYTE_ORDER_MARK) else ""
    assert document_format.read_text is not None
    try:
        part = document_format.read_text(text.removeprefix(mark), target_language)
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
