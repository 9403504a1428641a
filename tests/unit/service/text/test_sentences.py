"""Texts in sentences and the layout between them: nothing is lost, and lines mean what their authors meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.records import Span
from service.text.document import Document, Segment, TagKind
from service.text.sentences import rewrap, split

WRAPPED = "The letter had been lying in the drawer for so many years\n  that nobody knew who had written it."


def sentences(text: str, language: str = "en", spans: tuple[Span, ...] = ()) -> list[str]:
    return [part.text for part in split(Segment(text, 0, text), language, lambda: spans) if isinstance(part, Segment)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The door is open", ["The door is open"]),
        ("It is open. Come in!", ["It is open.", "Come in!"]),
        ("Dr. Smith came at 5 p.m. on Jan. 3rd. He paid.", ["Dr. Smith came at 5 p.m. on Jan. 3rd.", "He paid."]),
        ("One\rTwo\u2028Three\r\nFour", ["One", "Two", "Three", "Four"]),
        ("", []),
        (" \n\t", []),
        ("-----", []),
        ("12.5 %", []),
    ],
)
def test_sentences_are_found_and_what_has_no_letters_is_none(text, found):
    assert sentences(text) == found


@pytest.mark.parametrize(
    "layout",
    [
        "- ",
        "* ",
        "•\t",
        "1. ",
        "1.2.1. ",
        "12) ",
        "(3) ",
        "a) ",
        "a. ",
        "iv. ",
        "[x] ",
        "## ",
        "> - ",
    ],
)
def test_layout_before_a_line_is_no_part_of_its_sentence(layout):
    assert sentences(f"{layout}the old door\n  {layout}the new door") == ["the old door", "the new door"]


@pytest.mark.parametrize(("text", "language"), [("3. Mai", "de"), ("-5 degrees", "en"), ("A. Miller", "en")])
def test_what_only_looks_like_layout_is_language(text, language):
    assert sentences(text, language) == [text]


def test_wrapped_prose_is_one_sentence_with_its_line_breaks_as_tags():
    (segment,) = split(Segment(WRAPPED, 0, WRAPPED), "en")

    assert isinstance(segment, Segment)
    assert (
        segment.text == "The letter had been lying in the drawer for so many years that nobody knew who had written it."
    )
    assert [(tag.source, tag.kind) for tag in segment.tags] == [("\n  ", TagKind.POINT)]
    assert segment.origin(Span(58, 62)) == Span(60, 64)  # "that"


def test_line_breaks_come_back_near_where_they_were_each_in_place_of_a_space():
    (segment,) = split(Segment(WRAPPED, 0, WRAPPED), "en")

    assert isinstance(segment, Segment)
    assert rewrap(segment, "aaaa " * 10, str) == "aaaa " * 5 + "aaaa\n  " + "aaaa " * 4
    assert rewrap(segment, "aaaa", str) == "aaaa\n  "


def test_no_line_break_comes_into_a_span():
    text = "The page of the day is at last {first name} of us all\nand of nobody else."
    (segment,) = split(Segment(text, 0, text), "en")

    assert isinstance(segment, Segment)
    assert rewrap(segment._replace(spans=(Span(31, 43),)), "a b c {first name}", str) == "a b c\n{first name}"


def test_short_lines_and_lines_with_an_end_are_not_joined():
    assert sentences("roses are red\nviolets are blue") == ["roses are red", "violets are blue"]
    assert len(sentences("This line is long enough for prose, and it ends here.\nand this goes on")) == 2


def test_no_sentence_ends_inside_a_span():
    text = "Press `a. B` now. Then wait."

    assert sentences(text, spans=(Span(6, 12),)) == ["Press `a. B` now.", "Then wait."]


def test_a_span_over_several_lines_stays_whole():
    text = "Run this:\n\n```\nmake it. Now\n\nmake more\n```\nThen wait."

    assert sentences(text, spans=(Span(11, text.index("\nThen")),)) == ["Run this:", "Then wait."]


@given(st.text("aB .!?\n\r\u2028\t-1)é😀你。"), st.sampled_from(["en", "de", "zh", ""]))
def test_parts_joined_are_the_text_and_segments_have_no_space_at_their_ends(text, language):
    parts = split(Segment(text, 0, text), language)
    segments = [part for part in parts if isinstance(part, Segment)]

    assert Document(tuple(parts), str).source == text
    assert all(segment.text == segment.text.strip() for segment in segments)
    assert all(text[segment.begin :].startswith(segment.source) for segment in segments)
