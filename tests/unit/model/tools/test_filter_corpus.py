"""Which pairs of a corpus stay."""

import gzip
import math
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from model.checkpoint import Checkpoint, CheckpointMeta, save_checkpoint
from model.corpus import Pair
from model.evaluate import mean_nll
from model.recipe import Languages
from model.tools.filter_corpus import (
    LanguageFilter,
    app,
    dual_cross_entropy,
    is_plausible,
    nats_per_token,
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


def test_models_that_agree_and_find_a_pair_likely_score_it_best():
    assert dual_cross_entropy((1.0, 1.0)) < dual_cross_entropy((1.0, 2.0)) < dual_cross_entropy((3.0, 3.0))


def test_nats_of_each_pair_have_the_mean_of_the_evaluation(checkpoint):
    pairs = [Pair(*sides) for sides in zip(ENGLISH, GERMAN, strict=True)]

    found = nats_per_token(checkpoint, [*pairs, Pair("", "leer")])

    expected = [mean_nll(checkpoint.model(), [pair], checkpoint.tokenizer()) for pair in pairs]
    assert found[:-1] == pytest.approx(expected, rel=0.02)  # in bfloat16 where the hardware has it
    assert found[-1] == math.inf


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


def test_a_model_of_the_same_direction_is_no_backward_one(checkpoint, tmp_path):
    save_checkpoint(tmp_path / "model", checkpoint)
    options = ["--data", tmp_path, "--out", tmp_path / "out", "--forward", tmp_path / "model"]

    result = CliRunner().invoke(app, ["a", *map(str, options), "--backward", str(tmp_path / "model")])

    assert result.exit_code == 2
    assert "--backward is a model from en to de, from de to en is needed" in " ".join(result.output.split())


def test_a_region_or_script_makes_no_text_foreign():
    text = "O tempo está muito bom hoje, vamos para o jardim com as crianças."

    assert not LanguageFilter().is_foreign(text, "pt-BR")
    assert LanguageFilter().is_foreign(text, "en-GB")
