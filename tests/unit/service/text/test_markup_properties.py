"""What holds of any text: nothing is lost, tags come back once and nested, and time grows with the length alone.

pytest --hypothesis-profile=thorough tests/unit/service/text/test_markup_properties.py    # 20,000 examples each
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.records import Link, TextFormat
from service.text.alignment import words_of
from service.text.markup import parse
from service.text.segments import Segment, split
from service.text.tag_placement import is_well_formed, place_tags
from tests.fakes.parts import segments_in, source_of

FORMATS = st.sampled_from(TextFormat)
WORDS = st.sampled_from(
    ["one", "two", "drei", "&amp;", "&nbsp;", "&x;", "don't", ".", ",", "!", "&lt;", "\U0001f600", "\u4e00\u4e8c"]
)
SPACES = st.sampled_from(["", " ", " ", " ", "\n  "])
PAIRS = st.sampled_from(
    ["b", "i", "a href='x'", "span lang=en", "g id='1'", "em title='Two words'", "code", "p", "div", "li"]
)
ALONE = st.sampled_from(["<br>", "<img alt=cat>", "<x id='1'/>", "<!-- c -->", "<wbr>", "<bx id='7'/>", "<ex id='7'/>"])
BROKEN = st.one_of(
    st.sampled_from(
        ["<", ">", "</b>", "<b>", "<b", "</", "<!--", "-->", "<![CDATA[", "]]>", "<?", "?>", "<!", '"', "'"]
    ),
    st.sampled_from(
        ["=", "<p", "<script>", "</script>", "&", "&#", "&#0;", "<pre>", "<br>", "x", "<a x='", "<i class=x>"]
    ),
    st.sampled_from(["\x00", "\u00a0", "\r\n", " ", "<i translate=no>", "<b translate=yes>"]),
)


def element(content: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(PAIRS, content).map(lambda both: f"<{both[0]}>{both[1]}</{both[0].split()[0]}>")


TREES = st.recursive(
    st.one_of(WORDS, SPACES, ALONE),
    lambda inner: st.one_of(element(inner), st.lists(st.one_of(inner, SPACES), max_size=6).map("".join)),
    max_leaves=25,
)
TEXTS = st.one_of(TREES, st.text(), st.lists(BROKEN, max_size=30).map("".join))


def segments_of(text: str, text_format: TextFormat) -> list[Segment]:
    return list(segments_in(parse(text, text_format)))


def assert_sound(segment: Segment, text: str) -> None:
    """The segment stands where it says, and so do its tags, words and whatever is in its tags."""
    assert text[slice(*segment.span)] == segment.source
    assert segment.text
    assert segment.text == segment.text.strip()
    assert [tag.position for tag in segment.tags] == sorted(tag.position for tag in segment.tags)
    for index, tag in enumerate(segment.tags):
        assert 0 <= tag.position <= len(segment.text)
        assert text[tag.begin : tag.end] == tag.source
        assert tag.partner is None or segment.tags[tag.partner].partner == index
        assert (
            not tag.parts or "".join(part if isinstance(part, str) else part.source for part in tag.parts) == tag.source
        )
    assert segment.offsets is None or list(segment.offsets) == sorted(segment.offsets)
    assert segment.offsets is None or len(segment.offsets) == len(segment.text)
    for word in words_of(segment.text):
        begin, end = segment.origin(word)
        assert segment.begin <= begin < end <= segment.span.end


@given(TEXTS, FORMATS)
def test_parts_are_the_text_and_segments_know_their_places(text, text_format):
    parts = parse(text, text_format)

    assert source_of(parts) == text
    for segment in segments_in(parts):
        assert_sound(segment, text)


ADVERSARIAL = {
    "less than": "<" * 100_000,
    "comments": "<!--" * 25_000,
    "declarations": "<!x" * 33_000,
    "instructions": "<?" * 50_000,
    "sections": "<![CDATA[" * 11_000,
    "document types": "<!DOCTYPE[" * 10_000,
    "tags that never end": "<a " * 33_000,
    "quotes that never end": "<a x=\"'\" y='" * 9_000 + ">",
    "crossing quotes": '<a x="' * 16_000 + " y='>' \" y='>'",
    "attributes": "<a " + "x= " * 33_000 + ">",
    "end tags": "</" * 50_000,
    "stray end tags": "<a>" * 10_000 + "</b>" * 10_000,
    "crossing pairs": "<a>x<b>y" * 5_000 + "</a></b>" * 5_000,
    "deep": "<b>" * 10_000 + "x" + "</b>" * 10_000,
    "deep blocks": "<div>" * 10_000 + "x" + "</div>" * 10_000,
    "deep and untouched": "<div translate=no>x" * 3_000 + "<b translate=yes>y",
    "deep notes": "<sup>" * 30_000 + "x" + "</sup>" * 30_000,
    "templates that never end": "<%" * 300_000,
    "scripts": "<script>" * 12_000,
    "references": "&" * 100_000,
    "half references": "&a" * 50_000,
    "breaks": "x<br>" * 20_000,
    "space": "<a" + " " * 100_000,
    "titles": "<a title='x'>y</a> " * 5_000,
}  # fmt: skip


@pytest.mark.timeout(60)  # quadratic time is minutes; linear time is less than a second
@pytest.mark.parametrize(
    "text_format",
    [TextFormat.HTML, *(pytest.param(one, marks=pytest.mark.thorough) for one in (TextFormat.XML, TextFormat.XLIFF))],
)
@pytest.mark.parametrize("text", ADVERSARIAL.values(), ids=ADVERSARIAL.keys())
def test_hostile_text_takes_linear_time(text, text_format):
    parts = parse(text, text_format)

    assert source_of(parts) == text
    for segment in segments_in(parts):
        pieces = split(segment, range(0, len(segment.text), 50))
        assert "".join(piece if isinstance(piece, str) else piece.source for piece in pieces) == segment.source


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "html",
    [
        "a " + "<b>" * 10_000 + "x" + "</b>" * 10_000 + " c",
        "a " + "<b></b>" * 10_000 + " c",
        "a " + "<wbr> <i>" * 5_000 + "x y" + "</i>" * 5_000 + " c",
        " ".join("<b>x</b>" for _ in range(300)),
    ],
    ids=["deep", "empty", "mixed", "many"],
)
def test_hostile_tags_are_placed_in_time(html):
    (segment,) = segments_of(html, TextFormat.HTML)
    words = words_of(segment.text)

    result = place_tags(segment, segment.text, [Link(word, word) for word in words])

    assert is_well_formed(segment.tags, result)
