"""How spans survive: what the model gets in their place, and what becomes of its answer."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.records import Link, Span
from service.text.alignment import words_of
from service.text.protected_spans import Alphabet, find_spans
from service.text.segments import Segment
from service.text.span_strategies import Strategy, find_all, outer_ends, strategies

ALPHABET = Alphabet(lambda character: character if character.isalnum() or character in " .,:;!?-'()" else None)
WORDS = st.sampled_from(["the", "cat", "Haus", "你好", ".", ",", "(", ")", "-", "5", " ", "  ", "\n", "'s", "X", "XA"])
KEPT = st.sampled_from(["{name}", "%s", "https://example.com/x", "😀", "$5", "café", "a_b", "1.2.3", "{}", "<b>", "@x"])
TEXTS = st.lists(st.one_of(WORDS, KEPT), max_size=15).map("".join) | st.text(max_size=30)


def strategies_of(text: str, alphabet: Alphabet = ALPHABET, sentinels: Sequence[str] = ()) -> list[Strategy]:
    segment = Segment(text, 0, text, spans=find_spans(text, alphabet))
    return list(strategies(segment, segment.spans, alphabet, sentinels))


def restored(strategy: Strategy, target: str) -> str | None:
    done = strategy.restore(target, ())
    return done and done[0]


@pytest.mark.parametrize(
    ("text", "shown", "target", "expected"),
    [
        ("Hello {name}!", "Hello XA!", "Hallo XA!", "Hallo {name}!"),
        ("{a} likes {b}.", "XA likes XB.", "XB mag XA.", "{b} mag {a}."),
        ("vor%sung", "vor XA ung", "pre XA tion", "pre%stion"),
        ("vor%sung", "vor XA ung", "XA", "%s"),
        ("Total = 5 and {x}.", "Total XA and XB.", "Gesamt-XA und XB.", "Gesamt = 5 und {x}."),
        ("Hello {name}", "Hello XA", "XA XA", None),
        ("Hello {name}", "Hello XA", "XAs", None),
        ("Hello {name}", "Hello XA", "xa", None),
        ("Hello {name}", "Hello XA", "XA und XAs", None),
        ("Hello {name}", "Hello XA", "{name} XA", None),  # it would be there twice
    ],
)
def test_a_span_comes_back_once_or_the_strategy_fails(text, shown, target, expected):
    strategy = strategies_of(text)[0]

    assert (strategy.text, restored(strategy, target)) == (shown, expected)


def test_pieces_have_every_span_once_or_the_strategy_fails():
    strategy = strategies_of("Hello {name}, hi")[-1]

    assert restored(strategy, "Hallo {name}, he") == "Hallo {name}, he"
    assert restored(strategy, "{name} {name}") is None


def test_links_are_those_of_the_segment_and_the_restored_translation():
    text, target = "Ask {name} today", "Heute XA fragen"
    strategy = strategies_of(text)[0]
    sources, targets = words_of(strategy.text), words_of(target)

    done = strategy.restore(target, [Link(sources[1], targets[1]), Link(sources[2], targets[0])])

    assert done is not None
    pairs = [(text[slice(*link.source)], done[0][slice(*link.target)]) for link in done[1]]
    assert pairs == [("{name}", "{name}"), ("today", "Heute")]


@given(TEXTS)
def test_what_is_copied_as_it_is_comes_back_as_the_text(text):
    spans = find_spans(text, ALPHABET)
    assume(spans)

    for strategy in strategies(Segment(text, 0, text), spans, ALPHABET):
        copied = "".join(strategy.pieces) or strategy.text
        assert restored(strategy, copied) in (text.strip(), None)


@given(TEXTS, st.randoms(use_true_random=False))
def test_words_in_another_order_still_put_every_span_back_once(text, random):
    spans = find_spans(text, ALPHABET)
    assume(spans)
    strategy = next(strategies(Segment(text, 0, text), spans, ALPHABET))
    assume(not strategy.pieces)

    done = restored(strategy, " ".join(random.sample(strategy.kept, len(strategy.kept))))

    shown = "".join(text[slice(*span)] for span in spans)
    assert done is None or sorted(done.replace(" ", "")) == sorted(shown.replace(" ", ""))


@pytest.mark.parametrize(
    ("texts", "target", "expected"),
    [
        (["%d", "{x}"], "{x} hat %d", [[Span(8, 10)], [Span(0, 3)]]),
        (["a.txt"], "data.txt a.txt", [[Span(9, 14)]]),
        (["&", "AT&T"], "AT&T & Co", [[Span(5, 6)], [Span(0, 4)]]),
        (["1.2.3"], "11.2.3", [[]]),
        (["日本"], "我爱日本人", [[Span(2, 4)]]),
        ([r"\n"], r"so.\nBitte", [[Span(3, 5)]]),  # a word may begin right behind an escape
        (["%d"], "dauert %dmin.", [[Span(7, 9)]]),
        (["$name"], "$names", [[]]),
    ],
)
def test_texts_are_found_in_a_translation_but_not_inside_words(texts, target, expected):
    found = find_all(texts, target)

    assert [found[text] for text in texts] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I love you 😀", "I love you"),
        ("😀 I love 😀 you 😀 ❤️", "I love 😀 you"),
        ("[see the notes]", "see the notes"),
        ("{name} has left.", "{name} has left."),
        ("Please open https://example.com", "Please open https://example.com"),
        ("Read this. https://example.com", "Read this."),
        ("You owe {}", "You owe {}"),
        ("&Open", "&Open"),
        ("😀", ""),
        ("plain", "plain"),
    ],
)
def test_what_says_nothing_in_a_sentence_is_left_outside(text, expected):
    segment = Segment(text, 7, text, spans=find_spans(text, ALPHABET))

    assert text[slice(*outer_ends(segment))] == expected
