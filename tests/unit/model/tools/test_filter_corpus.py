"""Which pairs of a corpus stay."""

import gzip
from dataclasses import replace

import pytest

from model.checkpoint import Checkpoint, CheckpointMeta
from model.corpus import Pair
from model.recipe import Languages
from model.tools.filter_corpus import (
    is_plausible,
    plausible_pairs,
    score_pairs,
)
from model.transformer import Transformer
from tests.conftest import ENGLISH, GERMAN
from tests.fakes.tiny_model import tiny_config

EN_DE = Languages(source="en", target="de")


@pytest.fixture
def checkpoint(tiny_tokenizer_path) -> Checkpoint:
    config = tiny_config(vocab_size=120)
    weights = dict(Transformer(config).initialize(1).state_dict())
    meta = CheckpointMeta(name="tiny", source_language="en", target_language="de")
    return Checkpoint(config=config, meta=meta, weights=weights, tokenizer_path=tiny_tokenizer_path)


@pytest.mark.parametrize(
    ("source", "target", "stays"),
    [
        ("Hello {name}.", "Hallo {name}.", True),
        ("Hello {name}.", "Hallo {nom}.", False),
        ("Press <b>OK</b>.", "<b>OK</b> drücken.", True),
        ("Press <b>OK</b>.", "OK drücken.", False),
        ("See https://a.example/b.", "Siehe https://a.example/b.", True),
        ("123", "123", False),
        ("This was never translated at all.", "This was never translated at all.", False),
        ("Yes.", "Das ist ein sehr langer Satz, der mehr sagt als das Original.", False),
    ],
)
def test_the_rules_of_a_pair(source, target, stays):
    assert is_plausible(Pair(source, target)) is stays


def test_text_in_a_third_language_is_left_out_and_spelling_is_of_today():
    french = Pair(
        "The weather is very nice today, let us go out into the garden.",
        "Il fait très beau aujourd'hui, allons dans le jardin avec les enfants.",
    )
    german = Pair("I know that she is coming to the party tonight.", "Ich weiß, daß sie heute Abend zum Fest kommt.")

    assert plausible_pairs([french, german], EN_DE) == [german._replace(target=german.target.replace("daß", "dass"))]


def test_scores_are_read_again_and_refused_for_other_pairs(checkpoint, tmp_path):
    pairs = [Pair(*sides) for sides in zip(ENGLISH[:3], GERMAN[:3], strict=True)]
    cache = tmp_path / "small" / "small.scores.tsv.gz"

    first = score_pairs(pairs, checkpoint, checkpoint, cache)
    key = gzip.decompress(cache.read_bytes()).splitlines()[0]
    cache.write_bytes(gzip.compress(key + b"\n" + b"1.0\t2.0\n" * 3))
    other = replace(checkpoint, weights=dict(Transformer(checkpoint.config).initialize(2).state_dict()))

    assert len(first) == 3
    assert score_pairs(pairs, checkpoint, checkpoint, cache) == [(1.0, 2.0)] * 3
    for changed, backward in ((pairs[:2], checkpoint), (pairs[::-1], checkpoint), (pairs, other)):
        with pytest.raises(ValueError, match=r"small\.scores\.tsv\.gz has scores of other pairs or by other models"):
            score_pairs(changed, checkpoint, backward, cache)
