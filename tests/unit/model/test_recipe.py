"""Recipes: the shipped ones load, wrong ones say what is wrong."""

from pathlib import Path

import pytest

import model.recipe
from model.bundle import included_bundle_dirs
from model.config import NormPlacement
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


# A corpus that models made of another one; they learnt from the same corpora.
DERIVED = {"tatoeba-said", "tatoeba-said-de"}


@pytest.mark.parametrize(
    "name", [*(directory.name for directory in included_bundle_dirs()), "en-de-said", "de-en-said"]
)
def test_an_included_model_uses_only_corpora_whose_weights_may_be_shipped(name):
    recipe = load_recipe(next(path for path in RECIPES if path.stem == name))

    assert {corpus.name for corpus in recipe.corpora} <= ALLOWED_FOR_SHIPPED_WEIGHTS | DERIVED
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
        (
            SMALLEST + "corpora = []\naugmentation = {sample_pieces = 0.4}\n[tokenizer]\nmodel_type = 'bpe'",
            "sample_pieces is 0.4, tokenizer.model_type 'bpe': pieces are drawn from a unigram model alone",
        ),
        (SMALLEST, "corpora is missing"),
        (SMALLEST + "corpora = [{}]", r"corpora\[0\]\.name is missing"),
        ("name = ", "recipe"),
    ],
)
def test_wrong_recipe_says_what_is_wrong(tmp_path, text, message):
    path = tmp_path / "wrong.toml"
    path.write_text(text)

    with pytest.raises(ValueError, match=message) as caught:
        load_recipe(path)

    assert "wrong.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("schedule.validation_sets = 'dev'", r"schedule\.validation_sets is 'dev', it must be a list"),
        ("schedule.validation_sets = ['dev', 3]", r"schedule\.validation_sets\[1\] is 3, it must be text"),
        ("optimizer.dropout = '0.1'", r"optimizer\.dropout is '0\.1', it must be a number"),
        ("optimizer.warmup_updates = 2.5", r"optimizer\.warmup_updates is 2\.5, it must be a whole number"),
        ("optimizer.warmup_updates = true", r"optimizer\.warmup_updates is True, it must be a whole number"),
        ("optimizer.starts_at_peak = 1", r"optimizer\.starts_at_peak is 1, it must be true or false"),
        ("optimizer.betas = [0.9]", r"optimizer\.betas has 1 entries, it must have 2"),
        ("optimizer = 3", "optimizer is 3, it must be a table"),
        ("model.norm_placement = 'none'", r"model\.norm_placement is 'none', accepted are 'pre' and 'post'"),
        ("corpora = [{name = 'a', max_pairs = 'all'}]", r"corpora\[0\]\.max_pairs is 'all', it must be a whole number"),
    ],
)
def test_a_value_of_another_type_is_refused(tmp_path, table, message):
    path = tmp_path / "wrong.toml"
    path.write_text(SMALLEST + ("" if table.startswith("corpora") else "corpora = []\n") + table)

    with pytest.raises(ValueError, match=message):
        load_recipe(path)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("model.vocab_size = 90", r"tokenizer\.vocab_size is 8000, it must be model\.vocab_size \(90\)"),
        (
            "batches.max_sentence_tokens = 600",
            r"batches\.max_sentence_tokens is 600, at most model\.max_positions \(512\) is accepted",
        ),
        ("schedule.average_last = 11", r"schedule\.keep_last is 10, at least average_last \(11\) is needed"),
        ("schedule.average_last = 0", r"schedule\.average_last is 0, at least 1 is needed"),
        ("schedule.validate_every = 0", r"schedule\.validate_every is 0, at least 1 is needed"),
        ("schedule.patience = 0", r"schedule\.patience is 0, at least 1 is needed"),
        ("optimizer.warmup_updates = 0", r"optimizer\.warmup_updates is 0, at least 1 is needed"),
        ("optimizer.accumulate_batches = 0", r"optimizer\.accumulate_batches is 0, at least 1 is needed"),
        ("optimizer.cooldown_updates = -1", r"optimizer\.cooldown_updates is -1, at least 0 is needed"),
        ("optimizer.clip_norm = -1.0", r"optimizer\.clip_norm is -1\.0, it must be above 0"),
        ("optimizer.peak_learning_rate = nan", r"optimizer\.peak_learning_rate is nan, it must be above 0"),
        ("optimizer.dropout = 1.0", r"optimizer\.dropout is 1\.0, it must be at least 0 and below 1"),
        ("optimizer.label_smoothing = 3", r"optimizer\.label_smoothing is 3\.0, it must be at least 0 and below 1"),
        ("optimizer.betas = [0.9, 1.0]", r"optimizer\.betas\[1\] is 1\.0, it must be at least 0 and below 1"),
        ("augmentation.concatenate = 1.5", r"augmentation\.concatenate is 1\.5, it must be at least 0 and at most 1"),
        ("tokenizer.character_coverage = 2", r"character_coverage is 2\.0, it must be at least 0 and at most 1"),
        ("batches.max_tokens = 0", r"batches\.max_tokens is 0, at least 1 is needed"),
        ("schedule.validation_sets = []", r"schedule\.validation_sets is empty, at least one is needed"),
        ("[[corpora]]\nname = 'own'\nrepeat = 0", "corpus 'own'\\.repeat is 0, at least 1 is needed"),
        ("[[corpora]]\nname = 'own'\nmax_pairs = -1", "corpus 'own'\\.max_pairs is -1, at least 1 is needed"),
    ],
)
def test_values_that_no_run_could_keep_are_refused(tmp_path, table, message):
    path = tmp_path / "wrong.toml"
    path.write_text(SMALLEST + ("" if "corpora" in table else "corpora = []\n") + table)

    with pytest.raises(ValueError, match=message):
        load_recipe(path)


def test_a_whole_number_is_taken_for_a_number_and_text_for_a_choice(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(f"{SMALLEST}corpora = []\noptimizer.clip_norm = 2\nmodel.norm_placement = 'post'")

    recipe = load_recipe(path)

    assert isinstance(recipe.optimizer.clip_norm, float)
    assert recipe.model.norm_placement is NormPlacement.POST


def test_values_reach_their_dataclass(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(SMALLEST + '[[corpora]]\nname = "a"\nmax_pairs = 5\n[schedule]\nvalidation_sets = ["u", "v"]\n')

    recipe = load_recipe(path)

    assert recipe.corpora[0].max_pairs == 5
    assert recipe.schedule.validation_sets == ("u", "v")
    assert recipe.languages.target == "de"
