"""The level that the rules for sentences reach on sentence_boundaries.tsv, and how it is counted."""

from collections import Counter

import pytest

from tests.quality.sentence_boundaries import OTHERS, Text, ours, rates, read


def test_there_are_at_least_300_decisions_in_both_languages_together():
    texts = read()

    assert len({text.text for text in texts}) == len(texts)
    assert min(Counter(text.language for text in texts).values()) >= 150
    assert rates(texts, lambda _, text: [text]).decisions >= 300


@pytest.mark.parametrize(("language", "precision", "recall"), [("en", 0.99, 0.99), ("de", 0.98, 0.99)])
def test_precision_and_recall_stay_where_they_are(language, precision, recall):
    found = rates([text for text in read() if text.language == language], ours)

    assert found.precision >= precision
    assert found.recall >= recall


def test_sentencex_alone_is_wrong_ten_times_as_often():
    texts = read()
    mine, other = rates(texts, ours), rates(texts, OTHERS["sentencex"])

    assert other.found + other.real - 2 * other.right >= 10 * (mine.found + mine.real - 2 * mine.right)


def test_ends_that_are_found_and_missed_are_counted():
    text = Text("en", "", "One. Two. Three.", frozenset({5, 10}))

    assert rates([text], lambda *_: ["One. Two.", "Three."]) == (2, 1, 1, 2)
    assert rates([text], lambda *_: ["One.", "Two.", "Thr", "ee."]) == (3, 2, 3, 2)


def test_a_picture_between_two_sentences_belongs_to_either():
    text = Text("en", "", "One. \U0001f389 Two.", frozenset({7}))

    assert rates([text], lambda *_: ["One.", "\U0001f389 Two."]) == rates(
        [text], lambda *_: ["One. \U0001f389", "Two."]
    )
