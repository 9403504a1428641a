"""`make try-documents`: files that other programs made, translated, opened again by other programs, and looked at.

    python -m trials.documents [--office soffice] [--out build/documents]

The files are those of `make.py`, by libraries and by LibreOffice where there is one.  Held of each:

    same          with its own texts as translations, all parts are there in their order, and none has changed but in
                  what says the language
    elements      with all texts in capitals, no link, note, field, picture, cell, insertion, ... is lost or doubled
    readers       python-docx, python-pptx, openpyxl and odfpy read every text of it, in capitals
    model         the included model translates it and every translation is written
    LibreOffice   opens that and prints about as many pages as of the source; their pictures are in OUT, side by side
"""

import argparse
import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx
from odf import teletype
from odf import text as odf_text
from odf.opendocument import load
from PIL import Image
from rich.console import Console
from rich.table import Table

from service.documents.draft import Draft, report_of
from service.documents.formats import DocumentFormat, format_of, read_file
from service.local import LocalTranslator
from service.records import TranslateOptions, TranslationRequest, WarningKind
from tests.fakes.shouting import echoed, shouted
from trials.documents.make import convert, make

_KEPT = re.compile(
    r"<[\w-]+:(hyperlink|bookmarkStart|commentReference|footnoteReference|fldChar|instrText|drawing|pict|tbl|tc|sectPr|ins|"
    r"del|br|tab|sp|pic|note|annotation|table-cell|frame|a|line-break|page-number|change|bookmark-start)[\s/>]"
)
_LANGUAGE = re.compile(
    r'(?:w:(?:val|eastAsia|bidi)|\blang|(?:fo|style):(?:language|country)[\w-]*)="[^"]*"|<dc:language>[^<]*|xml:lang="[^"]*"'
)


def parts_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def check_same(source: bytes, draft: Draft) -> str:
    before, after = parts_of(source), parts_of(echoed(draft).content)
    assert list(before) == list(after), "parts"
    changed = [name for name in before if before[name] != after[name]]
    for name in changed:
        assert _LANGUAGE.sub("", before[name].decode()) == _LANGUAGE.sub("", after[name].decode()), name
    return f"{len(before) - len(changed)} of {len(before)} parts"


def check_elements(source: bytes, draft: Draft) -> str:
    counts = [
        Counter(
            name for part in parts_of(content).values() if part[:1] == b"<" for name in _KEPT.findall(part.decode())
        )
        for content in (source, shouted(draft).content)
    ]
    assert counts[0] == counts[1], counts[0] - counts[1]
    return str(counts[0].total())


def docx_texts(content: bytes) -> list[str]:
    document = docx.Document(io.BytesIO(content))
    cells = [cell.text for table in document.tables for row in table.rows for cell in row.cells]
    section = document.sections[0]
    edges = [one.text for one in (*section.header.paragraphs, *section.footer.paragraphs)]
    return [*(paragraph.text for paragraph in document.paragraphs), *cells, *edges]


def pptx_texts(content: bytes) -> list[str]:
    slides = pptx.Presentation(io.BytesIO(content)).slides
    shapes = [shape for slide in slides for shape in slide.shapes]
    notes = [slide.notes_slide.notes_text_frame.text for slide in slides if slide.has_notes_slide]
    return [*(shape.text_frame.text for shape in shapes if shape.has_text_frame), *notes]


def xlsx_texts(content: bytes) -> list[str]:
    book = openpyxl.load_workbook(io.BytesIO(content))
    cells = [cell for sheet in book for row in sheet.iter_rows() for cell in row]
    kept = {"Plant", "State", "Pieces", "Yes", "No"}  # of the table, or known to a formula
    return [str(cell.value) for cell in cells if cell.data_type == "s" and str(cell.value) not in kept]


def odf_texts(content: bytes) -> list[str]:
    paragraphs = load(io.BytesIO(content)).getElementsByType(odf_text.P)
    return [teletype.extractText(paragraph) for paragraph in paragraphs]


READERS: dict[DocumentFormat, Callable[[bytes], list[str]]] = {
    DocumentFormat.DOCX: docx_texts,
    DocumentFormat.PPTX: pptx_texts,
    DocumentFormat.XLSX: xlsx_texts,
    DocumentFormat.ODT: odf_texts,
    DocumentFormat.ODP: odf_texts,
    DocumentFormat.ODS: odf_texts,
}
_MAY_STAY = re.compile(r"garden\.ini|ls -l|many|\d+ pieces|<number>|never|Plant|State|Pieces|Yes|No")


