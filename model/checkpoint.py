"""A training run on disk: weights, what the weights are of, and what training needs to go on.

    RUN/step-00001000/   model.safetensors  config.json  meta.json  shared.spm  trainer.pt
    RUN/average/         the same without trainer.pt: the checkpoint to export

Every directory is written under another name and renamed, so that a kill leaves no half of one.  RUN/average, when it
is made again, is gone for a moment before that.  Files are synced, their directories are not: a power cut may take the
newest checkpoint back, and the run goes on from the one before.
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.bundle import MANIFEST_NAME, WEIGHTS_NAME, Bundle
from model.config import ModelConfig
from model.tokenizer import Tokenizer
from model.transformer import Transformer

WEIGHTS, CONFIG, META, TOKENIZER, TRAINER = "model.safetensors", "config.json", "meta.json", "shared.spm", "trainer.pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMeta:
    """What the weights are of."""

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

    def model(self) -> Transformer:
        """The model in evaluation mode."""
        model = Transformer(self.config)
        model.load_state_dict(self.weights)
        return model.eval()

    def tokenizer(self) -> Tokenizer:
        """The tokenizer the model was trained with."""
        return Tokenizer.load(self.tokenizer_path)


def save_checkpoint(directory: Path, checkpoint: Checkpoint, trainer_state: dict[str, Any] | None = None) -> None:
    """Write a checkpoint directory whole; an older one of that name is deleted just before it takes its place."""
    partial = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save_file({name: tensor.detach().contiguous() for name, tensor in checkpoint.weights.items()}, partial / WEIGHTS)
    (partial / CONFIG).write_text(json.dumps(checkpoint.config.to_dict(), indent=2) + "\n")
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
        BundleError: it is a bundle that is damaged.
    """
    if (directory / MANIFEST_NAME).is_file():
        return _from_bundle(Bundle.load(directory))
    for name in (WEIGHTS, CONFIG, META, TOKENIZER):
        if not (directory / name).is_file():
            raise FileNotFoundError(f"{directory} is no checkpoint: {name} is missing")
    try:
        return Checkpoint(
            config=ModelConfig.from_dict(json.loads((directory / CONFIG).read_text())),
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
    """Optimiser state, on the CPU whatever device it was on, and position of a checkpoint that training wrote."""
    state: dict[str, Any] = torch.load(directory / TRAINER, map_location="cpu", weights_only=True)
    return state


def step_directories(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted(path for path in run.glob("step-*") if (path / WEIGHTS).is_file())


def average_weights(directories: Sequence[Path]) -> dict[str, Tensor]:
    """Mean of several checkpoints' weights (section 6.1 of the paper averages the last 5 or 20).

    Raises:
        ValueError: no checkpoints.
    """
    return mean_weights(load_file(directory / WEIGHTS) for directory in directories)


def mean_weights(models: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Mean of several models' weights, one in memory at a time, summed in fp64.

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
