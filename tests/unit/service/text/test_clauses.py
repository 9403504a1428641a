"""Where an overlong sentence is cut, and that nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.records import Span
from service.text.segmentation import cut


def count_words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize(
    ("text", "limit", "language", "pieces"),
    [
        ("one two", 2, "", ["one two"]),
        ("", 5, "", [""]),
        ("a b c; d e f", 4, "", ["a b c; ", "d e f"]),
        ("a b c: d e f", 4, "", ["a b c: ", "d e f"]),
        ("a b c - d e f", 5, "", ["a b c - ", "d e f"]),
        ("a b c\u2014d e f", 4, "", ["a b c\u2014", "d e f"]),
        ("a b, c; d, e f", 4, "", ["a b, c; ", "d, e f"]),  # the stronger mark, not the nearer one
        ("a b c, d, e f", 4, "", ["a b c, ", "d, e f"]),  # of two commas the nearer one
        ("costs 1,000 or 2:30 times", 3, "", ["costs 1,000 ", "or 2:30 times"]),  # no mark of a clause inside a number
        ("he came and she left", 3, "en", ["he came ", "and she left"]),
        ("er kam und sie ging", 3, "de-AT", ["er kam ", "und sie ging"]),
        ("there and back again on foot", 4, "", ["there and back ", "again on foot"]),
        ("abcdefgh", 3, "", ["abcdefgh"]),  # one word is one token here
        ("甲乙丙丁\uff0c戊己庚辛", 1, "", ["甲乙丙丁\uff0c戊己庚辛"]),
    ],
)
def test_a_sentence_is_cut_where_a_clause_ends(text, limit, language, pieces):
    assert cut(text, count_words, limit, language=language) == pieces


@pytest.mark.parametrize(
    ("text", "limit", "pieces"),
    [
        ("abcdefgh", 5, ["abcd", "efgh"]),
        ("甲乙丙丁\uff0c戊己庚辛", 6, ["甲乙丙丁\uff0c", "戊己庚辛"]),
        ("ab", 1, ["a", "b"]),
        ("e\u0301" * 4, 5, ["e\u0301" * 2] * 2),  # no character of several code points is cut
        ("\U0001f469\u200d\U0001f467" * 2, 5, ["\U0001f469\u200d\U0001f467"] * 2),
        ("\u2764\ufe0f" * 4, 5, ["\u2764\ufe0f" * 2] * 2),
    ],
)
def test_what_has_no_spaces_is_cut_between_characters(text, limit, pieces):
    assert cut(text, len, limit) == pieces


def test_no_span_is_cut():
    text = "click {n, plural, one {# file} other {# files}} now"
    span = Span(6, text.index(" now"))

    assert cut(text, count_words, 3, spans=[span]) == ["click ", text[6 : span.end] + " ", "now"]
    assert cut("x" * 20, len, 5, spans=[Span(0, 20)]) == ["x" * 20]


@given(st.text(alphabet="ab ,;:\n-\u0301\u200d甲\uff0c"), st.integers(1, 12), st.lists(st.integers(0, 60), max_size=4))
def test_the_pieces_joined_are_the_text(text, limit, ends):
    edges = sorted({min(end, len(text)) for end in ends})
    spans = [Span(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=False)]
    pieces = cut(text, len, limit, spans=spans)
    cuts = {sum(map(len, pieces[:index])) for index in range(1, len(pieces))}

    assert "".join(pieces) == text
    assert all(pieces) or not text
    assert not [span for span in spans for position in cuts if span.begin < position < span.end]
