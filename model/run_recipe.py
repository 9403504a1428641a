"""The recipe a training run was begun with, kept as RUN/recipe.json, and whether another one may go on with the run."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from model.checkpoint import step_directories
from model.recipe import Recipe
from model.recipe_reading import build

RECIPE_NAME = "recipe.json"
# What a resumed run may have otherwise: how long it is, with the fall of the rate at its end, and when to look.
RESUMABLE = ("schedule.", "optimizer.cooldown_updates")


def require_same_recipe(run: Path, recipe: Recipe, may_differ: Sequence[str] = RESUMABLE) -> None:
    """Refuse to go on with a run by another recipe than it was begun with.

    A run without checkpoints has nothing to go on with, and one without a recipe nothing to compare.  A key that was
    not there yet when the recipe was written down had its default.

    Args:
        may_differ: beginnings of keys, as in `optimizer.dropout`.

    Raises:
        ValueError: they differ elsewhere, or what was written down is no recipe.
    """
    path = run / RECIPE_NAME
    if not step_directories(run) or not path.is_file():
        return
    try:
        before = build(Recipe, json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    old, new = dict(_entries(before.to_dict())), dict(_entries(recipe.to_dict()))
    changed = [key for key in new if old[key] != new[key] and not key.startswith(tuple(may_differ))]
    if changed:
        what = "; ".join(f"{key} was {old[key]!r} and is {new[key]!r}" for key in changed)
        raise ValueError(f"{run} was begun with another recipe: {what}; choose another directory, or that recipe")


def write_recipe(run: Path, recipe: Recipe) -> None:
    """Write the recipe down in the run's directory, in place of what is there."""
    partial = run / f".{RECIPE_NAME}.partial"  # a kill leaves no half recipe behind
    partial.write_text(json.dumps(recipe.to_dict(), indent=2) + "\n", encoding="utf-8")
    partial.replace(run / RECIPE_NAME)


def _entries(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """All values of nested tables by their dotted keys; a list is one value."""
    if not isinstance(value, dict):
        yield key, value
        return
    for name, inner in value.items():
        yield from _entries(inner, f"{key}.{name}" if key else name)
