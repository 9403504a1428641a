"""A training run on disk: checkpoints, the recipe it was begun with, and its curve.

    RUN/step-00001000/   model.safetensors  config.json  meta.json  shared.spm  trainer.pt
    RUN/average/         the same without trainer.pt: the checkpoint to export
    RUN/recipe.json      the recipe
    RUN/curve.{csv,png}  loss and quality at each validation

Everything is written under another name and renamed, so that a kill leaves no half of it; only RUN/average, when it is
made again, is gone for a moment before that.  Files are synced, their directories are not: a power cut may take the
newest checkpoint back, and the run goes on from the one before.
"""

import csv
import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.bundle import MANIFEST_NAME, WEIGHTS_NAME, Bundle
from model.config import ModelConfig
from model.files import write_whole, writing
from model.recipe import Recipe, build
from model.recurrent import Recurrent
from model.tokenizer import Tokenizer
from model.transformer import Transformer

WEIGHTS, CONFIG, META, TOKENIZER, TRAINER = "model.safetensors", "config.json", "meta.json", "shared.spm", "trainer.pt"
RECIPE_NAME = "recipe.json"
# Keys of a recipe that a resumed run may change: how long it is, the fall of the rate at its end, and when to look.
# Not what it looks at: losses of other sets do not compare, and pairs that are held out later were trained on.
RESUMABLE = (
    "schedule.max_updates",
    "schedule.minutes",
    "schedule.validate_every",
    "schedule.patience",
    "schedule.average_last",
    "schedule.keep_last",
    "optimizer.cooldown_updates",
)


def build_model(config: ModelConfig, dropout: float = 0.0) -> Transformer | Recurrent:
    """Return the module of a configuration, its weights not set: the one place that chooses the class."""
    return (Recurrent if config.is_recurrent else Transformer)(config, dropout)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMeta:
    """Name and direction of a model, and how far its training has come."""

    name: str
    source_language: str
    target_language: str
    update: int = 0  # optimiser updates so far
    scores: dict[str, float] = field(default_factory=dict)  # of its validation; an average has none


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Weights (fp32, names of `Transformer.state_dict`) with everything needed to translate or export."""

    config: ModelConfig
    meta: CheckpointMeta
    weights: dict[str, Tensor]
    tokenizer_path: Path

    def model(self) -> Transformer | Recurrent:
        """Return the model in evaluation mode."""
        model = build_model(self.config)
        model.load_state_dict(self.weights)
        return model.eval()

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer that the model was trained with."""
        return Tokenizer.load(self.tokenizer_path)


def save_checkpoint(directory: Path, checkpoint: Checkpoint, trainer_state: dict[str, Any] | None = None) -> None:
    """Write a checkpoint directory whole; an older one of that name is deleted just before it takes its place."""
    partial = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save_file({name: tensor.detach().contiguous() for name, tensor in checkpoint.weights.items()}, partial / WEIGHTS)
    (partial / CONFIG).write_text(json.dumps(asdict(checkpoint.config), indent=2) + "\n")
    (partial / META).write_text(json.dumps(asdict(checkpoint.meta), indent=2) + "\n")
    shutil.copyfile(checkpoint.tokenizer_path, partial / TOKENIZER)
    if trainer_state is not None:
        torch.save(trainer_state, partial / TRAINER)
    for path in partial.iterdir():
        with path.open("rb") as written:
            os.fsync(written.fileno())
    shutil.rmtree(directory, ignore_errors=True)
    partial.rename(directory)


def load_checkpoint(directory: Path) -> Checkpoint:
    """Read a checkpoint directory, or a bundle that kept its weights.

    Raises:
        FileNotFoundError: a part is missing; the message names it.
        ValueError: a part is damaged; the message names the directory.
        BundleError: the bundle is damaged.
    """
    if (directory / MANIFEST_NAME).is_file():
        return _from_bundle(Bundle.load(directory))
    for name in (WEIGHTS, CONFIG, META, TOKENIZER):
        if not (directory / name).is_file():
            raise FileNotFoundError(f"{directory} is no checkpoint: {name} is missing")
    try:
        return Checkpoint(
            config=ModelConfig(**json.loads((directory / CONFIG).read_text())),
            meta=CheckpointMeta(**json.loads((directory / META).read_text())),
            weights=load_file(directory / WEIGHTS),
            tokenizer_path=directory / TOKENIZER,
        )
    except (ValueError, TypeError, SafetensorError) as error:  # ValueError: no JSON, or no dimensions of a model
        raise ValueError(f"checkpoint {directory} is damaged: {error}") from error


def _from_bundle(bundle: Bundle) -> Checkpoint:
    manifest = bundle.manifest
    if not bundle.has_weights:
        why = f"was exported without {WEIGHTS_NAME}, or installed without"
        raise FileNotFoundError(f"{bundle.directory} {why}; give the checkpoint instead")
    return Checkpoint(
        config=manifest.config,
        meta=CheckpointMeta(
            name=manifest.name, source_language=manifest.source_language, target_language=manifest.target_language
        ),
        weights={name: tensor.float() for name, tensor in load_file(bundle.path(WEIGHTS_NAME)).items()},
        tokenizer_path=bundle.tokenizer_path,
    )


