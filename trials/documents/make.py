"""Documents as programs write them: of our own words by libraries, LibreOffice, pandoc and Sphinx; odfpy's examples.

    python -m trials.documents.make DIRECTORY    # with LibreOffice where there is one

Each is small and has what its format is known for: runs that were cut, notes, text boxes, fields, formulas, tables.
"""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import docx
import openpyxl
import pptx
import xlsxwriter
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from odf import dc, draw, style, table, teletype, text
from odf.opendocument import OpenDocumentPresentation, OpenDocumentSpreadsheet, OpenDocumentText
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment
from openpyxl.worksheet.datavalidation import DataValidation
from openpyxl.worksheet.table import Table
from pptx.util import Inches

from trials.documents import books

# A sentence as Word cuts it: a bold word in two runs, marks of the spelling check, revision numbers, an insertion.
_CUT_SENTENCE = f"""<w:p {nsdecls("w")} w:rsidR="00A1">
<w:r w:rsidRPr="00B1"><w:t xml:space="preserve">The </w:t></w:r><w:proofErr w:type="spellStart"/>
<w:r w:rsidR="00B2"><w:rPr><w:b/><w:lang w:val="en-US"/></w:rPr><w:t>gar</w:t></w:r>
<w:r w:rsidR="00B3"><w:rPr><w:b/><w:noProof/></w:rPr><w:t>dener</w:t></w:r><w:proofErr w:type="spellEnd"/>
<w:r><w:t xml:space="preserve"> waters </w:t></w:r><w:bookmarkStart w:id="7" w:name="roses"/>
<w:ins w:id="8" w:author="A" w:date="2026-01-01T00:00:00Z"><w:r><w:t xml:space="preserve">the </w:t></w:r></w:ins>
<w:r w:rsidR="00B4"><w:t>ro</w:t></w:r><w:r w:rsidR="00B5"><w:rPr><w:lang w:val="en-GB"/></w:rPr><w:t>ses</w:t></w:r>
<w:bookmarkEnd w:id="7"/><w:del w:id="9" w:author="A" w:date="2026-01-01T00:00:00Z">
<w:r><w:delText> never</w:delText></w:r></w:del>
<w:r><w:t xml:space="preserve"> every </w:t></w:r><w:r><w:lastRenderedPageBreak/><w:t>morning.</w:t></w:r></w:p>"""

_FIELDS = f"""<w:p {nsdecls("w")}><w:r><w:t xml:space="preserve">The shed is on page </w:t></w:r>
<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText xml:space="preserve"> PAGEREF roses </w:instrText></w:r>
<w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>12</w:t></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>
<w:r><w:t xml:space="preserve"> of </w:t></w:r><w:r><w:fldChar w:fldCharType="begin"/></w:r>
<w:r><w:instrText> HYPERLINK "https://example.com/book" </w:instrText></w:r>
<w:r><w:fldChar w:fldCharType="separate"/></w:r>
<w:r><w:rPr><w:u w:val="single"/></w:rPr><w:t>the garden book</w:t></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>
<w:r><w:t>.</w:t></w:r></w:p>"""

_TEXT_BOX = f"""<w:p {nsdecls("w")} xmlns:v="urn:schemas-microsoft-com:vml">
<w:r><w:t xml:space="preserve">Beside the box </w:t></w:r><w:r><w:pict>
<v:shape id="box" alt="A box with a note" style="width:100pt;height:40pt"><v:textbox><w:txbxContent>
<w:p><w:r><w:t>The note in the box.</w:t></w:r></w:p></w:txbxContent></v:textbox></v:shape></w:pict></w:r>
<w:r><w:t>the cat sleeps.</w:t></w:r></w:p>"""


