"""Office files: what is one sentence, what comes back as it is, and how text is written."""

import re

import pytest

from tests.fakes.packages import (
    CUT_SENTENCE,
    draft_of,
    office,
    packed,
    parts_of,
    run,
    sheet_part,
    shouted_part,
    texts_of,
    word,
)
from tests.fakes.shouting import echoed, translation_of

DOCUMENT = "word/document.xml"


def body_of(content: str) -> str:
    found = re.search("<w:body>(.*)</w:body>", content, re.DOTALL)
    assert found
    return found[1]


def shouted_body(body: str) -> str:
    return body_of(shouted_part(draft_of(word(body), "docx"), DOCUMENT))


def units(body: str) -> list[str]:
    return texts_of(draft_of(word(body), "docx"))


def test_sentence_that_word_cut_into_ten_runs_is_one_segment_and_its_bold_word_is_bold():
    assert CUT_SENTENCE.count("<w:r>") + CUT_SENTENCE.count("<w:r ") == 10
    assert units(CUT_SENTENCE) == ['The <g id="1">gardener</g> wa<g id="2">te</g>rs the roses.']

    assert shouted_body(CUT_SENTENCE) == (
        '<w:p w:rsidR="1">'
        + run("THE ")
        + run("GARDENER", '<w:b/><w:lang w:val="en-US"/>')
        + run(" WA")
        + '<w:ins w:id="1">'
        + run("TE")
        + "</w:ins>"
        + run("RS THE ROSES.")
        + "</w:p>"
    )


def test_letters_that_are_set_closer_are_in_one_piece_and_a_title_that_is_set_wide_stays_so():
    runs = [
        run(text, f'<w:b/><w:spacing w:val="{number}"/><w:w w:val="99"/>') for number, text in enumerate(["ga", "te"])
    ]

    assert units(f"<w:p>{''.join(runs)}{run(' of')}</w:p>") == ['gate<g id="1"> of</g>']
    wide = '<w:spacing w:val="60"/>'
    assert shouted_body(f"<w:p>{run('Title', wide)}</w:p>") == f"<w:p>{run('TITLE', wide)}</w:p>"


def test_text_with_its_reading_is_a_part_of_its_sentence():
    ruby = f"<w:ruby><w:rt>{run('reading')}</w:rt><w:rubyBase>{run('The cat')}</w:rubyBase></w:ruby>"

    assert units(f"<w:p><w:r>{ruby}</w:r>{run(' sleeps.')}</w:p>") == ["The cat sleeps."]
    assert shouted_body(f"<w:p><w:r>{ruby}</w:r>{run(' sleeps.')}</w:p>") == f"<w:p>{run('THE CAT SLEEPS.')}</w:p>"


@pytest.mark.parametrize("attribute", ["tblCaption", "tblDescription", "helpText", "statusText"])
def test_what_describes_a_table_or_a_field_of_a_form_is_translated(attribute):
    assert shouted_body(f'<w:x><w:{attribute} w:val="a cat"/></w:x>') == f'<w:x><w:{attribute} w:val="A CAT"/></w:x>'


@pytest.mark.parametrize(
    ("label", "written"), [("Chapter %1:", "CHAPTER %1:"), ("o", "o"), ("%1.", "%1."), ("\uf0b7", "\uf0b7")]
)
def test_of_the_labels_of_lists_those_with_words_are_translated(label, written):
    assert shouted_body(f'<w:lvlText w:val="{label}"/>') == f'<w:lvlText w:val="{written}"/>'


def test_charts_of_newer_kinds_are_translated():
    space = 'xmlns:cx="http://schemas.microsoft.com/office/drawing/2014/chartex"'
    part = f"<cx:chartSpace {space}><cx:pt>12</cx:pt><cx:pt>a cat</cx:pt><cx:v>a title</cx:v></cx:chartSpace>"
    draft = draft_of(office(xl__charts__chartEx1=part), "xlsx")

    assert shouted_part(draft, "xl/charts/chartEx1.xml") == part.replace("a cat", "A CAT").replace("a title", "A TITLE")


def test_format_that_most_of_a_paragraph_has_needs_no_tag():
    bold, italic = run("The whole sentence is bold, ", "<w:b/>"), run("one word ", "<w:b/><w:i/>")

    assert units(f"<w:p>{bold}{italic}</w:p>") == ['The whole sentence is bold, <g id="1">one word </g>']
    assert shouted_body(f"<w:p>{bold}{italic}</w:p>").count("<w:b/>") == 2


