"""Checkpoints, recipes and curves on disk: whole or not there, and what is damaged is named."""

from dataclasses import replace
from pathlib import Path

import pytest

from model.checkpoint import (
    load_checkpoint,
    require_same_recipe,
    save_checkpoint,
    step_directories,
    write_recipe,
)
from model.recipe import CorpusConfig, Languages, Recipe
from tests.fakes.tiny_model import write_tiny_checkpoint

RECIPE = Recipe(
    name="own", languages=Languages(source="en", target="de"), corpora=(CorpusConfig(name="a"), CorpusConfig(name="b"))
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_tiny_checkpoint(tmp_path / "tiny")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of RECIPE with a checkpoint."""
    (tmp_path / "step-00000001").mkdir()
    (tmp_path / "step-00000001" / "model.safetensors").touch()
    write_recipe(tmp_path, RECIPE)
    return tmp_path


def test_a_half_written_checkpoint_is_not_seen(checkpoint, tmp_path):
    (tmp_path / ".step-00000002.partial").mkdir()
    save_checkpoint(tmp_path / "step-00000001", load_checkpoint(checkpoint))
    (tmp_path / "step-00000003").mkdir()

    assert [path.name for path in step_directories(tmp_path)] == ["step-00000001"]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("model.safetensors", b"\x10", "header"),
        ("config.json", b"{", "Expecting property name"),
        ("config.json", b'{"depth": 3}', "unexpected keyword argument 'depth'"),
        ("meta.json", b"{}", "missing 3 required"),
    ],
)
def test_a_damaged_checkpoint_is_named(checkpoint, name, content, why):
    (checkpoint / name).write_bytes(content)

    with pytest.raises(ValueError, match=rf"checkpoint .*average is damaged: .*{why}"):
        load_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (replace(RECIPE, seed=2), "seed was 1 and is 2"),
        (replace(RECIPE, optimizer=replace(RECIPE.optimizer, dropout=0.2)), r"dropout was 0\.1 and is 0\.2; choose"),
        (replace(RECIPE, corpora=RECIPE.corpora[:1]), "corpora was"),
    ],
)
def test_another_recipe_is_refused_with_what_differs_unless_there_is_no_checkpoint(run, recipe, message):
    with pytest.raises(ValueError, match=message):
        require_same_recipe(run, recipe)
    (run / "step-00000001" / "model.safetensors").unlink()
    require_same_recipe(run, recipe)
