"""What a run that was killed, or had ended, finds and keeps when it is begun again."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import model.evaluate
import model.train
from model.checkpoint import (
    RECIPE_NAME,
    Checkpoint,
    CheckpointMeta,
    load_checkpoint,
    load_trainer_state,
    save_checkpoint,
    step_directories,
)
from model.data import TrainingBatch
from model.tokenizer import train_tokenizer
from model.train import Trainer, prepare_run
from model.transformer import Transformer
from tests.conftest import ENGLISH, GERMAN
from tests.fakes.tiny_run import data, tiny_recipe, trainer

__all__ = ["data"]

_LOSSES_THAT_STALL = (5.0, 4.0, 3.0, 3.1, 3.2, 3.3, 3.4)  # the best is the third
STALLING: dict[str, Any] = {"validate_every": 1, "patience": 4, "average_last": 2, "keep_last": 2}
ONE_UPDATE: dict[str, Any] = {"max_updates": 1, "average_last": 1, "validation_sentences": 1}


@pytest.fixture
def other_tokenizer(tmp_path: Path) -> Path:
    """One that the run would not learn itself."""
    path = tmp_path / "other.spm"
    train_tokenizer([*ENGLISH, *GERMAN], path, vocab_size=120, model_type="bpe")
    return path


@pytest.fixture
def initial(data: Path, other_tokenizer: Path) -> Checkpoint:
    config = tiny_recipe(data).model
    meta = CheckpointMeta(name="tiny", source_language="en", target_language="de")
    weights = Transformer(config).initialize(7).state_dict()
    return Checkpoint(config=config, meta=meta, weights=weights, tokenizer_path=other_tokenizer)


@pytest.fixture
def stalling_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation loss falls until update 3 and rises from then on, in a resumed run too."""
    monkeypatch.setattr(model.train.Trainer, "_update", count_update)
    monkeypatch.setattr(model.train, "translate_greedily", lambda _, texts, __: texts)
    monkeypatch.setattr(model.train, "mean_nll", lambda weights, *_: _LOSSES_THAT_STALL[updates_of(weights) - 1])


def count_update(self: Trainer, batches: list[TrainingBatch]) -> tuple[float, float]:
    """An update that adds one to all weights, which therefore say how many there were."""
    with torch.no_grad():
        for parameter in self.model.parameters():
            parameter.fill_(self.progress.update + 1)
    self.progress.update += 1
    return 1.0, 1.0


def updates_of(weights: Transformer) -> int:
    return int(weights.embedding.weight[0, 0])


def averaged(run: Path) -> float:
    """The mean of the updates whose checkpoints are in the run's average."""
    return float(load_checkpoint(run / "average").weights["embedding.weight"][0, 0])


def steps_of(run: Path) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in step_directories(run)]


@pytest.mark.usefixtures("stalling_losses")
def test_a_run_that_stalls_averages_the_checkpoints_that_end_with_its_best(data, tmp_path):
    trainer(data, tmp_path / "run", **STALLING).train()

    assert steps_of(tmp_path / "run") == [2, 3, 6, 7]
    assert averaged(tmp_path / "run") == 2.5
    assert load_checkpoint(tmp_path / "run" / "average").meta.update == 3


@pytest.mark.usefixtures("stalling_losses")
def test_a_run_that_reaches_its_last_update_averages_the_last_checkpoints(data, tmp_path):
    trainer(data, tmp_path / "run", **STALLING | {"max_updates": 6}).train()

    assert averaged(tmp_path / "run") == 5.5
    assert load_checkpoint(tmp_path / "run" / "average").meta.update == 6


@pytest.mark.usefixtures("stalling_losses")
def test_a_resumed_run_still_knows_its_best_checkpoint(data, tmp_path):
    trainer(data, tmp_path / "run", **STALLING | {"max_updates": 5}).train()

    resumed = trainer(data, tmp_path / "run", **STALLING)
    resumed.resume()
    resumed.train()

    assert steps_of(tmp_path / "run") == [2, 3, 6, 7]
    assert averaged(tmp_path / "run") == 2.5


@pytest.mark.usefixtures("stalling_losses")
def test_a_run_that_goes_on_without_its_best_checkpoint_averages_its_last_ones(data, tmp_path):
    trainer(data, tmp_path / "run", **STALLING | {"max_updates": 5}).train()
    for path in step_directories(tmp_path / "run")[:-1]:
        shutil.rmtree(path)

    resumed = trainer(data, tmp_path / "run", **STALLING)
    resumed.resume()
    resumed.train()

    assert averaged(tmp_path / "run") == 6.5


@pytest.mark.usefixtures("stalling_losses")
def test_a_run_of_before_the_best_was_noted_averages_its_last_checkpoints(data, tmp_path):
    trainer(data, tmp_path / "run", **STALLING | {"max_updates": 5}).train()
    newest = step_directories(tmp_path / "run")[-1]
    state = load_trainer_state(newest)
    del state["progress"]["best_update"]
    save_checkpoint(newest, load_checkpoint(newest), state)

    resumed = trainer(data, tmp_path / "run", **STALLING)
    resumed.resume()
    resumed.train()

    assert steps_of(tmp_path / "run") == [6, 7]
    assert averaged(tmp_path / "run") == 6.5


def test_an_average_has_no_scores(data, tmp_path):
    trainer(data, tmp_path / "run", **ONE_UPDATE | {"max_updates": 2, "validate_every": 1, "average_last": 2}).train()

    assert load_checkpoint(step_directories(tmp_path / "run")[-1]).meta.scores
    assert not load_checkpoint(tmp_path / "run" / "average").meta.scores