@pytest.mark.parametrize(
    ("inside", "unit"),
    [
        ('<w:bookmarkStart w:id="1"/><w:bookmarkEnd w:id="1"/>' + run("A cat."), "A cat."),
        (run("A cat.") + '<w:r><w:commentReference w:id="1"/></w:r>', "A cat."),
        (run("A") + '<w:bookmarkStart w:id="1"/><w:bookmarkEnd w:id="1"/>' + run(" cat."), 'A<x id="1"/> cat.'),
        (run("A cat") + '<w:r><w:footnoteReference w:id="2"/></w:r>' + run(" sleeps."), 'A cat<x id="1"/> sleeps.'),
        (run("A") + "<w:del>" + run("x").replace("w:t", "w:delText") + "</w:del>" + run(" cat."), 'A<x id="1"/> cat.'),
        ('<w:hyperlink w:anchor="a">' + run("A cat.", "<w:u/>") + "</w:hyperlink>", "A cat."),
        (
            run("See ") + '<w:hyperlink w:anchor="a">' + run("cats", "<w:u/>") + "</w:hyperlink>",
            'See <g id="1">cats</g>',
        ),
        ('<w:fldSimple w:instr="HYPERLINK a">' + run("A cat.") + "</w:fldSimple>", "A cat."),
        (run("Page ") + '<w:fldSimple w:instr="PAGE">' + run("3") + "</w:fldSimple>", 'Page <ph id="1">3</ph>'),
        (
            "<w:sdt><w:sdtPr><w:id/></w:sdtPr><w:sdtContent>" + run("A") + "</w:sdtContent></w:sdt>" + run(" cat"),
            '<g id="1">A</g> cat',
        ),
        (
            run("It is ")
            + "<w:sdt><w:sdtPr><w:date/></w:sdtPr><w:sdtContent>"
            + run("May 4")
            + "</w:sdtContent></w:sdt>",
            'It is <ph id="1">May 4</ph>',
        ),
        (run("One") + '<w:r><w:br w:type="page"/></w:r>' + run("two"), 'One<x id="1" ctype="lb"/>two'),
        (run("One") + "<w:r><w:br/></w:r>" + run("two") + "<w:r><w:tab/></w:r>" + run("three"), "One\ntwo\tthree"),
        (run("Hidden words.", "<w:vanish/>"), "Hidden words."),
        (run("Open ") + run("a.ini", '<w:rFonts w:ascii="Courier New"/>'), 'Open <ph id="1">a.ini</ph>'),
        (run("Open ") + run("a.ini", '<w:rStyle w:val="HTMLCode"/>'), 'Open <ph id="1">a.ini</ph>'),
        ("<m:oMath xmlns:m='m'><m:r/></m:oMath>" + run(" is x"), " is x"),
    ],
)
def test_what_is_in_a_line_is_a_tag_and_comes_back(inside, unit):
    body = f"<w:p>{inside}</w:p>"

    assert units(body) == [unit]
    written = shouted_body(body)
    elements = re.compile(r"<w:(?!r>|t |/)[^<>]*>")
    assert sorted(elements.findall(written)) == sorted(elements.findall(body))
    assert "".join(re.findall(r"<w:t [^>]*>([^<]*)", written)) == re.sub("<[^<>]*>|\n|\t", "", unit_shouted(unit))


def unit_shouted(unit: str) -> str:
    return "".join(
        part if part.startswith(("<ph", "a.ini", "May 4")) else part.upper() for part in re.split("(<ph.*?</ph>)", unit)
    )


