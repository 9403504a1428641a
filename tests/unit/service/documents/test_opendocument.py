"""OpenDocument: spans of one look are one, cells with values stay, spaces and notes are written as they were."""

import pytest

from tests.fakes.packages import draft_of, open_text, packed, parts_of, shouted_part, texts_of
from tests.fakes.shouting import translation_of

_LOOKS = {"T1": 'fo:font-weight="bold" o:rsid="1"', "T2": 'fo:font-weight="bold" o:rsid="2"', "T3": 'o:rsid="3"'}
_PARENTS = {"T4": "Source_20_Text", "P1": "Preformatted_20_Text"}
STYLES = "".join(
    [
        *(
            f'<style:style style:name="{name}"><style:text-properties {one}/></style:style>'
            for name, one in _LOOKS.items()
        ),
        *(f'<style:style style:name="{name}" style:parent-style-name="{one}"/>' for name, one in _PARENTS.items()),
    ]
)


def test_letter_that_is_all_in_a_typewriter_font_is_text():
    style = (
        '<style:style style:name="Preformatted"><style:text-properties style:font-name="Courier New"/></style:style>'
    )
    code, words = '<text:p text:style-name="Preformatted">Dear cat</text:p>', "<text:p>Plain words.</text:p>"

    assert texts_of(draft_of(open_text(code, style), "odt")) == ["Dear cat"]
    assert texts_of(draft_of(open_text(code + words, style), "odt")) == ["Plain words."]


@pytest.mark.parametrize(
    "part",
    [
        '<table:table table:name="a"><table:title>{}</table:title><table:desc>{}</table:desc></table:table>',
        '<text:toc-mark text:string-value="{}" text:outline-level="1"/>',
        '<text:alphabetical-index-mark text:string-value="{}" text:key1="{}"/>',
        '<text:hidden-text text:condition="a" text:string-value="{}"/>',
        '<text:list-level-style-number text:level="1" style:num-prefix="{}" style:num-suffix=")"/>',
        '<f:button xmlns:f="urn:oasis:names:tc:opendocument:xmlns:form:1.0" f:name="a" f:label="{}" f:title="{}"/>',
    ],
)
def test_titles_entries_of_indexes_labels_of_lists_and_of_forms_are_translated(part):
    draft = draft_of(open_text(part.format("a cat", "a dog")), "odt")

    assert part.format("A CAT", "A DOG") in shouted_part(draft, "content.xml")


def span(name: str, text: str) -> str:
    return f'<text:span text:style-name="{name}">{text}</text:span>'


def test_spans_that_differ_in_the_number_of_a_revision_are_one():
    body = f"<text:p>The {span('T1', 'gar')}{span('T2', 'dener')} wa{span('T3', 'ters')} the roses.</text:p>"
    draft = draft_of(open_text(body, STYLES), "odt")

    assert texts_of(draft) == ['The <g id="1">gardener</g> waters the roses.']
    assert f"<text:p>THE {span('T1', 'GARDENER')} WATERS THE ROSES.</text:p>" in shouted_part(draft, "content.xml")


@pytest.mark.parametrize(
    ("inside", "unit", "written"),
    [
        (
            "<text:ruby><text:ruby-base>The cat</text:ruby-base><text:ruby-text>x</text:ruby-text></text:ruby> sleeps.",
            "The cat sleeps.",
            "THE CAT SLEEPS.",
        ),
        (f"Open {span('T4', 'a.ini')}.", 'Open <ph id="1">a.ini</ph>.', f"OPEN {span('T4', 'a.ini')}."),
        (
            'One<text:tab/>two<text:line-break/>three<text:s text:c="3"/>end',
            "One\ttwo\nthree   end",
            'ONE<text:tab/>TWO<text:line-break/>THREE<text:s text:c="3"/>END',
        ),
        ("a &amp;\n  b", "a &amp; b", "A &amp; B"),
        (
            "A cat<text:note><text:note-body><text:p>1</text:p></text:note-body></text:note> sleeps",
            'A cat<x id="1"/> sleeps',
            "A CAT<text:note><text:note-body><text:p>1</text:p></text:note-body></text:note> SLEEPS",
        ),
        (
            "Page <text:page-number>3</text:page-number>",
            'Page <ph id="1">3</ph>',
            "PAGE <text:page-number>3</text:page-number>",
        ),
        (
            f'See <text:a href="a">{span("T1", "cats")} and dogs</text:a>',
            'See <g id="1"><g id="2">cats</g> and dogs</g>',
            f'SEE <text:a href="a">{span("T1", "CATS")} AND DOGS</text:a>',
        ),
        (
            f"{span('T1', 'A <text:a>cat</text:a>')} sleeps",
            '<g id="1">A </g><g id="2">cat</g> sleeps',
            f"{span('T1', 'A ')}<text:a>{span('T1', 'CAT')}</text:a> SLEEPS",
        ),
    ],
)
def test_what_is_in_a_line_comes_back(inside, unit, written):
    draft = draft_of(open_text(f"<text:p>{inside}</text:p>", STYLES), "odt")

    assert texts_of(draft) == [unit]
    assert f"<text:p>{written}</text:p>" in shouted_part(draft, "content.xml")


