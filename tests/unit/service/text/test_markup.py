"""What a text with markup is taken apart into."""

import pytest

from service.records import Span, TextFormat
from service.text.markup import parse
from service.text.segments import Part, Segment, Tag
from tests.fakes.parts import segments_in, source_of


def shown(text: str, text_format: TextFormat = TextFormat.HTML) -> list[str | tuple[str, ...]]:
    """The parts; of a segment its text, with the tags' sources at their places between bars."""
    parts = parse(text, text_format)
    assert source_of(parts) == text
    return [part if isinstance(part, str) else (with_tags(part),) for part in parts]


def with_tags(segment: Segment) -> str:
    text = segment.text
    for tag in reversed(segment.tags):
        text = f"{text[: tag.position]}|{tag.source}|{text[tag.position :]}"
    return text


def only_segment(parts: list[Part]) -> Segment:
    (segment,) = (part for part in parts if isinstance(part, Segment))
    return segment


@pytest.mark.parametrize(
    ("html", "parts"),
    [
        ("", []),
        (" \n", [" \n"]),
        ("Just text", [("Just text",)]),
        ("<p>One</p>\n<p>Two</p>", ["<p>", ("One",), "</p>\n<p>", ("Two",), "</p>"]),
        ("<P>One<DIV>Two</DIV>", ["<P>", ("One",), "<DIV>", ("Two",), "</DIV>"]),
        ("<ul><li>One<li>Two</ul>", ["<ul><li>", ("One",), "<li>", ("Two",), "</ul>"]),
        ("A <b>c</b> d", [("A |<b>|c|</b>| d",)]),
        ("<p> <b><i>All</i></b> </p>", ["<p> <b><i>", ("All",), "</i></b> </p>"]),
        ("<b>All</b> of <i>it</i>", [("|<b>|All|</b>| of |<i>|it|</i>|",)]),
        ("<b><i>All</i> of it</b>", ["<b>", ("|<i>|All|</i>| of it",), "</b>"]),
        ("<a><img></a> icon", ["<a><img></a> ", ("icon",)]),
        ("a  \n b <b> c</b>", [("a b |<b>|c|</b>|",)]),
        ("one<br>two", [("one |<br>|two",)]),
        ("one <br/>\n two", [("one | <br/>\n |two",)]),
        ("one<br><br>two", [("one",), "<br><br>", ("two",)]),
        ("one<br> \n<br>two", [("one",), "<br> \n<br>", ("two",)]),
        ("a <!-- b --> c", [("a |<!-- b -->| c",)]),
        ("<!doctype html><title>T</title>", ["<!doctype html><title>", ("T",), "</title>"]),
        ("a <b>c<p>d</b>", [("a |<b>|c",), "<p>", ("d",), "</b>"]),
        ("a </i> b <b>c", [("a |</i>|b |<b>|c",)]),
    ],
)
def test_blocks_are_segments_and_inline_tags_stand_in_them(html, parts):
    assert shown(html) == parts


@pytest.mark.parametrize(
    ("html", "parts"),
    [
        ("<script>if (a<b) '<p>'</script>Hi", ["<script>if (a<b) '<p>'</script>", ("Hi",)]),
        ("Hi<style>p{} </p", [("Hi",), "<style>p{} </p"]),
        ("Run <code>ls <b>-l</b></code> now", [("Run |<code>ls <b>-l</b></code>|ls -l now",)]),
        ("a<pre> b\n c</pre>d", [("a",), "<pre> b\n c</pre>", ("d",)]),
        ('By <span class="x notranslate">Acme</span> Ltd', [('By |<span class="x notranslate">Acme</span>|Acme Ltd',)]),
        ("<p translate=no>Acme</p>Ltd", ["<p translate=no>Acme</p>", ("Ltd",)]),
        (
            '<div translate="no">A <b translate="yes">dog</b> B</div>',
            ['<div translate="no">A <b translate="yes">', ("dog",), "</b> B</div>"],
        ),
        ("a<i translate=no>b<b translate=yes>c</b>d</i>e", [("a",), "<i translate=no>b<b translate=yes>", ("c",),
                                                            "</b>d</i>", ("e",)]),
        ("a<sup>[1]</sup>, b<sub>2</sub>.", [("a|<sup>[1]</sup>|, b|<sub>2</sub>|.",)]),
        ('a<sup class="r"><a href="#n">[1]</a></sup> b', [('a|<sup class="r"><a href="#n">[1]</a></sup>| b',)]),
        ("H<sub>2</sub>O", [("H|<sub>|2|</sub>|O",)]),
        ('the sea<a href="#1">[2]</a> is', [('the sea|<a href="#1">[2]</a>| is',)]),
        ('sea.<a href="#1">*</a> b', [('sea.|<a href="#1">*</a>| b',)]),
        ('alt<span class="f"><a>7</a></span>, b', [('alt|<span class="f"><a>7</a></span>|, b',)]),
        ("a <a>42</a> b<a>1234</a>", [("a |<a>|42|</a>| b|<a>|1234|</a>|",)]),
        ("see <a>[1]</a> and sea<a>[no]</a>", [("see |<a>|[1]|</a>| and sea|<a>|[no]|</a>|",)]),
        ("n<sup>th</sup> a", [("n|<sup>|th|</sup>| a",)]),
        ("the <b><sup>end</sup></b>", [("the |<b>||<sup>|end|</sup>||</b>|",)]),
        ("Hi <%= a && b %>!", [("Hi |<%= a && b %>|!",)]),
        ("<textarea>a <b></textarea>c", ["<textarea>a <b></textarea>", ("c",)]),
    ],
)  # fmt: skip
def test_what_is_not_to_be_translated_comes_back_as_it_is(html, parts):
    assert shown(html) == parts


