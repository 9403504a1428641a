"""Plain text, HTML and XML: pieces for the server, and what stands between them."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.documents import markup_files
from service.documents.markup_files import PIECE, read_html, read_plain, read_xml
from service.records import TextFormat
from tests.fakes.shouting import echoed, shouted


@pytest.mark.parametrize(
    ("source", "units"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\nb\n\nc\n", ["a\nb\n", "c\n"]),
        ("\n\n  a\r\n\r\n\tb\r\n", ["  a\r\n", "\tb\r\n"]),
        ("a\n \t\nb", ["a\n", "b"]),
        ("1\n\n--\n\na\n", ["a\n"]),
    ],
)
def test_a_unit_of_plain_text_is_a_paragraph(source, units):
    draft = read_plain(source)

    assert [unit.text for unit in draft.units] == units
    assert {unit.format for unit in draft.units} <= {TextFormat.PLAIN}
    assert shouted(draft).content == source.upper()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("line", "is_cut_after"),
    [
        ("The cat number 17 sleeps.", "."),
        ("“The cat sleeps.”", "”"),
        ("the cat sleeps in line 17", "7"),  # no line ends a sentence
        ("- Katzen schlafen gern in Zeile 17", "7"),
        ("猫は寝る。", "。"),
    ],
)
def test_a_long_paragraph_is_cut_where_a_line_ends(line, end, is_cut_after):
    source = f"{line}{end}" * 1_000
    units = [unit.text for unit in read_plain(source).units]

    assert "".join(units) == source
    assert max(map(len, units)) <= PIECE + 1
    assert [unit for unit in units if not unit.endswith(is_cut_after + end)] == []
    assert shouted(read_plain(source)).content == source.upper()


@pytest.mark.parametrize(
    ("sentence", "end"),
    [("The cat sleeps, or so it says. ", ". "), ("猫は寝る。", "。"), ("Schläft die Katze?  ", "?  ")],
)
def test_a_long_line_is_cut_where_a_sentence_ends(sentence, end):
    source = sentence * 1_000
    units = [unit.text for unit in read_plain(source).units]

    assert "".join(units) == source
    assert max(map(len, units)) <= PIECE
    assert [unit for unit in units if not unit.endswith(end)] == []


def test_wrapped_prose_is_cut_between_sentences_not_in_the_middle_of_one():
    source = "A sentence that goes on and on, until its line is full,\nand then a bit further. It was short. " * 100
    units = [unit.text for unit in read_plain(source).units]

    assert [unit for unit in units if not unit.endswith(". ")] == []


@pytest.mark.parametrize("text", ["x" * 9_999, "e\u0301" * 3_000, "👩\u200d🚀a" * 2_000, "word " * 3_000])
def test_text_without_an_end_is_cut_all_the_same_and_between_its_characters(text):
    units = [unit.text for unit in read_plain("a" + text).units]

    assert "".join(units) == "a" + text
    assert max(map(len, units)) <= PIECE
    assert [unit[0] for unit in units if unit[0] in "\u0301\u200d🚀"] == []


def test_short_html_is_one_unit():
    (unit,) = read_html("<!DOCTYPE html>\n<p>a</p><p>b</p>\n").units

    assert (unit.text, unit.format, unit.line) == ("<!DOCTYPE html>\n<p>a</p><p>b</p>\n", TextFormat.HTML, 1)


def test_long_html_is_cut_between_blocks():
    source = "<body>" + "<p>words <b>and</b> words</p>\n" * 400 + "</body>"
    units = [unit.text for unit in read_html(source).units]

    assert "".join(units) == source
    assert max(map(len, units)) <= PIECE
    assert all(after.lstrip().startswith(("<p>", "</body>")) for _, after in pairwise(units))


@pytest.mark.parametrize(
    "literal",
    ["<pre>{}</pre>", '<div translate="no">{}</div>', '<div class="notranslate">{}</div>', "<script>{}</script>"],
)
def test_html_that_stays_as_it_is_is_not_cut(literal):
    inner = "<p>x</p>" * PIECE
    units = [unit.text for unit in read_html("<p>a</p>" + literal.format(inner) + "<p>b</p>").units]

    assert [unit for unit in units if "x" in unit and not (literal.split("{}")[0] in unit and inner in unit)] == []


# Name, source, contents that are units.
XML = [
    ("root with text", "<a>b</a>", ["b"]),
    ("children", "<r><a>b</a><a>c</a></r>", ["b", "c"]),
    ("inline elements", "<r><p>a <b>c</b> d</p></r>", ["a <b>c</b> d"]),
    ("element without text around", "<r><p><b>c</b></p></r>", ["c"]),
    ("declaration", '<?xml version="1.0"?>\n<!DOCTYPE r>\n<r>\n  <a>b</a>\n</r>\n', ["b"]),
    ("own entity", '<!DOCTYPE r [<!ENTITY e "x">]>\n<r><a>&e; b</a><a>&e;</a></r>', ["&e; b"]),
    ("numbers", "<r><a>1</a><b>2 c</b></r>", ["2 c"]),
    ("attributes", '<r><a t="x > y">b</a></r>', ["b"]),
    ("empty", "<r><a/><b></b></r>", []),
    ("comments", "<r><!-- x --><a>b<!-- y --></a></r>", ["b<!-- y -->"]),
    ("CDATA", "<r><a><![CDATA[b <c>]]></a></r>", []),
    ("not to be translated", '<r><a translate="no">b</a><a><b>c</b></a></r>', ["c"]),
    ("nothing inside translated", '<r translate="no"><a>b</a></r>', []),
    ("Android", '<resources><string name="x">b <xliff:g xmlns:xliff="u">%s</xliff:g></string></resources>', None),
    ("not translatable", '<resources><string translatable="false">b</string></resources>', []),
    ("references", "<r><a>b &amp; c</a><a>&#955;&amp;</a></r>", ["b &amp; c"]),
    ("byte order mark", "\ufeff<r>ä</r>", ["ä"]),
    ("prefixes", '<x:r xmlns:x="u"><x:a>b</x:a></x:r>', ["b"]),
]


@pytest.mark.parametrize(("source", "units"), [case[1:] for case in XML], ids=[case[0] for case in XML])
def test_a_unit_of_xml_is_the_content_of_an_element_with_text(source, units):
    draft = read_xml(source)

    if units is not None:
        assert [unit.text for unit in draft.units] == units
    assert {unit.format for unit in draft.units} <= {TextFormat.XML}
    assert echoed(draft).content == source
    assert len(shouted(draft).content) == len(source)


@pytest.mark.parametrize("source", ["", "a", "<a>", "<a></b>", "<a>&nope;</a>", "<a/><b/>"])
def test_what_is_no_well_formed_xml_is_refused(source):
    with pytest.raises(ValueError, match="no well-formed XML"):
        read_xml(source)


def test_entities_of_a_file_are_not_expanded():
    entities = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 10))
    source = f'<!DOCTYPE r [<!ENTITY e0 "lol">{entities}]><r>a &e9;</r>'

    assert [unit.text for unit in read_xml(source).units] == ["a &e9;"]


_TAGS = st.sampled_from(
    ["<p>", "</p>", "<b>", "</b>", "<pre>", "</pre>", "a", " b ", "\n", "<", "&amp;", "<!--", "-->", "<br>"]
)


@given(st.lists(_TAGS, max_size=40).map("".join), st.sampled_from([1, 5, 2_000]))
@settings(max_examples=150, deadline=None)
def test_every_file_comes_back_as_it_was(source, piece):
    old, markup_files.PIECE = markup_files.PIECE, piece
    try:
        drafts = [read_html(source), read_plain(source)]
    finally:
        markup_files.PIECE = old

    assert [echoed(draft).content for draft in drafts] == [source, source]
