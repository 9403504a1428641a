"""An ablation: each variant lacks one part and nothing else; the command trains and scores them all."""

import gzip
import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import model.recipe
import model.tools.ablation
from model.checkpoint import write_recipe
from model.recipe import Recipe, load_recipe
from model.tools.ablation import shorten, variants
from tests.conftest import ENGLISH, GERMAN

MULTI30K = Path(model.recipe.__file__).parent / "recipes" / "multi30k.toml"
TINY = """
name = "tiny"
languages = {source = "en", target = "de"}
corpora = [{name = "own/own"}]
[model]
vocab_size = 120
d_model = 16
d_ff = 32
num_heads = 2
num_encoder_layers = 1
num_decoder_layers = 1
[tokenizer]
vocab_size = 120
[optimizer]
warmup_updates = 20
[schedule]
max_updates = 100
validate_every = 50
average_last = 2
validation_sets = ["own/own"]
"""


def differences(recipe: Recipe, other: Recipe) -> set[str]:
    """Names of the optimiser's fields in which two otherwise equal recipes differ."""
    assert replace(recipe, optimizer=other.optimizer) == other
    names = (entry.name for entry in fields(recipe.optimizer))
    return {name for name in names if getattr(recipe.optimizer, name) != getattr(other.optimizer, name)}


def test_each_variant_lacks_one_part_and_nothing_else():
    recipe = load_recipe(MULTI30K)

    found = {variant.name: differences(recipe, variant.recipe) for variant in variants(recipe)}

    assert found == {
        "whole recipe": set(),
        "without warm-up": {"starts_at_peak"},
        "without label smoothing": {"label_smoothing"},
        "without dropout": {"dropout"},
    }


def test_what_a_recipe_has_beyond_the_paper_is_left_out_too():
    published = load_recipe(MULTI30K)
    recipe = replace(published, optimizer=replace(published.optimizer, cooldown_updates=100, matrices="muon"))

    found = {variant.name: differences(recipe, variant.recipe) for variant in variants(recipe)[4:]}

    assert found == {"without cool-down": {"cooldown_updates"}, "without Muon": {"matrices"}}


def test_a_shortened_recipe_keeps_its_proportions_and_does_not_end_early():
    recipe = load_recipe(MULTI30K)

    short = shorten(recipe, recipe.schedule.max_updates // 4)

    assert short.optimizer.warmup_updates * 4 == recipe.optimizer.warmup_updates
    assert short.schedule.validate_every * 4 == recipe.schedule.validate_every
    assert short.schedule.average_last == recipe.schedule.average_last
    assert short.schedule.patience == short.schedule.max_updates


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    (root / "own").mkdir()
    for language, lines in (("en", ENGLISH), ("de", GERMAN)):
        with gzip.open(root / "own" / f"own.{language}.gz", "wt", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in lines)
    (root / "recipe.toml").write_text(TINY)
    return root


def test_the_command_scores_every_variant_with_and_without_averaging(data, tmp_path):
    arguments = [str(data / "recipe.toml"), "--data", str(data), "--out", str(tmp_path), "--set", "own/own"]

    result = CliRunner().invoke(model.tools.ablation.app, [*arguments, "--max-updates", "10", "--precision", "fp32"])

    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout.splitlines()[-1])
    assert [run["name"] for run in answer["runs"]] == [
        "whole recipe", "without warm-up", "without label smoothing", "without dropout",
    ]  # fmt: skip
    assert all(run["last"] >= 0 and run["average"] >= 0 for run in answer["runs"])
    assert (tmp_path / "without-dropout-10" / "average").is_dir()


def test_a_mistyped_test_set_is_noticed_before_anything_is_trained(data, tmp_path):
    arguments = [str(data / "recipe.toml"), "--data", str(data), "--out", str(tmp_path), "--set", "own/typo"]

    result = CliRunner().invoke(model.tools.ablation.app, [*arguments, "--max-updates", "10"])

    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_the_command_refuses_runs_of_another_recipe(data, tmp_path):
    run = tmp_path / "whole-recipe-10"
    (run / "step-00000010").mkdir(parents=True)
    (run / "step-00000010" / "model.safetensors").touch()
    recipe = shorten(load_recipe(data / "recipe.toml"), 10)
    write_recipe(run, replace(recipe, schedule=replace(recipe.schedule, average_last=3)))
    arguments = [str(data / "recipe.toml"), "--data", str(data), "--out", str(tmp_path), "--set", "own/own"]

    result = CliRunner().invoke(model.tools.ablation.app, [*arguments, "--max-updates", "10", "--precision", "fp32"])

    assert result.exit_code == 2
    assert "schedule.average_last was 3 and is 2" in " ".join(result.output.replace("│", "").split())


def test_the_command_names_a_missing_corpus(data, tmp_path):
    arguments = [str(data / "recipe.toml"), "--data", str(tmp_path), "--out", str(tmp_path), "--set", "own/own"]

    result = CliRunner().invoke(model.tools.ablation.app, arguments)

    assert result.exit_code == 2
    assert "own.en.gz does not exist" in " ".join(result.output.split())
