"""Sentences that start together, dealt to engines by length."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from service.dispatch.dealing import Hand, Sentence, deal

BEAM = 4
FREE = Hand(source_tokens=0, free_rows=128)


def sentences(*lengths: int) -> list[Sentence]:
    return [Sentence(length, BEAM) for length in lengths]


def lengths_of(dealt: list[int] | None, dealt_sentences: list[Sentence], hand: int) -> list[int]:
    assert dealt is not None
    return [sentence.source_tokens for sentence, to in zip(dealt_sentences, dealt, strict=True) if to == hand]


def test_long_sentences_go_to_one_engine_and_short_ones_to_another():
    mixed = sentences(5, 30, 6, 5, 20, 6, 5, 5)

    dealt = deal(mixed, [FREE, FREE])

    assert lengths_of(dealt, mixed, 0) == [30]  # counted twice: 60
    assert lengths_of(dealt, mixed, 1) == [5, 6, 5, 20, 6, 5, 5]


def test_equal_sentences_are_halved():
    assert deal(sentences(7, 7, 7, 7), [FREE, FREE]) == [0, 0, 1, 1]


def test_engine_that_has_less_gets_more():
    alike = sentences(*[10] * 6)

    dealt = deal(alike, [Hand(40, 128), Hand(0, 128)])

    assert len(lengths_of(dealt, alike, 0)) == 1
    assert len(lengths_of(dealt, alike, 1)) == 5


def test_engine_without_rows_gets_nothing():
    alike = sentences(10, 10)

    assert deal(alike, [Hand(0, 3), Hand(50, 8)]) == [1, 1]


def test_there_is_no_deal_when_rows_do_not_suffice():
    assert deal(sentences(10, 10), [Hand(0, 4), Hand(0, 3)]) is None
    assert deal(sentences(10), [Hand(0, -8)]) is None


SENTENCES = st.lists(st.builds(Sentence, st.integers(1, 90), st.integers(1, 5)), min_size=1, max_size=9)
HANDS = st.lists(st.builds(Hand, st.integers(0, 200), st.integers(0, 30)), min_size=1, max_size=4)


@given(dealt_sentences=SENTENCES, hands=HANDS)
def test_no_engine_gets_more_rows_than_it_has_and_each_one_neighbours_in_length(
    dealt_sentences: list[Sentence], hands: list[Hand]
):
    dealt = deal(dealt_sentences, hands)

    if dealt is None:
        return
    assert len(dealt) == len(dealt_sentences)
    spans = []
    for number, hand in enumerate(hands):
        mine = [sentence for sentence, to in zip(dealt_sentences, dealt, strict=True) if to == number]
        assert sum(sentence.rows for sentence in mine) <= max(0, hand.free_rows)
        if mine:
            spans.append((min(mine).source_tokens, max(mine).source_tokens))
    spans.sort()
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans))


@given(dealt_sentences=SENTENCES, hands=HANDS)
def test_there_is_a_deal_whenever_one_engine_could_take_all(dealt_sentences: list[Sentence], hands: list[Hand]):
    roomy = Hand(0, sum(sentence.rows for sentence in dealt_sentences))

    assert deal(dealt_sentences, [*hands, roomy]) is not None
