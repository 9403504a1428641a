"""A whole small run: it learns, a killed run resumes to the same weights, the right checkpoints are averaged."""

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import model.train
from model.checkpoint import (
    RECIPE_NAME,
    CurveLog,
    load_checkpoint,
    save_checkpoint,
    step_directories,
)
from model.data import TrainingBatch
from model.train import Trainer, prepare_run
from model.transformer import Transformer
from tests.fakes.tiny_model import write_tiny_checkpoint
from tests.fakes.tiny_run import data, tiny_recipe, trainer

__all__ = ["data"]

_LOSSES_THAT_STALL = (5.0, 4.0, 3.0, 3.1, 3.2, 3.3, 3.4)  # the best is the third
STALLING: dict[str, Any] = {"validate_every": 1, "patience": 4, "average_last": 2, "keep_last": 2}
ONE_UPDATE: dict[str, Any] = {"max_updates": 1, "average_last": 1, "validation_sentences": 1}
SHORT: dict[str, Any] = {"max_updates": 6, "validate_every": 2, "average_last": 2, "validation_sentences": 1}


@pytest.fixture(scope="module")
def whole_run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "whole"
    trainer(data, run).train()
    return run


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the curve of `whole_run` alone: a picture takes longer than an update."""
    monkeypatch.setattr(CurveLog, "draw", lambda _: None)


def resume(data: Path, run: Path, **options: Any) -> Trainer:
    """The trainer of a run that goes on where it stood."""
    resumed = trainer(data, run, **options)
    resumed.resume()
    return resumed


def test_a_run_learns_and_leaves_a_curve_and_the_average_of_its_last_checkpoints(whole_run, data):
    points = trainer(data, whole_run).curve.points()
    average, last = load_checkpoint(whole_run / "average"), [load_checkpoint(p) for p in step_directories(whole_run)]

    assert [point["update"] for point in points] == [10, 20, 30]
    assert points[2]["dev_loss"] < 0.9 * points[0]["dev_loss"]
    assert (whole_run / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert (average.meta.update, average.meta.target_language) == (30, "de")
    assert last[-1].meta.scores
    assert not average.meta.scores
    for name, tensor in average.weights.items():
        assert torch.allclose(tensor, (last[-2].weights[name] + last[-1].weights[name]) / 2, atol=1e-6)


@pytest.mark.parametrize("matrices", ["adam", "muon"])
def test_a_killed_run_resumes_to_the_same_weights(data, tmp_path, monkeypatch, matrices):
    trainer(data, tmp_path / "whole", matrices=matrices, **SHORT).train()
    killed = trainer(data, tmp_path / "run", matrices=matrices, **SHORT)
    updates, update = itertools.count(1), killed._update

    def update_until_killed(batches):
        if next(updates) == 6:
            raise KeyboardInterrupt
        return update(batches)

    monkeypatch.setattr(killed, "_update", update_until_killed)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    resumed = resume(data, tmp_path / "run", matrices=matrices, **SHORT)
    assert resumed.progress.update == 4
    resumed.train()

    expected, found = (load_checkpoint(tmp_path / run / "step-00000006").weights for run in ("whole", "run"))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert [point["update"] for point in resumed.curve.points()] == [2, 4, 6]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is a second later whenever it is looked at."""
    monkeypatch.setattr(model.train, "time", SimpleNamespace(monotonic=itertools.count(1_000.0).__next__))


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("minutes", [0.5, 2.0])
def test_the_whole_schedule_fits_the_minutes_that_are_given(data, tmp_path, monkeypatch, minutes):
    short: dict[str, Any] = {"validate_every": 10, "average_last": 1, "validation_sentences": 1}
    run = trainer(data, tmp_path / "run", minutes=minutes, **short)
    rates: list[float] = []
    monkeypatch.setattr(run, "_report", lambda *_: rates.append(run.optimizer.param_groups[0]["lr"]))

    run.train()

    top = max(range(len(rates)), key=rates.__getitem__)
    assert len(run.curve.points()) == 3  # at a third, two thirds and the end, as of 30 updates
    assert 0.5 < top / len(rates) < 0.85  # the warm-up takes 20 of 30 updates
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 60 * minutes <= run.progress.elapsed_s < 60 * minutes + 10


@pytest.fixture
def stalling_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation loss falls until update 3 and rises from then on, in a resumed run too."""

    def count_update(self: Trainer, batches: list[TrainingBatch]) -> tuple[float, float]:
        """Make all weights the number of updates so far."""
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.fill_(self.progress.update + 1)
        self.progress.update += 1
        return 1.0, 1.0

    def loss(weights: Transformer, *_: object) -> float:
        return _LOSSES_THAT_STALL[int(weights.embedding.weight[0, 0]) - 1]

    monkeypatch.setattr(model.train.Trainer, "_update", count_update)
    monkeypatch.setattr(model.train, "translate_greedily", lambda _, texts, __: texts)
    monkeypatch.setattr(model.train, "mean_nll", loss)


def averaged(run: Path) -> tuple[float, int]:
    """The mean of the updates whose checkpoints are in the run's average, and the last of them."""
    average = load_checkpoint(run / "average")
    return float(average.weights["embedding.weight"][0, 0]), average.meta.update


def steps_of(run: Path) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in step_directories(run)]


@pytest.mark.usefixtures("stalling_losses")
def test_a_run_that_stalls_averages_the_checkpoints_that_end_with_its_best(data, tmp_path):
    trainer(data, tmp_path / "run", **STALLING | {"max_updates": 5}).train()
    assert averaged(tmp_path / "run") == (4.5, 5)  # it reached its last update first

    resume(data, tmp_path / "run", **STALLING).train()

    assert steps_of(tmp_path / "run") == [2, 3, 6, 7]
    assert averaged(tmp_path / "run") == (2.5, 3)


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


def test_the_command_refuses_to_overwrite_a_run_and_names_what_is_missing(whole_run, data, tmp_path):
    def run(corpora: Path, out: Path) -> tuple[int, str]:
        arguments = [str(data / "recipe.toml"), "--data", str(corpora), "--out", str(out)]
        result = CliRunner().invoke(model.train.app, arguments)
        return result.exit_code, " ".join(result.output.split())

    for (code, said), reason in (
        (run(data, whole_run), "holds a run already"),
        (run(tmp_path, tmp_path / "run"), "own.en.gz does not exist; expected DATA/train/NAME/NAME.LANG.gz"),
    ):
        assert code == 2
        assert reason in said
    assert not (tmp_path / "run" / RECIPE_NAME).exists()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_tiny_checkpoint(tmp_path / "tiny")


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
