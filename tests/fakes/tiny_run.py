"""A training run small enough for a unit test: its corpus, its recipe, its trainer."""

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from model.checkpoint import Checkpoint
from model.recipe import Recipe, load_recipe
from model.train import Trainer
from tests.conftest import ENGLISH, GERMAN

RECIPE = """
name = "tiny"
languages = {source = "en", target = "de"}
corpora = [{name = "own", repeat = 3}]
[model]
vocab_size = 120
d_model = 32
d_ff = 64
num_heads = 2
num_encoder_layers = 1
num_decoder_layers = 1
[tokenizer]
vocab_size = 120
[batches]
max_tokens = 256
[optimizer]
peak_learning_rate = 5e-3
warmup_updates = 20
dropout = 0.1
accumulate_batches = 2
[schedule]
max_updates = 30
validate_every = 10
average_last = 2
keep_last = 3
validation_sets = ["own"]
"""


def write_pairs(directory: Path) -> None:
    directory.mkdir(parents=True)
    for language, lines in (("en", ENGLISH), ("de", GERMAN)):
        with gzip.open(directory / f"own.{language}.gz", "wt", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in lines)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the corpus and of recipe.toml."""
    root = tmp_path_factory.mktemp("data")
    write_pairs(root / "train" / "own")
    write_pairs(root / "dev")
    (root / "recipe.toml").write_text(RECIPE)
    return root


def tiny_recipe(data: Path, matrices: str = "adam", **schedule: Any) -> Recipe:
    """The recipe, with another schedule if asked for."""
    recipe = load_recipe(data / "recipe.toml")
    optimizer = replace(recipe.optimizer, matrices=matrices)
    return replace(recipe, optimizer=optimizer, schedule=replace(recipe.schedule, **schedule))


def trainer(
    data: Path,
    run: Path,
    precision: torch.dtype = torch.float32,
    initial: Checkpoint | None = None,
    matrices: str = "adam",
    **schedule: Any,
) -> Trainer:
    run.mkdir(parents=True, exist_ok=True)
    recipe = tiny_recipe(data, matrices, **schedule)
    return Trainer(recipe, data, run, device=torch.device("cpu"), precision=precision, initial=initial)
