"""An ablation: each variant lacks one part and nothing else; the command trains and scores them all."""

from dataclasses import fields, replace
from pathlib import Path

import model.recipe
import model.tools.ablation
from model.recipe import Recipe, load_recipe
from model.tools.ablation import ablations
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
