"""Checkpoints, recipes and curves on disk: whole or not there, and what is damaged is named."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.checkpoint import (
    RECIPE_NAME,
    CurveLog,
    CurvePoint,
    load_checkpoint,
    load_trainer_state,
    mean_weights,
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
LONGER = replace(
    RECIPE,
    schedule=replace(RECIPE.schedule, max_updates=20_000),
    optimizer=replace(RECIPE.optimizer, cooldown_updates=500),
)
POINT = CurvePoint(
    update=1,
    epoch=0,
    minutes=0.1,
    target_tokens=9,
    learning_rate=1e-3,
    train_loss=5,
    dev_loss=5,
    dev_bleu=0,
    dev_chrf=9,
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


def test_a_missing_part_is_named(checkpoint):
    (checkpoint / "model.safetensors").unlink()

    with pytest.raises(FileNotFoundError, match=r"is no checkpoint: model\.safetensors is missing"):
        load_checkpoint(checkpoint)
    with pytest.raises(ValueError, match="no checkpoints to average"):
        mean_weights([])


def test_a_run_can_be_resumed_where_its_device_is_not(checkpoint, tmp_path, monkeypatch):
    state = {"moment": torch.ones(2)}
    with monkeypatch.context() as patched:
        patched.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        save_checkpoint(tmp_path / "step", load_checkpoint(checkpoint), state)

    loaded = load_trainer_state(tmp_path / "step")

    assert loaded["moment"].device.type == "cpu"
    assert torch.equal(loaded["moment"], state["moment"])


def test_a_longer_schedule_goes_on_unless_nothing_may_differ(run):
    require_same_recipe(run, RECIPE, may_differ=())
    require_same_recipe(run, LONGER)

    with pytest.raises(
        ValueError, match=r"optimizer\.cooldown_updates was 0 and is 500; schedule\.max_updates was 10000 and is 20000"
    ):
        require_same_recipe(run, LONGER, may_differ=())


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


def test_a_key_that_an_older_recipe_lacks_had_its_default(run):
    written = json.loads((run / RECIPE_NAME).read_text())
    del written["optimizer"]["matrices"]
    (run / RECIPE_NAME).write_text(json.dumps(written))

    require_same_recipe(run, RECIPE)
    with pytest.raises(ValueError, match=r"optimizer\.matrices was 'adam' and is 'muon'"):
        require_same_recipe(run, replace(RECIPE, optimizer=replace(RECIPE.optimizer, matrices="muon")))


def test_a_kill_while_the_curve_is_written_leaves_the_old_one(tmp_path, monkeypatch):
    curve = CurveLog(tmp_path)
    curve.append(POINT)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(csv.DictWriter, "writerows", die)
    with pytest.raises(KeyboardInterrupt):
        curve.truncate(0)

    assert [point["update"] for point in curve.points()] == [1]
