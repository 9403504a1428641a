"""Places in a text and in what was made of it."""

import html

import pytest

from service.records import Link, Span
from service.text.alignment import Anchor, moved, mover, mover_to_written


def place(text: str, part: str) -> Span:
    begin = text.index(part)
    return Span(begin, begin + len(part))


@pytest.mark.parametrize("word", ["Hello", "XA", "you", "XB", "!"])
def test_words_keep_their_places_beside_what_was_replaced(word: str):
    before, after = "Hello XA, are you XB!", "Hello {name}, are you %d!"
    standing = {"XA": "{name}", "XB": "%d"}
    anchors = [Anchor(place(before, one), place(after, other)) for one, other in standing.items()]

    assert mover(anchors)(place(before, word)) == place(after, standing.get(word, word))


def test_links_are_moved_on_both_sides():
    shifted = mover([Anchor(Span(0, 1), Span(0, 3))])

    assert moved([Link(Span(2, 4), Span(0, 1))], shifted, None) == [Link(Span(4, 6), Span(0, 1))]


@pytest.mark.parametrize(
    ("text", "written", "inserted", "part", "found"),
    [
        ("a dog", "a dog", [], "dog", "dog"),
        ("a dog", "a <b>dog</b>", ["<b>", "</b>"], "dog", "dog"),
        ("a & dog", "<i>a</i> &amp; <b>dog</b>", ["<i>", "</i>", "<b>", "</b>"], "&", "&amp;"),
        ("one two three", "one two\n  three", ["\n  "], "three", "three"),
        ("a dog", "a do<wbr>g", ["<wbr>"], "dog", "do<wbr>g"),
    ],
)
def test_words_are_found_between_tags(text: str, written: str, inserted: list[str], part: str, found: str):
    move = mover_to_written(text, written, inserted, lambda one: html.escape(one, quote=False))

    assert move(place(text, part)) == place(written, found)
