"""Golden sentences in their file."""

import pytest

from model.golden import GoldenSentence, from_tsv, to_tsv

SENTENCES = [
    GoldenSentence(precision="int8", source="The cat sleeps.", translation="Die Katze schläft."),
    GoldenSentence(precision="fp32", source="Hm?", translation=""),
]


def test_sentences_come_out_as_they_went_in():
    assert from_tsv(to_tsv(SENTENCES)) == SENTENCES


@pytest.mark.parametrize("text", ["a\tb", "a\nb", "a\u2028b", "a\x0bb"])
def test_text_that_would_not_come_out_is_refused(text):
    with pytest.raises(ValueError, match="golden sentence 1 has a tab or a line break"):
        to_tsv([GoldenSentence(precision="int8", source=text, translation="b")])


@pytest.mark.parametrize("line", ["", "int8\tonly a source", "int8\ta\tb\tc"])
def test_line_without_three_fields_is_refused_with_its_number(line):
    with pytest.raises(ValueError, match="line 2 has"):
        from_tsv(f"int8\ta\tb\n{line}\n")
