"""Pairs by rule: complete, in either direction, and written as each language does."""

import re

from model.corpus import Pair
from model.recipe import Languages
from model.templates import generate_pairs

EN_DE = Languages(source="en", target="de")


def test_pairs_have_no_open_slots_repeat_and_turn_round():
    pairs = generate_pairs(2_000, EN_DE, seed=1)

    assert pairs == generate_pairs(2_000, EN_DE, seed=1)
    assert len(set(pairs)) > 1_500
    assert not [pair for pair in pairs if re.search(r"\{(price|date|time|p|number|small)\d?\}|\.\.", " ".join(pair))]
    assert generate_pairs(9, Languages(source="de", target="en"), seed=1) == [
        Pair(target, source) for source, target in pairs[:9]
    ]


def test_numbers_have_the_signs_of_their_language():
    english = re.compile(r"[$€£¥](\d{1,3}(?:,\d{3})*)(\.\d\d)?(?![\d,])")
    checked = 0
    for source, target in generate_pairs(2_000, EN_DE, seed=2):
        for whole, cents in english.findall(source):
            assert f"{whole.replace(',', '.')}{cents.replace('.', ',')} " in target
            checked += 1

    assert checked > 100
