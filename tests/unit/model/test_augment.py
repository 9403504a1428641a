"""What is changed in training pairs, and that what was a translation stays one."""

import itertools

import pytest

from model.augment import augment, shared_spans
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


def test_every_option_changes_something():
    pairs = [PAIR, *(Pair(f"He has {n} friends.", f"Er hat {n} Freunde.") for n in range(20))]
    names = set(AugmentationConfig.__dataclass_fields__) - {"sample_pieces", "templates"}  # those of `EpochBatches`

    following = dict(itertools.pairwise(pairs))
    for name in names:
        assert list(augment(pairs, AugmentationConfig(**{name: 1.0}), 1, following)) != pairs, name
