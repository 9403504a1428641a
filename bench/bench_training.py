"""Target tokens per second of training updates: seeded random batches of one length, the recipe's model and optimiser.

    OMP_NUM_THREADS=2 python bench/bench_training.py

Synthetic: no data is read, every batch is full, nothing is validated or saved; a real run is slower.
"""

import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model.checkpoint import build_model
from model.data import Example, collate
from model.layers import Dropout
from model.loss import projected_cross_entropy
from model.optimizer import FASTEST, PRECISION_HELP, build_optimizer, choose_precision
from model.recipe import load_recipe
from tests.fakes.plain_loss import label_smoothed_cross_entropy

RECIPE = Path(__file__).resolve().parents[1] / "model" / "recipes" / "en-de.toml"


def main(
    recipe: Annotated[Path, typer.Option()] = RECIPE,
    length: Annotated[int, typer.Option(min=1, help="Tokens of each sentence.")] = 24,
    updates: Annotated[int, typer.Option(min=1, help="Timed, after two that are not.")] = 6,
    precision: Annotated[str, typer.Option(help=PRECISION_HELP)] = FASTEST,
) -> None:
    """Time updates with the loss in chunks, as training has it, and with all logits at once."""
    loaded = load_recipe(recipe)
    config, optimizer = loaded.config, loaded.optimizer
    torch.manual_seed(1)
    sides = torch.randint(4, config.vocab_size, (2, loaded.batches.max_tokens // length, length)).tolist()
    batch = collate([Example(source, target) for source, target in zip(*sides, strict=True)])
    num_tokens = batch.target_outputs.numel()
    model = build_model(config, optimizer.dropout).initialize(1).train()
    chosen = choose_precision(precision, torch.device("cpu"))
    is_lower = chosen is not torch.float32
    updater = build_optimizer(model, optimizer, chosen)

    def update(number: int, *, is_chunked: bool) -> float:
        began = time.perf_counter()
        Dropout.seed(1, number)
        with torch.autocast("cpu", chosen, enabled=is_lower):
            memory = model.encode(batch.source, batch.source_lengths)
            states = model.decode(batch.target_inputs, memory, batch.source_lengths)
        if is_chunked:
            loss = projected_cross_entropy(states, model.embedding.weight, batch.target_outputs, 0.1)
        else:
            with torch.autocast("cpu", chosen, enabled=is_lower):
                logits = model.project(states)
            loss = label_smoothed_cross_entropy(logits, batch.target_outputs, 0.1)
        (loss.smoothed / num_tokens).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), optimizer.clip_norm)
        updater.step()
        updater.zero_grad()
        return num_tokens / (time.perf_counter() - began)

    speeds: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 + updates):
        for is_chunked, found in speeds.items():
            speed = update(number, is_chunked=is_chunked)
            if number >= 2:
                found.append(speed)
    chunked, whole = median(speeds[True]), median(speeds[False])
    table = Table("loss", "target tokens/s", title=f"{loaded.name}, {chosen}, {torch.get_num_threads()} threads")
    table.add_row("in chunks, as training has it", f"{chunked:,.0f}")
    table.add_row("all logits at once", f"{whole:,.0f}")
    Console().print(table)
    how = {"bench": "training", "precision": str(chosen), "threads": torch.get_num_threads()}
    print(json.dumps(how | {"chunked": round(chunked), "whole": round(whole)}))


if __name__ == "__main__":
    typer.run(main)