def field(code: str, result: str) -> str:
    chars = {kind: f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end")}
    instruction = f"<w:r><w:instrText>{code}</w:instrText></w:r>"
    return chars["begin"] + instruction + chars["separate"] + result + chars["end"]


def test_text_of_a_link_that_is_a_field_is_translated_and_that_of_another_field_is_not():
    page, link = field("PAGEREF a", run("12")), field("HYPERLINK b", run("a book"))
    body = f"<w:p>{run('On page ')}{page}{run(' of ')}{link}</w:p>"

    assert units(body) == ['On page <ph id="1">12</ph> of <g id="2">a book</g>']
    written = shouted_body(body)
    assert written.index("PAGEREF a") < written.index(">12<") < written.index("HYPERLINK b") < written.index(">A BOOK<")
    assert (written.count("fldChar "), written.count('"end"')) == (6, 2)


@pytest.mark.parametrize("font", ["Arial Unicode MS", "Libre Barcode 39", "Consolidated Sans", "American Typewriter"])
def test_fonts_whose_names_look_like_code_are_for_words(font):
    fonts = f'<w:rFonts w:ascii="{font}"/>'
    draft = draft_of(word(f"<w:p>{run('The cat sleeps.', fonts)}</w:p><w:p>{run('Plain words.')}</w:p>"), "docx")

    assert texts_of(draft) == ["The cat sleeps.", "Plain words."]


@pytest.mark.parametrize("style", ["HTMLCode", "SourceCode", "Code", "codeblock", "PreformattedText"])
def test_style_for_code_stays_unless_the_whole_document_is_in_it(style):
    code = f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr>{run("The cat sleeps.")}</w:p>'

    assert texts_of(draft_of(word(f"{code}<w:p>{run('Plain words.')}</w:p>"), "docx")) == ["Plain words."]
    assert texts_of(draft_of(word(code), "docx")) == ["The cat sleeps."]


def test_lines_of_a_table_of_contents_are_translated_though_its_field_ends_elsewhere():
    begin = '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>TOC</w:instrText></w:r>'
    end = '<w:p><w:r><w:fldChar w:fldCharType="end"/></w:r></w:p>'
    body = f"<w:p>{begin}{run('Cats')}<w:r><w:tab/></w:r>{field('PAGEREF a', run('3'))}</w:p>{end}"

    assert units(body) == ['Cats\t<ph id="1">3</ph>']
    assert shouted_body(body).count("fldChar ") == 5


def test_text_box_in_a_sentence_is_a_unit_of_its_own_and_both_are_written():
    box = f"<w:pict><o:box>{'<w:p>' + run('In the box.') + '</w:p>'}</o:box></w:pict>"
    body = f"<w:p>{run('Beside ')}<w:r>{box}</w:r>{run('it.')}</w:p>"

    assert units(body) == ["In the box.", 'Beside <x id="1"/>it.']
    written = shouted_body(body)
    assert (
        written.index("BESIDE ") < written.index("<o:box><w:p>") < written.index("IN THE BOX.") < written.index("IT.")
    )


def test_large_first_letter_is_a_part_of_its_sentence():
    frame = '<w:pPr><w:framePr w:dropCap="drop" w:lines="3"/></w:pPr>'
    body = f"<w:p>{frame}{run('T', '<w:sz/>')}</w:p><w:p>{run('he ')}{run('cat', '<w:b/>')}{run(' sleeps.')}</w:p>"
    draft = draft_of(word(body), "docx")

    assert texts_of(draft) == ['The <g id="1">cat</g> sleeps.']
    written = draft.write([translation_of('Es schläft die <g id="1">Katze</g>.')])
    assert re.findall("<w:t[^>]*>([^<]*)", parts_of(written.content)[DOCUMENT]) == ["E", "s schläft die ", "Katze", "."]
    written = draft.write([translation_of('<g id="1">Katze</g>.')])
    assert len(written.notices) == 1


def test_alternative_text_inside_a_sentence_is_translated_with_it():
    picture = '<w:drawing><wp:docPr id="1" descr="A &quot;cat&quot;&#10;sleeps" name="Picture 1"/></w:drawing>'
    body = f"<w:p>{run('Look: ')}<w:r>{picture}</w:r>{run(' a cat')}</w:p>"

    assert units(body) == ['A "cat"\nsleeps', 'Look: <x id="1"/> a cat']
    assert 'descr="A &quot;CAT&quot;&#10;SLEEPS" name="Picture 1"' in shouted_body(body)


def test_translation_that_loses_a_tag_leaves_its_paragraph_and_says_so():
    content = word(f"<w:p>{run('A ')}{run('cat', '<w:b/>')}</w:p><w:p>{run('Two.')}</w:p>")
    written = draft_of(content, "docx").write([translation_of("lost"), translation_of("Zwei.")])

    assert [(notice.part, notice.line) for notice in written.notices] == [(DOCUMENT, 1)]
    assert body_of(parts_of(written.content)[DOCUMENT]).endswith(f"<w:p>{run('Zwei.')}</w:p>")


def test_language_of_the_text_becomes_that_of_the_translation_and_other_languages_stay():
    lang = '<w:lang w:val="{}" w:eastAsia="zh-CN"/>'
    body = "".join(f"<w:p>{run('a', lang.format(code))}</w:p>" for code in ("en-US", "en-GB", "fr-FR"))
    core = '<c xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:language>en</dc:language><dc:title>A cat</dc:title></c>'
    content = packed({**parts_of(word(body)), "docProps/core.xml": core})

    def said(target: str) -> list[str]:
        written = parts_of(echoed(draft_of(content, "docx", target)).content)[DOCUMENT]
        return re.findall(r'w:(?:val|eastAsia)="([\w-]+)"', written)

    assert said("de") == ["de-DE", "zh-CN", "de-DE", "zh-CN", "fr-FR", "zh-CN"]
    assert said("ja") == ["en-US", "ja-JP", "en-GB", "ja-JP", "fr-FR", "ja-JP"]
    assert said("") == ["en-US", "zh-CN", "en-GB", "zh-CN", "fr-FR", "zh-CN"]
    written = shouted_part(draft_of(content, "docx", "pt-PT"), "docProps/core.xml")
    assert "<dc:language>pt-PT</dc:language><dc:title>A CAT</dc:title>" in written


def test_prefixes_do_not_matter():
    strict = "http://purl.oclc.org/ooxml/wordprocessingml/main"
    document = f'<d xmlns="{strict}"><p><r><rPr><b/></rPr><t>A </t></r><r><t>fat cat</t></r></p></d>'
    draft = draft_of(office(word__document=document), "docx")

    assert texts_of(draft) == ['<g id="1">A </g>fat cat']
    assert '<r><rPr><b/></rPr><t xml:space="preserve">A </t></r>' in shouted_part(draft, DOCUMENT)


def test_slide_keeps_fields_and_breaks_and_leaves_placeholders_of_masters():
    space = "http://schemas.openxmlformats.org/{}/2006/main"
    spaces = f'xmlns:a="{space.format("drawingml")}" xmlns:p="{space.format("presentationml")}"'
    line = '<a:p><a:r><a:rPr lang="en-US" dirty="0"/><a:t>One</a:t></a:r><a:br/>'
    line += '<a:r><a:rPr lang="en-GB"/><a:t>two </a:t></a:r>'
    line += '<a:fld id="x" type="slidenum"><a:t>3</a:t></a:fld><a:endParaRPr/></a:p>'
    placeholder = f"<p:sp><p:nvPr><p:ph/></p:nvPr>{line}</p:sp>"
    content = office(
        ppt__slides__slide1=f"<a {spaces}>{placeholder}</a>",
        ppt__slideMasters__m=f"<a {spaces}>{placeholder}{line}</a>",
    )
    draft = draft_of(content, "pptx")

    assert texts_of(draft) == ['One\ntwo <ph id="1">3</ph>'] * 2
    written = shouted_part(draft, "ppt/slides/slide1.xml")
    assert "<a:t>ONE</a:t></a:r><a:br></a:br><a:r><a:t>TWO </a:t></a:r><a:fld" in written
    assert written.endswith("<a:endParaRPr/></a:p></p:sp></a>")


def test_sheet_keeps_numbers_formulas_and_what_these_know_texts_by():
    strings = ["The red rose", "Yes", "Plant", "No", "12.5", "open", "Rich"]
    items = "".join(f"<si><t>{text}</t></si>" for text in strings[:-1])
    items += "<si><r><rPr><b/></rPr><t>Rich </t></r><r><t>text</t></r><rPh><t>x</t></rPh></si>"
    formulas = '<c t="str"><f>IF(A1="Yes",1)</f><v>Sum</v></c>'
    formulas += '<dataValidation prompt="Choose"><formula1>"No,open"</formula1></dataValidation>'
    header = (
        '<headerFooter><oddHeader>&amp;LStock&amp;CPage &amp;P of &amp;"Arial,Bold"roses</oddHeader></headerFooter>'
    )
    inline = '<c t="inlineStr"><is><t>Inline</t></is></c>'
    content = office(
        xl__sharedStrings=sheet_part("sst", items),
        xl__worksheets__sheet1=sheet_part("worksheet", formulas + inline + header),
        xl__tables__table1=sheet_part("table", '<tableColumn id="1" name="Plant"/>'),
        xl__comments1=sheet_part("comments", "<text><r><t>A note</t></r></text>"),
    )
    draft = draft_of(content, "xlsx")

    assert texts_of(draft) == [
        "The red rose", 'Rich <g id="1">text</g>', "Choose", "Inline", "Stock", "Page ", " of ", "roses", "A note",
    ]  # fmt: skip
    strings_written = shouted_part(draft, "xl/sharedStrings.xml")
    assert '<si><t xml:space="preserve">THE RED ROSE</t></si><si><t>Yes</t></si>' in strings_written
    assert (
        '<si><r><rPr><b/></rPr><t xml:space="preserve">RICH </t></r><r><t xml:space="preserve">TEXT</t></r></si>'
        in strings_written
    )
    sheet = shouted_part(draft, "xl/worksheets/sheet1.xml")
    assert '<c t="str"><f>IF(A1="Yes",1)</f><v>Sum</v></c>' in sheet
    assert '&amp;LSTOCK&amp;CPAGE &amp;P OF &amp;"Arial,Bold"ROSES' in sheet
