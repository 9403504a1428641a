"""Recipes: the shipped ones load, wrong ones say what is wrong."""

from pathlib import Path

import pytest

import model.recipe
from model.recipe import load_recipe
from model.transformer import Transformer

RECIPES = sorted((Path(model.recipe.__file__).parent / "recipes").glob("*.toml"))
ALLOWED_FOR_SHIPPED_WEIGHTS = {
    "tatoeba", "ms_businesscentral_docs", "suttacentral", "europarl20k", "mlqe_pe_wikipedia", "mozilla_www_l10n",
}  # fmt: skip
SMALLEST = 'name = "x"\nlanguages = {source = "en", target = "de"}\n'


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_shipped_recipe_loads_and_its_vocabularies_agree(path):
    recipe = load_recipe(path)

    assert recipe.model.vocab_size == recipe.tokenizer.vocab_size


def test_the_embedded_default_uses_only_corpora_whose_weights_may_be_shipped():
    recipe = load_recipe(next(path for path in RECIPES if path.stem == "en-de"))

    assert {corpus.name for corpus in recipe.corpora} <= ALLOWED_FOR_SHIPPED_WEIGHTS
    assert Transformer(recipe.model).num_parameters <= 20_000_000


def test_the_multi30k_recipe_is_the_published_tiny_transformer():
    recipe = load_recipe(next(path for path in RECIPES if path.stem == "multi30k"))

    assert (recipe.model.num_encoder_layers, recipe.model.num_decoder_layers) == (4, 4)
    assert (recipe.model.d_model, recipe.model.d_ff, recipe.model.num_heads) == (128, 256, 4)
    assert (recipe.optimizer.dropout, recipe.optimizer.label_smoothing) == (0.3, 0.1)
    assert (recipe.optimizer.peak_learning_rate, recipe.optimizer.warmup_updates) == (5e-3, 2_000)
    assert recipe.schedule.keep_last >= recipe.schedule.average_last == 10


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            SMALLEST + "corpora = []\n[optimizer]\nwarmup = 3",
            "unknown key 'warmup' for OptimizerConfig; known are peak_learning_rate",
        ),
        (
            SMALLEST + "corpora = []\n[optimizer]\nmatrices = 'sgd'",
            "optimizer.matrices is 'sgd', accepted are 'adam' and 'muon'",
        ),
        (SMALLEST + "corpora = []\n[model]\nnum_heads = 3", "d_model is 256, it must be a multiple of num_heads"),
        (SMALLEST, "corpora"),
        ("name = ", "recipe"),
    ],
)
def test_wrong_recipe_says_what_is_wrong(tmp_path, text, message):
    path = tmp_path / "wrong.toml"
    path.write_text(text)

    with pytest.raises(ValueError, match=message) as caught:
        load_recipe(path)

    assert "wrong.toml" in str(caught.value)


def test_values_reach_their_dataclass(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(SMALLEST + '[[corpora]]\nname = "a"\nmax_pairs = 5\n[schedule]\nvalidation_sets = ["u", "v"]\n')

    recipe = load_recipe(path)

    assert recipe.corpora[0].max_pairs == 5
    assert recipe.schedule.validation_sets == ("u", "v")
    assert recipe.languages.target == "de"