def word() -> bytes:
    """A document with headings, lists, a table, header and footer, a comment, cut runs, fields, a box, code."""
    document = docx.Document()
    document.core_properties.title, document.core_properties.language = "The garden", "en-US"
    document.add_heading("The garden in spring", 1)
    body = document.element.body
    paragraph = document.add_paragraph("Read ")
    paragraph.add_run("the whole ").italic = True
    link = paragraph.add_run("book")
    link.bold = link.italic = True
    paragraph.add_run(" before you ask.")
    document.add_comment(paragraph.runs, "Who wrote this sentence?", author="A")
    for xml in (_CUT_SENTENCE, _FIELDS, _TEXT_BOX):
        body.insert(len(body) - 1, parse_xml(xml))
    code = document.add_paragraph("Open ")
    code.add_run("garden.ini").font.name = "Courier New"
    code.add_run(" and change the colour.\nIt is on the next line.\tAnd here is a tab.")
    hidden = document.add_paragraph().add_run("Nobody sees this sentence.")
    hidden.font.hidden = True
    for item in ("Water the roses.", "Feed the birds & the cat."):
        document.add_paragraph(item, style="List Bullet")
    grid = document.add_table(2, 3)
    for place, words in enumerate(("Plant", "Price", "12.50", "The red rose", "3", "Tall")):
        grid.cell(place // 3, place % 3).text = words
    section = document.sections[0]
    section.header.paragraphs[0].text = "A book about gardens"
    section.footer.paragraphs[0].text = "Printed in the village"
    return _saved(document)


def slides() -> bytes:
    """A presentation with a title, points in two formats, a table, notes, an alternative text."""
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "Why we need bees"
    frame = slide.placeholders[1].text_frame
    frame.text = "Bees visit the flowers."
    paragraph = frame.add_paragraph()
    for words, is_bold in (("Without ", False), ("be", True), ("es", True), (" there are no apples.", False)):
        run = paragraph.add_run()
        run.text, run.font.bold = words, is_bold
    frame.add_paragraph().text = "The first line\vand the second line"
    grid = slide.shapes.add_table(2, 2, Inches(1), Inches(4), Inches(6), Inches(1)).table
    for place, words in enumerate(("Month", "Honey", "In May", "12 kg")):
        grid.cell(place // 2, place % 2).text = words
    box = slide.shapes.add_textbox(Inches(1), Inches(6), Inches(3), Inches(0.5))
    box.text_frame.text = "Ask the old beekeeper."
    box._element.nvSpPr.cNvPr.set("descr", "A picture of a bee")
    slide.notes_slide.notes_text_frame.text = "Tell them about the winter."
    return _saved(presentation)


def workbook() -> bytes:
    """A workbook with texts, numbers, formulas that know texts, a table, a chart, a note, rich and inline text."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Stock"
    rows = [("Plant", "State", "Pieces"), ("The red rose", "Yes", 3), ("The white rose", "No", 4), ("A tree", "Yes", 5)]
    for row in rows:
        sheet.append(row)
    sheet["E1"], sheet["E2"] = "How many are there?", '=COUNTIF(B2:B4,"Yes")+SUM(C2:C4)'
    sheet["E3"] = "Two lines:\nthe second one."
    sheet["E1"].comment = Comment("Count them again.", "A")
    sheet.add_table(Table(displayName="Plants", ref="A1:C4"))
    rule = DataValidation(type="list", formula1='"Yes,No"', promptTitle="The state", prompt="Choose one of the two.")
    rule.add("B2:B4")
    sheet.add_data_validation(rule)
    chart = BarChart()
    chart.title = "Plants in the garden"
    chart.add_data(Reference(sheet, min_col=3, min_row=1, max_row=4), titles_from_data=True)
    sheet.add_chart(chart, "G2")
    sheet.oddHeader.center.text = "The stock of the garden"
    return _saved(book)


def odf_text() -> bytes:
    """A text with spans, a note, a link, a list."""
    document = OpenDocumentText()
    bold = style.Style(name="T1", family="text")
    bold.addElement(style.TextProperties(fontweight="bold"))
    document.automaticstyles.addElement(bold)
    document.meta.addElement(dc.Title(text="The garden"))
    document.text.addElement(text.H(outlinelevel=1, text="The garden in spring"))
    paragraph = text.P(text="The ")
    paragraph.addElement(text.Span(stylename=bold, text="gar"))
    paragraph.addElement(text.Span(stylename=bold, text="dener"))
    paragraph.addText(" waters the roses")
    note = text.Note(noteclass="footnote", id="n1")
    note.addElement(text.NoteCitation(text="1"))
    body = text.NoteBody()
    body.addElement(text.P(text="They are red."))
    note.addElement(body)
    paragraph.addElement(note)
    paragraph.addText(" every morning.")
    document.text.addElement(paragraph)
    linked = text.P(text="Read ")
    linked.addElement(text.A(href="https://example.com", text="the garden book"))
    teletype.addTextToElement(linked, "  first.\tThen ask.")
    document.text.addElement(linked)
    return _saved(document)


def odf_slides() -> bytes:
    """A presentation with one box."""
    document = OpenDocumentPresentation()
    layout = style.PageLayout(name="L")
    document.automaticstyles.addElement(layout)
    master = style.MasterPage(name="M", pagelayoutname=layout)
    document.masterstyles.addElement(master)
    page = draw.Page(masterpagename=master, name="first")
    frame = draw.Frame(width="10cm", height="3cm", x="1cm", y="1cm")
    box = draw.TextBox()
    box.addElement(text.P(text="Bees visit the flowers."))
    frame.addElement(box)
    page.addElement(frame)
    document.presentation.addElement(page)
    return _saved(document)


def odf_sheet() -> bytes:
    """A sheet with texts and a number."""
    document = OpenDocumentSpreadsheet()
    sheet = table.Table(name="Stock")
    for words, number in (("The red rose", 3), ("The white rose", 4)):
        row = table.TableRow()
        cell = table.TableCell(valuetype="string")
        cell.addElement(text.P(text=words))
        row.addElement(cell)
        value = table.TableCell(valuetype="float", value=number)
        value.addElement(text.P(text=f"{number} pieces"))
        row.addElement(value)
        sheet.addElement(row)
    document.spreadsheet.addElement(sheet)
    return _saved(document)


def table_of_rich_cells() -> bytes:
    """A workbook of another library: cells in two formats, merged ones, a picture's text, a note, a link."""
    written = io.BytesIO()
    workbook = xlsxwriter.Workbook(written)
    sheet = workbook.add_worksheet("Garden")
    bold, wrapped = workbook.add_format({"bold": True}), workbook.add_format({"text_wrap": True})
    sheet.write_rich_string("A1", "The ", bold, "gardener", " waters the roses.")
    sheet.merge_range("A2:C2", "A title over three columns", bold)
    sheet.write("A3", "A cell of two lines,\nof which this is the second.", wrapped)
    sheet.write_number("B3", 12.5)
    sheet.write_formula("C3", '=IF(B3>10,"many","few")', None, "many")
    sheet.write_url("A4", "https://example.com/", string="Read the book", tip="The book about gardens")
    sheet.write_comment("B3", "Count the roses again.")
    sheet.insert_textbox("E2", "A box beside the cells", {"description": "A box with a text"})
    sheet.set_header("&CThe garden&RPage &P")
    workbook.set_properties({"title": "The garden", "comments": "What grows where"})
    workbook.close()
    return written.getvalue()


# What LibreOffice makes documents of, and we take as text, is no document here.
_WEB_PAGE = """<!doctype html><html lang="en"><head><title>The garden</title></head><body><h1>In spring</h1>
<p>The <b>gardener</b> waters the <i>red</i> roses. <a href="https://example.com">Read the book.</a></p>
<ul><li>Feed the birds.</li><li>Feed the cat &amp; the dog.</li></ul>
<table><tr><th>Plant</th><th>Price</th></tr><tr><td>A red rose</td><td>3.50</td></tr></table>
<p lang="fr">Bonjour.</p><pre>ls -l</pre></body></html>"""
_LETTER = "Dear neighbour,\n\nthe roses are red. The cat sleeps in the shed.\n\nSee you in the garden\n"
_TABLE = 'Plant,Where it grows\nA red rose,Behind the shed\nAn old tree,"Beside the gate, on the left"\n'
_SOURCES = {"page.html": _WEB_PAGE, "letter.txt": _LETTER, "table.csv": _TABLE}

MAKERS = {
    "word.docx": word,
    "slides.pptx": slides,
    "workbook.xlsx": workbook,
    "rich.xlsx": table_of_rich_cells,
    "text.odt": odf_text,
    "slides.odp": odf_slides,
    "sheet.ods": odf_sheet,
    "book.epub": books.as_specified,
}
_CONVERSIONS = {  # what LibreOffice makes of which files
    "word.docx": ("odt", "docx", "epub", "ott", "dotx", "docm"),
    "slides.pptx": ("odp", "pptx", "otp", "potx", "ppsx"),
    "workbook.xlsx": ("ods", "xlsx", "ots", "xltx"),
    "text.odt": ("docx", "epub", "odt"),
    "sheet.ods": ("xlsx", "ods"),
    "slides.odp": ("pptx", "odp"),
    "rich.xlsx": ("ods", "xlsx"),
    "page.html": ("odt", "docx", "epub"),
    "letter.txt": ("odt:writer8", "docx:Office Open XML Text", "epub"),
    "table.csv": ("ods", "xlsx"),
}
_EXAMPLES = "odfpy==1.4.1"  # its source distribution has documents of several programs
_EXAMPLE_SUFFIXES = {".odt", ".odp", ".ods"}
_HOSTILE = "nasty.odt"  # declares entities, and is refused


def make(directory: Path, office: str | None) -> list[Path]:
    """Write all documents, and what LibreOffice makes of them; return the files."""
    for name, maker in MAKERS.items():
        (directory / name).write_bytes(maker())
    files = [directory / name for name in MAKERS]
    if office:
        for name, text in _SOURCES.items():
            (directory / name).write_text(text)
        for name, suffixes in _CONVERSIONS.items():
            converted = directory / f"by-libreoffice-{name.replace('.', '-')}"
            files += [convert(office, directory / name, suffix, converted) for suffix in suffixes]
    return [
        *files,
        *books.by_pandoc(directory / "pandoc"),
        *books.by_sphinx(directory / "sphinx"),
        *examples(directory / "odfpy"),
    ]


def examples(directory: Path) -> list[Path]:
    """Return the documents in the source distribution of odfpy."""
    command = (sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--no-binary=:all:", _EXAMPLES)
    subprocess.run([*command, "--dest", directory], check=True, timeout=300)
    found = []
    with tarfile.open(next(directory.glob("*.tar.gz"))) as archive:
        for member in archive:
            path = Path(member.name)
            if path.suffix in _EXAMPLE_SUFFIXES and path.name != _HOSTILE and (content := archive.extractfile(member)):
                (directory / path.name).write_bytes(content.read())
                found.append(directory / path.name)
    return sorted(set(found))


def convert(office: str, file: Path, suffix: str, directory: Path) -> Path:
    """Have LibreOffice write a file in another format, and return the new one."""
    command = [
        office,
        "--headless",
        f"-env:UserInstallation=file://{directory.parent.absolute()}/profile",
        "--convert-to",
        suffix,
    ]
    if file.suffix == ".html":  # as a text: a web page is written as fewer formats
        command.append("--infilter=HTML (StarWriter)")
    subprocess.run([*command, "--outdir", directory, file], check=True, capture_output=True, timeout=300)
    converted = directory / f"{file.stem}.{suffix.partition(':')[0]}"
    assert converted.exists(), f"{file} is not written as {suffix}"
    return converted


def _saved(document) -> bytes:
    written = io.BytesIO()
    (document.save if hasattr(document, "save") else document.write)(written)
    return written.getvalue()


if __name__ == "__main__":
    print(*make(Path(sys.argv[1]), "soffice"), sep="\n")