def test_code_and_deleted_text_stay():
    code = '<text:p text:style-name="P1">if cat: sleep</text:p>'
    deleted = "<text:tracked-changes><text:p>An old sentence.</text:p></text:tracked-changes>"

    draft = draft_of(open_text(code + deleted + "<text:p>Plain words.</text:p>", STYLES), "odt")
    assert texts_of(draft) == ["Plain words."]


def test_cells_with_values_and_texts_that_rules_know_stay_and_notes_do_not():
    note = "<office:annotation><text:p>A note</text:p></office:annotation>"
    cells = (
        '<table:table-cell office:value-type="string"><text:p>A rose</text:p></table:table-cell>'
        f'<table:table-cell office:value-type="date">{note}<text:p>12 May</text:p></table:table-cell>'
        '<table:table-cell office:value-type="string"><text:p>Yes</text:p></table:table-cell>'
        '<table:table-cell table:formula="of:=IF([.A1]=&quot;Yes&quot;;1)" office:value-type="string">'
        "<text:p>Sum</text:p></table:table-cell>"
    )

    assert texts_of(draft_of(open_text(cells), "ods")) == ["A rose", "A note"]


def test_language_and_country_become_those_of_the_target():
    properties = '<style:style><style:text-properties fo:language="en" fo:country="US"/></style:style>'
    other = '<style:style><style:text-properties fo:language="fr" fo:country="FR"/></style:style>'
    content = open_text("<text:p>a</text:p>", properties * 2 + other)

    written = shouted_part(draft_of(content, "odt", "de"), "content.xml")

    assert written.count('fo:language="de" fo:country="DE"') == 2
    assert 'fo:language="fr" fo:country="FR"' in written


def test_pages_contents_and_title_of_a_book_are_translated_and_code_stays():
    head = '<?xml version="1.0"?><!DOCTYPE html PUBLIC "a" "b"><html lang="en" xml:lang="en">'
    content = packed(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": "<c/>",
            "a/book.opf": '<p xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>A cat</dc:title>'
            "<dc:language>en</dc:language><dc:description><![CDATA[<p>A cat</p>]]></dc:description></p>",
            "a/one.xhtml": f"{head}<body><p>The <b>cat</b></p><pre>ls</pre><img alt='A cat'/></body></html>",
            "a/toc.ncx": '<!DOCTYPE ncx PUBLIC "a" "b"><n xmlns="http://www.daisy.org/z3986/2005/ncx/"><text>One</text></n>',
        }
    )
    draft = draft_of(content, "epub", "de")

    assert [unit.part for unit in draft.units] == ["a/book.opf", "a/one.xhtml", "a/toc.ncx"]
    translated = draft.write([translation_of(unit.text.replace("cat", "dog")) for unit in draft.units])
    parts = parts_of(translated.content)
    assert parts["a/book.opf"].endswith(
        "<dc:title>A dog</dc:title><dc:language>de-DE</dc:language>"
        "<dc:description><![CDATA[<p>A cat</p>]]></dc:description></p>"
    )
    assert parts["a/one.xhtml"] == (
        head.replace('"en"', '"de-DE"') + "<body><p>The <b>dog</b></p><pre>ls</pre><img alt='A dog'/></body></html>"
    )


def test_what_the_package_of_a_book_calls_its_places_is_translated_and_its_language_is_the_target():
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/" xml:lang="en-GB">'
        '<dc:title xml:lang="en">A cat</dc:title><dc:subject xml:lang="fr">chat</dc:subject>'
        '<guide><reference type="toc" title="Contents" href="a.xhtml"/></guide></package>'
    )
    book = packed({"META-INF/container.xml": "<c/>", "a.opf": package})

    written = shouted_part(draft_of(book, "epub", "de"), "a.opf")

    assert 'xml:lang="de-DE"><dc:title xml:lang="de-DE">A CAT<' in written
    assert '<dc:subject xml:lang="fr">CHAT<' in written
    assert '<reference type="toc" title="CONTENTS" href="a.xhtml"/>' in written
