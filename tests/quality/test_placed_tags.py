"""The cases of tag_placement.tsv and how they are judged."""

import pytest

from tests.quality.tag_placement import CASES, is_right, words_and_places


def test_every_tag_of_every_case_has_its_places():
    cases = [line.split("\t") for line in CASES.read_text("utf-8").splitlines()]

    assert len(cases) == 200
    for text, *rights in cases:
        _, places = words_and_places(text)
        assert len([place for place in places if place.source != "<p>"]) == len(rights), text


@pytest.mark.parametrize(
    ("text", "right", "expected"),
    [
        ("Ein <b>rotes</b> Auto.", "rote|rotes", True),
        ("Ein <b>rotes Auto.</b>", "rotes Auto", True),
        ("Ein <b>rotes</b> Auto.", "rotes Auto", False),
        ("<b>Ein rotes Auto.</b>", "*", True),
        ("<b>Ein rotes</b> Auto.", "*", False),
        ("Eins <br>zwei", ">zwei", True),
        ("Eins <br>zwei", "Eins<", True),
        ("<br>Eins zwei", ">zwei", False),
        ("<br>Eins zwei", "^", True),
        ("Der <code>cat</code> Befehl", "Der<", True),
        ("Ein <b>rotes</b> Auto.", "~", True),
    ],
)
def test_place_is_right_if_it_is_one_of_those_that_are(text, right, expected):
    words, (place,) = words_and_places(text)

    assert is_right(words, place, right) is expected