def check_readers(file: Path, draft: Draft) -> str:
    reader = READERS.get(format_of(file))
    # Templates are not what python-docx opens, and others' examples have code and formulas anywhere.
    if reader is None or file.suffix[1:] not in READERS or file.parent.name == "odfpy":
        return "-"
    found = [_MAY_STAY.sub("", text) for text in reader(shouted(draft).content)]
    lower = [text for text in found if text != text.upper()]
    assert not lower, lower
    return f"{sum(map(bool, found))} texts"


def check_model(translator: LocalTranslator, draft: Draft) -> tuple[bytes, str]:
    request = TranslationRequest(source_language="en", target_language="de")
    by_format: dict[str, list[int]] = {}
    for number, unit in enumerate(draft.units):
        by_format.setdefault(unit.format, []).append(number)
    answers: dict[int, Any] = {}
    for text_format, numbers in by_format.items():
        texts = [draft.units[number].text for number in numbers]
        wish = TranslationRequest(**{**_fields(request), "format": text_format})
        answers.update(zip(numbers, translator.translate_all(texts, TranslateOptions(), request=wish), strict=True))
    translations = [answers[number] for number in range(len(draft.units))]
    written = draft.write(translations)
    assert not written.notices, written.notices
    report = report_of(draft.units, translations, written.notices)
    lost = [line for line in report if line["kind"] is WarningKind.NOT_TRANSLATED]
    return written.content, f"{len(translations)} texts, {len(report)} warnings, {len(lost)} not translated"


def _fields(request: TranslationRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__slots__}


def check_office(office: str, source: Path, translated: Path, out: Path) -> str:
    """Print both, and put the pictures of their first pages beside each other."""
    pictures, pages = [], []
    for language, file in (("english", source), ("german", translated)):
        printed = convert(office, file, "pdf", out / f"pdf-{language}-{file.parent.name}")
        counted = subprocess.run(["pdfinfo", printed], check=True, capture_output=True, text=True).stdout
        pages.append(int(re.findall(r"Pages:\s+(\d+)", counted)[0]))
        subprocess.run(["pdftoppm", "-r", "60", "-png", "-singlefile", printed, printed.with_suffix("")], check=True)
        pictures.append(Image.open(printed.with_suffix(".png")))
    both = Image.new("RGB", (sum(one.width for one in pictures) + 10, max(one.height for one in pictures)), "grey")
    both.paste(pictures[0], (0, 0))
    both.paste(pictures[1], (pictures[0].width + 10, 0))
    both.save(out / f"{source.parent.name}-{source.name}.png")
    assert abs(pages[0] - pages[1]) <= max(1, 0.05 * pages[0]), pages  # German is longer than English
    return f"{pages[0]}, {pages[1]} pages"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--office", default=shutil.which("soffice"), help="LibreOffice; without it, less is tried")
    parser.add_argument("--out", type=Path, default=Path("build/documents"))
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    (options.out / "made").mkdir(parents=True)
    files = make(options.out / "made", options.office)
    translator = LocalTranslator.open(Path("model/pretrained/en-de"))
    columns = ("same", "elements", "readers", "model", "LibreOffice")
    table, failures = Table("file", *columns), []
    for file in files:
        content = file.read_bytes()
        draft = read_file(content, format_of(file), "de")
        row = []
        translated = options.out / "german" / file.parent.name / file.name
        translated.parent.mkdir(parents=True, exist_ok=True)
        for column in columns:
            try:
                match column:
                    case "same":
                        row.append(check_same(content, draft))
                    case "elements":
                        row.append(check_elements(content, draft))
                    case "readers":
                        row.append(check_readers(file, draft))
                    case "model":
                        written, said = check_model(translator, draft)
                        translated.write_bytes(written)
                        row.append(said)
                    case "LibreOffice":
                        is_printed = options.office and file.suffix != ".epub"  # which it does not open
                        row.append(check_office(options.office, file, translated, options.out) if is_printed else "-")
            except AssertionError as error:
                failures.append(f"{file.name}, {column}: {error}")
                row.append("FAILED")
        table.add_row(f"{file.parent.name}/{file.name}", *row)
    Console(width=150).print(table)
    print("\n".join(failures))
    print(json.dumps({"files": len(files), "with_libreoffice": bool(options.office), "failures": len(failures)}))
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
