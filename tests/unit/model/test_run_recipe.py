"""Which recipes may go on with a run that another began."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from model.checkpoint import RECIPE_NAME, require_same_recipe, write_recipe
from model.recipe import CorpusConfig, Languages, Recipe

RECIPE = Recipe(
    name="own", languages=Languages(source="en", target="de"), corpora=(CorpusConfig(name="a"), CorpusConfig(name="b"))
)
LONGER = replace(
    RECIPE,
    schedule=replace(RECIPE.schedule, max_updates=20_000),
    optimizer=replace(RECIPE.optimizer, cooldown_updates=500),
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of RECIPE with a checkpoint."""
    (tmp_path / "step-00000001").mkdir()
    (tmp_path / "step-00000001" / "model.safetensors").touch()
    write_recipe(tmp_path, RECIPE)
    return tmp_path


def test_the_same_recipe_goes_on(run):
    require_same_recipe(run, RECIPE, may_differ=())


def test_a_longer_schedule_goes_on_unless_nothing_may_differ(run):
    require_same_recipe(run, LONGER)

    with pytest.raises(
        ValueError, match=r"optimizer\.cooldown_updates was 0 and is 500; schedule\.max_updates was 10000 and is 20000"
    ):
        require_same_recipe(run, LONGER, may_differ=())


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (replace(RECIPE, seed=2), "seed was 1 and is 2"),
        (
            replace(RECIPE, optimizer=replace(RECIPE.optimizer, dropout=0.2)),
            r"optimizer\.dropout was 0\.1 and is 0\.2; choose another directory, or that recipe",
        ),
        (replace(RECIPE, corpora=RECIPE.corpora[:1]), "corpora was"),
    ],
)
def test_another_recipe_is_refused_with_what_differs(run, recipe, message):
    with pytest.raises(ValueError, match=message):
        require_same_recipe(run, recipe)


def test_a_key_that_an_older_recipe_lacks_had_its_default(run):
    written = json.loads((run / RECIPE_NAME).read_text())
    del written["optimizer"]["matrices"]
    (run / RECIPE_NAME).write_text(json.dumps(written))

    require_same_recipe(run, RECIPE)
    with pytest.raises(ValueError, match=r"optimizer\.matrices was 'adam' and is 'muon'"):
        require_same_recipe(run, replace(RECIPE, optimizer=replace(RECIPE.optimizer, matrices="muon")))


def test_a_run_without_checkpoints_takes_any_recipe(tmp_path):
    write_recipe(tmp_path, RECIPE)

    require_same_recipe(tmp_path, replace(RECIPE, seed=2))


def test_what_is_no_recipe_is_refused_with_its_path(run):
    (run / RECIPE_NAME).write_text("{")

    with pytest.raises(ValueError, match=r"recipe\.json: Expecting"):
        require_same_recipe(run, RECIPE)