def test_what_is_not_to_be_translated_is_shown_in_its_sentence_if_it_is_like_a_name():
    html = f"<kbd>A&amp;B</kbd> c <code></code> <code>{'x' * 99}</code> <code>a &lt; b</code> <svg>d</svg>e"
    segment = only_segment(parse(html, TextFormat.HTML))

    assert segment.text == "A&B c    e"
    assert [segment.text[slice(*tag.shown)] for tag in segment.tags] == ["A&B", "", "", "", ""]
    assert [html[slice(*segment.origin(segment.tags[0].shown))]] == ["<kbd>A&amp;B</kbd>"]


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("AT&amp;T &lt;b&gt; &quot;x&quot;", 'AT&T <b> "x"'),
        ("5&nbsp;&#8364; &#x20AC;", "5\u00a0€ €"),
        ("&copy 2024 &notit; AT&T R&D &", "© 2024 ¬it; AT&T R&D &"),
        ("5 < 6 <7 and 8 > 7", "5 < 6 <7 and 8 > 7"),
        ("if a <b then c", "if a <b then c"),
        ("x </ y", "x </ y"),
        ("na\u00efve \U0001f600", "na\u00efve \U0001f600"),
    ],
)
def test_references_and_stray_characters_are_language(html, text):
    assert only_segment(parse(html, TextFormat.HTML)).text == text


@pytest.mark.parametrize(
    ("html", "attribute", "escaped"),
    [
        ('<img alt="A &amp; B" src="x">', "A & B", "&lt; &quot; &#x27;"),
        ("<input placeholder='Your name'>", "Your name", "&lt; &quot; &#x27;"),
        ("<input placeholder=Name>", "Name", '"&lt; &quot; &#x27;"'),
        ('<p TITLE = "Hi">', "Hi", "&lt; &quot; &#x27;"),
        ('<button aria-label="Close"></button>', "Close", "&lt; &quot; &#x27;"),
    ],
)
def test_attributes_that_people_read_are_segments(html, attribute, escaped):
    parts = parse(html, TextFormat.HTML)

    segment = only_segment(parts)
    assert segment.text == attribute
    assert segment.escape("< \" '") == escaped
    assert source_of(parts) == html


def test_attribute_of_an_inline_tag_is_a_segment_in_the_tag():
    parts = parse('See <a href="/x" title="our &quot;map&quot;">here</a>.', TextFormat.HTML)

    outer, inner = segments_in(parts)
    assert outer.text == "See here."
    assert inner.text == 'our "map"'
    assert outer.tags[0].parts == ('<a href="/x" title="', inner, '">')
    assert source_of(parts)[inner.begin :].startswith(inner.source)


def test_places_of_words_are_those_in_the_request():
    html = "<p>  Fish &amp;\n  chips<br>and <b>R&amp;D</b>!</p>"
    segment = only_segment(parse(html, TextFormat.HTML))

    words = [
        Span(segment.text.index(word), segment.text.index(word) + len(word)) for word in ("Fish", "&", "chips", "R&D")
    ]

    assert segment.text == "Fish & chips and R&D!"
    assert [html[slice(*segment.origin(word))] for word in words] == ["Fish", "&amp;", "chips", "R&amp;D"]
    assert html[slice(*segment.span)] == segment.source


def test_in_xml_names_have_cases_and_every_tag_is_inline():
    assert shown("<a:p>One <B>two</b></B> &nbsp;<br>x</br> y</a:p>", TextFormat.XML) == [
        "<a:p>",
        ("One |<B>|two|</b>||</B>| |&nbsp;||<br>|x|</br>| y",),
        "</a:p>",
    ]


def pairs_of(tags: tuple[Tag, ...]) -> list[tuple[str, str]]:
    return [(tag.source, tags[tag.partner].source) for tag in tags if tag.partner is not None]


def test_codes_of_xliff_are_pairs_where_their_keys_are_the_same():
    xliff = (
        'a <bx id="1"/>b<ex id="1"/> <bpt id="2" rid="7">x</bpt>c<ept id="3" rid="7">y</ept> '
        '<sc id="4"/>d<ec startRef="4"/> e'
    )
    segment = only_segment(parse(xliff, TextFormat.XLIFF))

    assert segment.text == "a b c d e"
    assert pairs_of(segment.tags)[::2] == [
        ('<bx id="1"/>', '<ex id="1"/>'),
        ('<bpt id="2" rid="7">x</bpt>', '<ept id="3" rid="7">y</ept>'),
        ('<sc id="4"/>', '<ec startRef="4"/>'),
    ]


def test_protected_text_of_xliff_is_a_tag():
    xliff = (
        'a <mrk mtype="protected">X</mrk> <mrk translate="no">Y</mrk> <ph id="1">{0}</ph> <mrk mtype="term">b</mrk> c'
    )
    segment = only_segment(parse(xliff, TextFormat.XLIFF))

    assert segment.text == "a X Y {0} b c"
    assert [tag.source for tag in segment.tags if tag.partner is None] == [
        '<mrk mtype="protected">X</mrk>',
        '<mrk translate="no">Y</mrk>',
        '<ph id="1">{0}</ph>',
    ]
