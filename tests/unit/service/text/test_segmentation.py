"""Texts in sentences and the layout between them: nothing is lost, and lines mean what their authors meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.records import Span, TextFormat
from service.text.markup import parse
from service.text.segmentation import cuts, split
from service.text.segments import Segment, TagKind
from service.text.segments import split as split_at
from service.text.tag_placement import rewrap
from tests.fakes.parts import source_of

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
    assert rewrap(segment, "aaaa " * 10) == "aaaa " * 5 + "aaaa\n  " + "aaaa " * 4
    assert rewrap(segment, "aaaa") == "aaaa\n  "


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Name\tTown\tAge", ["Name", "Town", "Age"]),
        ("Salt   Sugar     12", ["Salt", "Sugar"]),
        ("Salt\u00a0\u00a0\u00a0Sugar", ["Salt", "Sugar"]),
        ("Home | News|Contact", ["Home", "News", "Contact"]),
        ("Yes / No / Maybe", ["Yes", "No", "Maybe"]),
        ("Ja / Nein", ["Ja", "Nein"]),
        ("red / green / blue", ["red", "green", "blue"]),
        ("Home > Our products > Tea & coffee", ["Home", "Our products", "Tea & coffee"]),
        ("Open • Close • Quit the game now, please.", ["Open", "Close", "Quit the game now, please."]),
        ("Save · Cancel", ["Save", "Cancel"]),
        ("Work → Home → Shop", ["Work", "Home", "Shop"]),
        ("Tell his / her parents.", ["Tell his / her parents."]),
        ("his / her", ["his / her"]),
        ("Mother / father / child: who pays?", ["Mother / father / child: who pays?"]),
        ("It is 5 > 3 and 2 · 3 = 6.", ["It is 5 > 3 and 2 · 3 = 6."]),
        ("| a | b |\n|---|---|\n| c |  |", ["a", "b", "c"]),
        ("Two  blanks part nothing", ["Two  blanks part nothing"]),
        ("The   train    was     late.", ["The   train    was     late."]),
        ("Turn it (left|right) now", ["Turn it (left|right) now"]),
        ("Write `a\tb` here", ["Write `a\tb` here"]),
    ],
)
def test_tabs_wide_gaps_and_bars_part_columns(text, found):
    assert sentences(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"It is here.\nPlease get in.", ["It is here.", "Please get in."]),
        (r"Hello,\n\nhow are you?", ["Hello,", "how are you?"]),
        (r"One\r\nTwo", ["One", "Two"]),
        (r"You need:\n- a map\n- a lamp", ["You need:", "a map", "a lamp"]),
        (r"Name:\tAnna", ["Name:", "Anna"]),
        (r"Open C:\new\things now", [r"Open C:\new\things now"]),
    ],
)
def test_line_breaks_as_programs_write_them_are_line_breaks(text, found):
    assert sentences(text) == found


@pytest.mark.parametrize(
    ("text", "text_format", "pieces"),
    [
        ("Salt<br>Sugar<br>Flour", TextFormat.HTML, ["Salt", "Sugar", "Flour"]),
        ("Salt\nSugar", TextFormat.HTML, ["Salt Sugar"]),
        ("Salt\nSugar", TextFormat.XML, ["Salt", "Sugar"]),
        ("Salt\tSugar", TextFormat.XML, ["Salt", "Sugar"]),
        ("Dear all,\n\nthank you.", TextFormat.XLIFF, ["Dear all,", "thank you."]),
        ("You need:<br>- a map<br>2. a lamp", TextFormat.HTML, ["You need:", "-", "a map", "2.", "a lamp"]),
        ("It is<b>.&nbsp;</b>He came.", TextFormat.HTML, ["It is.", "He came."]),
        ("Home | <a>News</a>", TextFormat.HTML, ["Home", "|", "News"]),
        ('Salt<x ctype="lb"/>Sugar', TextFormat.XLIFF, ["Salt", "Sugar"]),
    ],
)
def test_lines_and_columns_of_marked_up_text_are_cut_as_those_of_plain_text(text, text_format, pieces):
    (block,) = [part for part in parse(text, text_format) if isinstance(part, Segment)]

    found = split_at(block, cuts(block, "en"))
    assert [part.text for part in found if isinstance(part, Segment)] == pieces
    assert "".join(part if isinstance(part, str) else part.source for part in found) == text


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

    assert source_of(parts) == text
    assert all(segment.text == segment.text.strip() for segment in segments)
    assert all(text[segment.begin :].startswith(segment.source) for segment in segments)
