"""An ablation: each variant lacks one part and nothing else; the command trains and scores them all."""

import json
from dataclasses import fields, replace
from pathlib import Path

from typer.testing import CliRunner

import model.recipe
import model.tools.ablation
from model.recipe import Recipe, load_recipe
from model.tools.ablation import ablations, shorten
from tests.fakes.tiny_run import data

__all__ = ["data"]

MULTI30K = Path(model.recipe.__file__).parent / "recipes" / "multi30k.toml"


def differences(recipe: Recipe, other: Recipe) -> set[str]:
    """Names of the optimiser's fields in which two otherwise equal recipes differ."""
    assert replace(recipe, optimizer=other.optimizer) == other
    names = (entry.name for entry in fields(recipe.optimizer))
    return {name for name in names if getattr(recipe.optimizer, name) != getattr(other.optimizer, name)}


def test_each_variant_lacks_one_part_and_nothing_else():
    published = load_recipe(MULTI30K)
    recipe = replace(published, optimizer=replace(published.optimizer, cooldown_updates=100, matrices="muon"))

    found = {name: differences(recipe, ablated) for name, ablated in ablations(recipe).items()}

    assert found == {
        "whole recipe": set(),
        "without warm-up": {"starts_at_peak"},
        "without label smoothing": {"label_smoothing"},
        "without dropout": {"dropout"},
        "without cool-down": {"cooldown_updates"},
        "without Muon": {"matrices"},
    }


def test_a_shortened_recipe_keeps_its_proportions_and_does_not_end_early():
    recipe = load_recipe(MULTI30K)

    short = shorten(recipe, recipe.schedule.max_updates // 4)

    assert short.optimizer.warmup_updates * 4 == recipe.optimizer.warmup_updates
    assert short.schedule.validate_every * 4 == recipe.schedule.validate_every
    assert short.schedule.average_last == recipe.schedule.average_last
    assert short.schedule.patience == short.schedule.max_updates


def test_the_command_scores_every_variant_with_and_without_averaging(data, tmp_path, monkeypatch):
    monkeypatch.setattr("model.checkpoint.CurveLog.draw", lambda _: None)
    monkeypatch.setattr(model.tools.ablation, "ablations", lambda recipe: dict(list(ablations(recipe).items())[:2]))
    recipe = (data / "recipe.toml").read_text().replace("validate_every = 10", "validate_every = 30")
    (tmp_path / "recipe.toml").write_text(recipe)
    arguments = [str(tmp_path / "recipe.toml"), "--data", str(data), "--out", str(tmp_path), "--set", "dev/own"]

    result = CliRunner().invoke(model.tools.ablation.app, [*arguments, "--max-updates", "10", "--precision", "fp32"])

    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout.splitlines()[-1])
    assert [run["name"] for run in answer["runs"]] == ["whole recipe", "without warm-up"]
    assert all(run["last"] >= 0 and run["average"] >= 0 for run in answer["runs"])
    assert (tmp_path / "without-warm-up-10" / "average").is_dir()


def test_a_mistyped_test_set_is_noticed_before_anything_is_trained(data, tmp_path):
    arguments = [str(data / "recipe.toml"), "--data", str(data), "--out", str(tmp_path), "--set", "dev/typo"]

    result = CliRunner().invoke(model.tools.ablation.app, [*arguments, "--max-updates", "10"])

    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []
