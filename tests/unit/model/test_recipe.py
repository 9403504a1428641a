"""Recipes: the shipped ones load, wrong ones say what is wrong, defaults.toml has every key."""

import json
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

import model.recipe
from model.bundle import included_bundle_dirs
from model.checkpoint import load_checkpoint
from model.recipe import CorpusConfig, Languages, Recipe, load_recipe
from model.transformer import Transformer

RECIPES = sorted((Path(model.recipe.__file__).parent / "recipes").glob("*.toml"))
# Their licences, which the model cards name, let weights that learnt from them be given away.
ALLOWED_FOR_SHIPPED_WEIGHTS = {
    "tatoeba", "ms_businesscentral_docs", "suttacentral", "europarl20k", "mlqe_pe_wikipedia", "mozilla_www_l10n",
    "ms_projectoperations_docs", "freebsd_docs", "massive_utterances", "php_manual", "ui_strings_mixed",
    "mozilla_l10n_web", "godot_editor_l10n", "android_apps", "rustbook", "scratch_l10n", "react_docs",
    "mozilla_l10n_more", "debian_website", "corona_warn_app", "monero_site", "opensource_guide", "bitcoin_org",
    "letsencrypt_website", "cwa_website", "global_storybooks",
}  # fmt: skip
SMALLEST = 'name = "x"\nlanguages = {source = "en", target = "de"}\n'


# A corpus that models made of another one; they learnt from the same corpora.
DERIVED = {"tatoeba-en-said", "tatoeba-de-said"}


@pytest.mark.parametrize(
    "name",
    [name + suffix for name in (directory.name for directory in included_bundle_dirs()) for suffix in ("", "-robust")],
)
def test_an_included_model_uses_only_corpora_whose_weights_may_be_shipped(name):
    recipe = load_recipe(next(path for path in RECIPES if path.stem == name))

    assert {corpus.name for corpus in recipe.corpora} <= ALLOWED_FOR_SHIPPED_WEIGHTS | DERIVED
    assert Transformer(recipe.config).num_parameters <= 20_000_000


@pytest.mark.parametrize("bundle", included_bundle_dirs(), ids=lambda bundle: bundle.name)
def test_an_included_model_can_be_trained_on_by_its_recipe(bundle):
    recipe = load_recipe(next(path for path in RECIPES if path.stem == f"{bundle.name}-robust"))

    assert recipe.config == load_checkpoint(bundle).config


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_shipped_recipe_loads(path):
    assert load_recipe(path).schedule.max_updates > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "Invalid value"),
        ("optimizer.warmup = 3", "unknown key 'warmup' for OptimizerConfig; known are peak_learning_rate"),
        ("optimizer.matrices = 'sgd'", "optimizer.matrices is 'sgd', accepted are 'adam' and 'muon'"),
        ("model.vocab_size = 90", r"tokenizer\.vocab_size is 8000, it must be model\.vocab_size \(90\)"),
        ("augmentation.sample_pieces = 0.4\ntokenizer.model_type = 'bpe'", "drawn from a unigram model alone"),
        ("batches.max_sentence_tokens = 600", r"is 600, at most model\.max_positions \(512\) is accepted"),
        ("schedule.validation_sets = ['dev', 3]", r"schedule\.validation_sets\[1\] is 3, it must be text"),
        ("optimizer.dropout = '0.1'", r"optimizer\.dropout is '0\.1', it must be a number"),
        ("optimizer.warmup_updates = 2.5", r"optimizer\.warmup_updates is 2\.5, it must be a whole number"),
        ("optimizer.betas = [0.9]", r"optimizer\.betas has 1 entries, it must have 2"),
        ("optimizer = 3", "optimizer is 3, it must be a table"),
        ("model.norm_placement = 'none'", r"model\.norm_placement is 'none', accepted are 'pre' and 'post'"),
        ("schedule.average_last = 11", r"schedule\.keep_last is 10, at least average_last \(11\) is needed"),
        ("schedule.minutes = 0", r"schedule\.minutes is 0\.0, it must be above 0"),
        ("schedule.validation_sets = []", r"schedule\.validation_sets is empty and held_out is 0"),
        ("optimizer.peak_learning_rate = nan", r"optimizer\.peak_learning_rate is nan, it must be above 0"),
        ("optimizer.dropout = 1.0", r"optimizer\.dropout is 1\.0, it must be at least 0 and below 1"),
        ("corpora = [{}]", r"corpora\[0\]\.name is missing"),
        ("corpora = [{name = 'own', repeat = 0}]", r"corpus 'own'\.repeat is 0, at least 1 is needed"),
    ],
)
def test_a_wrong_recipe_says_what_is_wrong(tmp_path, text, message):
    path = tmp_path / "wrong.toml"
    path.write_text(SMALLEST + ("" if "corpora" in text else "corpora = []\n") + text)

    with pytest.raises(ValueError, match=rf"wrong\.toml: .*{message}"):
        load_recipe(path)


def test_defaults_toml_has_every_key_of_a_recipe_with_its_default():
    text = next(path for path in RECIPES if path.stem == "defaults").read_text(encoding="utf-8")
    smallest = Recipe(
        name="mine", languages=Languages(source="en", target="de"), corpora=(CorpusConfig(name="tatoeba"),)
    )
    expected = asdict(smallest)
    del expected["corpora"][0]["max_pairs"], expected["schedule"]["minutes"]  # TOML has no null

    assert tomllib.loads(text) == json.loads(json.dumps(expected))
    assert "# max_pairs" in text
    assert "# minutes" in text