def load_trainer_state(directory: Path) -> dict[str, Any]:
    """Return the optimiser state and the position of a checkpoint that training wrote, on the CPU."""
    state: dict[str, Any] = torch.load(directory / TRAINER, map_location="cpu", weights_only=True)
    return state


def step_name(update: int) -> str:
    """Return the name of the checkpoint directory of an update; names sort as the updates do."""
    return f"step-{update:08d}"


def step_directories(run: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return sorted(path for path in run.glob("step-*") if (path / WEIGHTS).is_file())


def mean_weights(models: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of several models' weights, summed in fp64 with one model in memory at a time.

    The paper averages the last 5 or 20 checkpoints (section 6.1).

    Raises:
        ValueError: no models.
    """
    total: dict[str, Tensor] = {}
    count = 0
    for weights in models:
        count += 1
        for name, tensor in weights.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    if not count:
        raise ValueError("no checkpoints to average")
    return {name: (tensor / count).float() for name, tensor in total.items()}


def require_same_recipe(run: Path, recipe: Recipe, may_differ: Sequence[str] = RESUMABLE) -> None:
    """Refuse to continue a run with another recipe than it was begun with.

    A run without checkpoints has nothing to continue, and one without a recipe nothing to compare.  A key that was
    unknown when the recipe was written down had its default.  `may_differ` has beginnings of keys.

    Raises:
        ValueError: the recipes differ elsewhere, or what was written down is no recipe.
    """
    path = run / RECIPE_NAME
    if not step_directories(run) or not path.is_file():
        return
    try:
        before = build(Recipe, json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    old, new = dict(_entries(asdict(before))), dict(_entries(asdict(recipe)))
    changed = [key for key in new if old[key] != new[key] and not key.startswith(tuple(may_differ))]
    if changed:
        what = "; ".join(f"{key} was {old[key]!r} and is {new[key]!r}" for key in changed)
        raise ValueError(f"{run} was begun with another recipe: {what}; choose another directory, or that recipe")


def write_recipe(run: Path, recipe: Recipe) -> None:
    """Write the recipe down in the run's directory, in place of what is there."""
    write_whole(run / RECIPE_NAME, f"{json.dumps(asdict(recipe), indent=2)}\n".encode())


def _entries(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """All values of nested tables by their dotted keys; a list is one value."""
    if not isinstance(value, dict):
        yield key, value
        return
    for name, inner in value.items():
        yield from _entries(inner, f"{key}.{name}" if key else name)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Loss and quality at one validation."""

    update: int
    epoch: int
    minutes: float
    target_tokens: int  # trained on so far
    learning_rate: float
    train_loss: float  # label-smoothed, nats per token, mean since the last validation
    dev_loss: float  # negative log-likelihood, nats per token
    dev_bleu: float  # greedy search
    dev_chrf: float


class CurveLog:
    """Appends points to RUN/curve.csv and redraws RUN/curve.png."""

    def __init__(self, run: Path) -> None:
        self._csv, self._png = run / "curve.csv", run / "curve.png"

    def append(self, point: CurvePoint) -> None:
        """Record one validation."""
        self._write([*self._rows(), asdict(point)])
        self.draw()

    def truncate(self, update: int) -> None:
        """Forget points after `update`: a resumed run makes them again."""
        self._write([row for row in self._rows() if int(row["update"]) <= update])

    def points(self) -> list[dict[str, float]]:
        """Return all points so far."""
        return [{name: float(value) for name, value in row.items()} for row in self._rows()]

    def draw(self) -> None:
        """Draw loss on the left, BLEU and chrF on the right, over millions of target tokens."""
        from matplotlib.figure import Figure  # noqa: PLC0415  # an export reads checkpoints without matplotlib

        points = self.points()
        tokens = [point["target_tokens"] / 1e6 for point in points]
        figure = Figure(figsize=(11, 4.2), layout="constrained")
        panels = {
            "Loss": {"train_loss": "training (label-smoothed)", "dev_loss": "validation"},
            "Validation, greedy search": {"dev_bleu": "BLEU", "dev_chrf": "chrF"},
        }
        for axes, (title, lines) in zip(figure.subplots(1, 2), panels.items(), strict=True):
            for name, label in lines.items():
                axes.plot(tokens, [point[name] for point in points], marker=".", label=label)
            axes.set(xlabel="million target tokens", title=title)
            axes.grid(alpha=0.3)
            axes.legend()
        figure.axes[0].set_ylabel("nats per token")
        with writing(self._png) as out:
            figure.savefig(out, dpi=110)

    def _rows(self) -> list[dict[str, Any]]:
        if not self._csv.exists():
            return []
        with self._csv.open(newline="", encoding="utf-8") as lines:
            return list(csv.DictReader(lines))

    def _write(self, rows: list[dict[str, Any]]) -> None:
        table = io.StringIO(newline="")
        writer = csv.DictWriter(table, [entry.name for entry in fields(CurvePoint)])
        writer.writeheader()
        writer.writerows(rows)
        write_whole(self._csv, table.getvalue().encode())
