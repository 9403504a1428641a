"""Words of a text and of its translation are linked by the attention between the tokens that they are made of."""

import html

import numpy as np
import pytest

from service.records import Link, Span
from service.text.alignment import WordAttention, edited, links, mover_to_written, word_attention, words


def texts_of(text: str) -> list[str]:
    return [text[word.begin : word.end] for word in words(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat sleeps.", ["The", "cat", "sleeps", "."]),
        ("I don't pay $1,299.99!", ["I", "don't", "pay", "$", "1,299.99", "!"]),
        ("'Yes', he said.", ["'", "Yes", "'", ",", "he", "said", "."]),
        ("l\u2019homme", ["l\u2019homme"]),
        ("at 8:15, e.g. here", ["at", "8:15", ",", "e", ".", "g", ".", "here"]),
        ("3rd 3. A4", ["3rd", "3", ".", "A4"]),
        ("well-known", ["well", "-", "known"]),
        ("我爱你。OK", ["我", "爱", "你", "。", "OK"]),
        ("カタカナ", ["カ", "タ", "カ", "ナ"]),
        ("e\u0301te\u0301 हिन्दी", ["e\u0301te\u0301", "हिन्दी"]),
        ("a 😀❤\ufe0f b", ["a", "😀", "❤\ufe0f", "b"]),
        ("\u0301a", ["\u0301", "a"]),
        ("  \n", []),
        ("", []),
    ],
)
def test_words_are_runs_of_letters_and_digits_and_single_characters_else(text, expected):
    assert texts_of(text) == expected


def attention_between(
    source: str, target: str, source_tokens: list[str], target_tokens: list[str], rows: list[list[float]]
):
    def spans(tokens: list[str]) -> list[Span]:
        ends = np.cumsum([len(token) for token in tokens]).tolist()
        return [Span(end - len(token), end) for token, end in zip(tokens, ends, strict=True)]

    return word_attention(rows, source, spans(source_tokens), target, spans(target_tokens))


def test_tokens_of_a_word_are_added_up_in_the_source_and_averaged_in_the_translation():
    found = attention_between(
        "red houses", "rote Häuser", ["red", " hou", "ses"], ["rote", " Häu", "ser"],
        [[0.8, 0.1, 0.0, 0.1], [0.2, 0.5, 0.2, 0.1], [0.0, 0.3, 0.6, 0.1], [0.0, 0.0, 0.0, 1.0]],
    )  # fmt: skip

    assert found.source == [Span(0, 3), Span(4, 10)]
    assert found.target == [Span(0, 4), Span(5, 11)]
    assert found.weights[0] == pytest.approx([0.8, 0.1])
    assert found.weights[1] == pytest.approx([0.1, 0.8])


def test_a_token_of_two_words_counts_for_each_by_its_characters_and_a_lone_blank_for_the_word_behind_it():
    found = attention_between(
        "我爱你", "I love", ["我爱", "你"], ["I", " ", "love"], [[1.0, 0.0], [0.0, 1.0], [0.4, 0.6]]
    )

    assert found.weights[0] == pytest.approx([0.5, 0.5, 0.0])
    assert found.weights[1] == pytest.approx([0.1, 0.1, 0.8])  # the blank and the word


def word_matrix(weights: list[list[float]]) -> WordAttention:
    def spans(count: int) -> list[Span]:
        return [Span(10 * index, 10 * index + 5) for index in range(count)]

    return WordAttention(spans(len(weights[0])), spans(len(weights)), weights)


def pairs(found: list[Link]) -> list[tuple[int, int]]:
    return [(link.target.begin // 10, link.source.begin // 10) for link in found]


def test_a_word_is_linked_to_the_one_that_it_attends_to_most_and_to_none_below_the_threshold():
    found = word_matrix([[0.5, 0.1, 0.1], [0.1, 0.05, 0.1], [0.1, 0.1, 0.7]])

    assert pairs(links(found, threshold=0.2)) == [(0, 0), (2, 2)]
    assert pairs(links(found, threshold=0.6)) == [(2, 2)]


def place(text: str, part: str) -> Span:
    begin = text.index(part)
    return Span(begin, begin + len(part))


@pytest.mark.parametrize("word", ["Hello", "XA", "you", "XB", "!"])
def test_words_keep_their_places_beside_what_was_replaced(word: str):
    text, standing = "Hello XA, are you XB!", {"XA": "{name}", "XB": "%d"}

    done = edited(text, [(place(text, one), other) for one, other in standing.items()])

    assert done.text == "Hello {name}, are you %d!"
    assert done.moved(place(text, word)) == place(done.text, standing.get(word, word))
    assert done.origin(place(done.text, standing.get(word, word))) == place(text, word)


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
