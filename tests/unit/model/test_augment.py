"""What is changed in training pairs, and that what was a translation stays one."""

import itertools
import random

import pytest

from model.augment import add_brackets, add_emoji, add_tag, augment, misspell, neighbours, replace_spans, shared_spans
from model.corpus import Pair
from model.pieces import SENTINELS
from model.recipe import AugmentationConfig

PAIR = Pair("Anna paid 20 euros at https://a.example/x.", "Anna zahlte 20 Euro auf https://a.example/x.")


def test_each_change_has_its_share_and_repeats():
    pairs = [Pair(f"Hello {n}.", f"Hallo {n}.") for n in range(1_000)]
    config = AugmentationConfig(concatenate=0.3, lowercase_source=0.2, drop_final_punctuation=0.1)

    changed = list(augment(pairs, config, seed=5))

    assert changed == list(augment(pairs, config, seed=5))
    assert sum(pair.target.count("Hallo") > 1 for pair in changed) == pytest.approx(300, abs=60)
    assert {pair.target.count("Hallo") for pair in changed} == {1, 2, 3, 4}
    assert sum(pair.source[0] == "h" for pair in changed) == pytest.approx(200, abs=50)
    assert sum(not pair.target.endswith(".") for pair in changed) == pytest.approx(100, abs=40)
    assert list(augment(pairs, AugmentationConfig(), seed=1)) == pairs


def test_a_document_goes_on_with_its_next_line_and_other_pairs_with_the_next_one():
    pairs = [Pair(str(n), str(n)) for n in range(4)]
    following = {pairs[0]: Pair("a", "a"), Pair("a", "a"): Pair("b", "b")}

    assert [pair.source for pair in neighbours(pairs, 0, 3, following)] == ["0", "a", "b"]
    assert [pair.source for pair in neighbours(pairs, 3, 3, following)] == ["3", "0", "a"]


@pytest.mark.parametrize(
    ("source", "target", "spans"),
    [
        (*PAIR, ["Anna", "20", "https://a.example/x"]),
        ("It costs 4.50 for Ann.", "Es kostet 4,50 für Anne.", []),
        ("Yesterday Tom Miller left.", "Gestern ging Tom Miller.", ["Tom", "Miller"]),
        ("Tom and Tom met.", "Tom traf Tom.", []),
        ("Hi {name}, mail a_b@c.de (%1$s)", "Hallo {name}, Mail an a_b@c.de (%1$s)", ["{name}", "a_b@c.de", "%1$s"]),
        ("Press <b>OK</b> in `x y`.", "<b>OK</b> in `x y` drücken.", ["<b>", "OK", "</b>", "`x y`"]),
    ],
)
def test_shared_spans_stand_once_on_both_sides(source, target, spans):
    assert shared_spans(Pair(source, target)) == spans


def test_spans_become_the_same_sentinels_on_both_sides():
    changed = augment([PAIR] * 50, AugmentationConfig(sentinels=1.0), seed=1)

    for source, target in changed:
        in_source, in_target = ([one for one in side if one in SENTINELS] for side in (source, target))
        assert in_source == in_target
        assert len(set(in_source)) == len(in_source)


def test_at_most_as_many_spans_are_replaced_as_there_are_sentinels():
    text = " ".join(f"{n}x{n}" for n in range(10, 40))
    spans = Pair(text.replace("x", " "), text.replace("x", " "))

    replaced = replace_spans(
        Pair(" ".join(map(str, range(10, 40))), " ".join(map(str, range(10, 40)))), iter(SENTINELS), random.Random(1)
    )

    assert replaced.source == replaced.target
    assert sum(one in SENTINELS for one in replaced.source) == len(SENTINELS)
    assert not shared_spans(spans)


def test_a_control_character_of_a_corpus_is_no_sentinel():
    changed = augment([Pair(f"one{SENTINELS[3]}two", "eins zwei")], AugmentationConfig(tags=1e-9), seed=1)

    assert list(changed) == [Pair("one two", "eins zwei")]


def test_a_tag_stands_in_the_same_order_on_both_sides():
    for seed in range(20):
        tagged = add_tag(PAIR, iter(SENTINELS), random.Random(seed))

        marks = [[one for one in side if one in SENTINELS] for side in tagged]
        assert marks[0] == marks[1] in (list(SENTINELS[:1]), list(SENTINELS[:2])), f"seed {seed}"
        assert Pair(*(side.translate(dict.fromkeys(map(ord, SENTINELS))).strip() for side in tagged)) == PAIR


def test_pictures_and_brackets_are_the_same_on_both_sides():
    for edit, seed in itertools.product((add_emoji, add_brackets), range(20)):
        source, target = edit(Pair("word", "Wort"), random.Random(seed))

        assert source.replace("word", "Wort") == target != "Wort", f"seed {seed}"


def test_misspelling_leaves_the_target_and_most_of_the_source():
    drawn = [misspell(PAIR, random.Random(seed)) for seed in range(50)]

    assert {pair.target for pair in drawn} == {PAIR.target}
    assert len({pair.source for pair in drawn}) > 10
    assert all(abs(len(pair.source) - len(PAIR.source)) <= 5 for pair in drawn)


def test_capitals_are_made_on_both_sides():
    assert list(augment([Pair("a Street", "eine Straße")], AugmentationConfig(uppercase=1.0), 1)) == [
        Pair("A STREET", "EINE STRASSE")
    ]


def test_every_option_changes_something():
    pairs = [PAIR, *(Pair(f"He has {n} friends.", f"Er hat {n} Freunde.") for n in range(20))]
    names = set(AugmentationConfig.__dataclass_fields__) - {"sample_pieces", "templates"}  # those of `EpochBatches`

    following = dict(itertools.pairwise(pairs))
    for name in names:
        assert list(augment(pairs, AugmentationConfig(**{name: 1.0}), 1, following)) != pairs, name
