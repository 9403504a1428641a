"""Where sentences begin: what bench/quality/sentence_boundaries.tsv does not say."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.text.sentence_boundaries import sentence_begins


def sentences(text: str, language: str = "en") -> list[str]:
    places = [0, *sentence_begins(text, language), len(text)]
    return [text[begin:end].strip() for begin, end in pairwise(places)]


@pytest.mark.parametrize(
    ("text", "language", "found"),
    [
        ("El gato duerme. El perro ladra.", "es", ["El gato duerme.", "El perro ladra."]),
        ("今天很冷。我们在家。", "zh", ["今天很冷。", "我们在家。"]),
        ("He said 你好。Then he left.", "en", ["He said 你好。", "Then he left."]),
        ("", "en", [""]),
        ("...", "de", ["..."]),
    ],
)
def test_other_languages_and_scripts_have_sentences_too(text, language, found):
    assert sentences(text, language) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The ferry was late.Nobody came.", ["The ferry was late.", "Nobody came."]),
        ("Is it cold?Take a coat.", ["Is it cold?", "Take a coat."]),
        ("Use asp.Net or Node.Js here.", ["Use asp.Net or Node.Js here."]),
        ("We live in London.He does not.", ["We live in London.", "He does not."]),
    ],
)
def test_a_sentence_may_end_without_a_space(text, found):
    assert sentences(text) == found


def test_a_long_quote_is_cut_and_a_short_one_is_not():
    short, long = "He knew. She did not. ", "They talked about the weather for an hour. "

    assert sentences(f'He said: "{short.strip()}" Then he left.') == [
        'He said: "He knew. She did not."',
        "Then he left.",
    ]
    assert len(sentences(f'He said: "{long * 4}" Then he left.')) >= 4


@given(st.text('aBc .!?…"“”()[]1,-\u00a0zB', max_size=60), st.sampled_from(["en", "de"]))
def test_places_are_inside_in_order_and_before_no_white_space(text, language):
    places = sentence_begins(text, language)

    assert places == sorted(set(places))
    assert all(0 < place < len(text) and not text[place].isspace() for place in places)
