"""The sentences of sentinels.tsv, and how they are counted."""

from model.recipe import Languages
from model.templates import generate_pairs
from tests.quality.sentinels import exchange, kept, read_sentences


def test_sentences_are_whole_and_their_spans_stand_once_on_both_sides():
    for language in ("en", "de"):
        sentences = read_sentences(language)

        assert len(sentences) == 300
        for one in sentences:
            assert kept(one.spans, one.source) == kept(one.spans, one.reference) == len(one.spans), one


def test_no_sentence_is_made_by_rule_in_training():
    made = {pair.source for pair in generate_pairs(20_000, Languages(source="en", target="de"), seed=1)}

    assert made.isdisjoint(one.source for one in read_sentences("en"))


def test_a_part_that_is_lost_or_doubled_does_not_count():
    assert exchange("a {b} c", ["{b}"], ["XA"]) == "a XA c"
    assert [kept(["XA"], text) for text in ("XA b", "b", "XA XA")] == [1, 0, 0]