def test_a_run_that_ended_early_does_not_go_on_when_it_is_resumed(data, tmp_path, monkeypatch):
    monkeypatch.setattr(model.train, "mean_nll", lambda *_: 1.0)
    schedule: dict[str, Any] = {"validate_every": 1, "patience": 1, "average_last": 1, "validation_sentences": 1}
    trainer(data, tmp_path / "run", **schedule).train()
    ended = [path.name for path in step_directories(tmp_path / "run")]

    resumed = trainer(data, tmp_path / "run", **schedule)
    resumed.resume()
    resumed.train()

    assert ended == ["step-00000001", "step-00000002"]
    assert [path.name for path in step_directories(tmp_path / "run")] == ended


def test_a_run_keeps_its_tokenizer_when_it_is_resumed_with_initial_weights(data, tmp_path, initial):
    trainer(data, tmp_path / "run", **ONE_UPDATE).train()
    own = (tmp_path / "run" / "shared.spm").read_bytes()

    resumed = trainer(data, tmp_path / "run", initial=initial, **ONE_UPDATE)
    resumed.resume()

    assert resumed.progress.update == 1
    assert (tmp_path / "run" / "shared.spm").read_bytes() == own != initial.tokenizer_path.read_bytes()


def test_a_tokenizer_left_without_a_checkpoint_is_learnt_anew(data, tmp_path, other_tokenizer):
    left = tmp_path / "run" / "shared.spm"
    left.parent.mkdir()
    other_tokenizer.rename(left)
    before = left.read_bytes()

    trainer(data, tmp_path / "run")

    assert left.read_bytes() != before


def test_a_point_without_its_checkpoint_is_forgotten(data, tmp_path, monkeypatch):
    killed = trainer(data, tmp_path / "run", **ONE_UPDATE)

    def kill(scores: dict[str, float]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(killed, "_save", kill)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    again = trainer(data, tmp_path / "run", **ONE_UPDATE)
    again.resume()
    again.train()

    assert [point["update"] for point in again.curve.points()] == [1]


def test_a_run_can_be_resumed_where_its_device_is_not(initial, tmp_path, monkeypatch):
    state = {"moment": torch.ones(2)}
    with monkeypatch.context() as patched:
        patched.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        save_checkpoint(tmp_path / "step", initial, state)

    loaded = load_trainer_state(tmp_path / "step")

    assert loaded["moment"].device.type == "cpu"
    assert torch.equal(loaded["moment"], state["moment"])


def test_another_recipe_does_not_go_on_with_a_run_and_leaves_no_trace(data, tmp_path):
    options: dict[str, Any] = {"device": "cpu", "precision": "fp32"}
    prepare_run(tiny_recipe(data, **ONE_UPDATE), data, tmp_path / "run", **options).train()
    before = (tmp_path / "run" / RECIPE_NAME).read_text()

    with pytest.raises(ValueError, match=r"optimizer\.matrices was 'adam' and is 'muon'"):
        prepare_run(tiny_recipe(data, "muon", **ONE_UPDATE), data, tmp_path / "run", **options)
    assert (tmp_path / "run" / RECIPE_NAME).read_text() == before
    longer = prepare_run(tiny_recipe(data, **ONE_UPDATE | {"max_updates": 2}), data, tmp_path / "run", **options)

    longer.resume()
    assert longer.progress.update == 1
    assert json.loads((tmp_path / "run" / RECIPE_NAME).read_text())["schedule"]["max_updates"] == 2


def test_a_recipe_is_written_down_once_the_run_can_begin(data, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"own\.en\.gz"):
        prepare_run(tiny_recipe(data), tmp_path, tmp_path / "run", device="cpu", precision="fp32")

    assert not (tmp_path / "run" / RECIPE_NAME).exists()


def test_a_run_begun_in_another_precision_goes_on_in_fp16(data, tmp_path):
    trainer(data, tmp_path / "run", **ONE_UPDATE).train()

    again = trainer(data, tmp_path / "run", torch.float16, **ONE_UPDATE | {"max_updates": 2})
    again.scaler = torch.amp.GradScaler("cpu")  # as if fp16 were possible here
    again.resume()

    assert again.progress.update == 1
    assert again.scaler.is_enabled()


def test_a_kill_while_the_curve_is_written_leaves_the_old_one(data, tmp_path, monkeypatch):
    run = trainer(data, tmp_path / "run", **ONE_UPDATE)
    run.train()

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(csv.DictWriter, "writerows", die)
    with pytest.raises(KeyboardInterrupt):
        run.curve.truncate(0)

    assert [point["update"] for point in run.curve.points()] == [1]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("model.safetensors", b"\x10", "header"),
        ("config.json", b"{", "Expecting property name"),
        ("config.json", b'{"depth": 3}', "unexpected keyword argument 'depth'"),
        ("meta.json", b"{}", "missing 3 required"),
    ],
)
def test_a_damaged_checkpoint_is_named(data, tmp_path, name, content, why):
    trainer(data, tmp_path / "run", **ONE_UPDATE).train()
    (tmp_path / "run" / "average" / name).write_bytes(content)

    with pytest.raises(ValueError, match=rf"checkpoint .*average is damaged: .*{why}"):
        load_checkpoint(tmp_path / "run" / "average")


def test_evaluate_reads_all_sets_before_it_begins(data, tmp_path):
    trainer(data, tmp_path / "run", **ONE_UPDATE).train()
    arguments = [str(tmp_path / "run" / "average"), "--data", str(data), "--set", "own", "--set", "other"]

    result = CliRunner().invoke(model.evaluate.app, arguments)

    assert result.exit_code == 2
    assert "other.en.gz does not exist" in " ".join(result.output.replace("│", "").split())
