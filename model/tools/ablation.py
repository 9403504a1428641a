"""What each part of a recipe is worth: the same short run again without it.

Runs are matched: the same seed, batches and number of updates.  Checkpoint averaging needs no run of its own: the last
checkpoint of each run is scored beside the average of its last ones.  A killed ablation goes on where it was, and
refuses runs of another recipe.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from model.checkpoint import load_checkpoint, step_directories
from model.corpus import Pair, read_dev_set
from model.evaluate import score_translations, translate
from model.optimizer import FASTEST, PRECISION_HELP
from model.recipe import Recipe, load_recipe
from model.train import prepare_run

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

_VALIDATION_SENTENCES = 64  # of each set: one batch, for the curve; validation decides nothing here


def shorten(recipe: Recipe, max_updates: int) -> Recipe:
    """Return the recipe in fewer updates, with warm-up, cool-down and checkpoint distance shrunk and no early end."""
    schedule, optimizer = recipe.schedule, recipe.optimizer
    share = max_updates / schedule.max_updates
    return replace(
        recipe,
        optimizer=replace(
            optimizer,
            warmup_updates=max(1, round(share * optimizer.warmup_updates)),
            cooldown_updates=round(share * optimizer.cooldown_updates),
        ),
        schedule=replace(
            schedule,
            max_updates=max_updates,
            validate_every=max(1, round(share * schedule.validate_every)),
            patience=max_updates,
            validation_sentences=_VALIDATION_SENTENCES,
        ),
    )


def ablations(recipe: Recipe) -> dict[str, Recipe]:
    """Return the recipe, then without warm-up, label smoothing, dropout, and what it has beyond the paper, by name.

    Without Muon there is no weight decay either: Adam's parameters have none.
    """
    optimizer = recipe.optimizer
    without = {
        "warm-up": replace(optimizer, starts_at_peak=True),
        "label smoothing": replace(optimizer, label_smoothing=0.0),
        "dropout": replace(optimizer, dropout=0.0),
    }
    if optimizer.cooldown_updates:
        without["cool-down"] = replace(optimizer, cooldown_updates=0)
    if optimizer.matrices == "muon":
        without["Muon"] = replace(optimizer, matrices="adam")
    ablated = {f"without {part}": replace(recipe, optimizer=rest) for part, rest in without.items()}
    return {"whole recipe": recipe, **ablated}


def bleu(directory: Path, pairs: Sequence[Pair], beam_size: int, tokenizer: str) -> float:
    """Return the BLEU of a checkpoint on a test set."""
    checkpoint = load_checkpoint(directory)
    texts, references = zip(*pairs, strict=True)
    translations = translate(checkpoint.model(), texts, checkpoint.tokenizer(), beam_size)
    return score_translations(translations, references, tokenizer).bleu


@app.command()
def main(
    recipe: Annotated[Path, typer.Argument(help="Recipe file, for instance model/recipes/multi30k.toml.")],
    data: Annotated[Path, typer.Option(help="Directory of the corpora, as for model.train.")],
    out: Annotated[Path, typer.Option(help="Directory of the runs, one below it for each recipe.")],
    test_set: Annotated[str, typer.Option("--set", help="Test set to score, named as for model.evaluate.")],
    max_updates: Annotated[int, typer.Option(min=10, help="Of each run; the recipe's schedule shrinks to it.")] = 2_000,
    beam_size: Annotated[int, typer.Option(min=1, help="1 is fast batched greedy search.")] = 1,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    precision: Annotated[str, typer.Option(help=PRECISION_HELP)] = FASTEST,
) -> None:
    """Train a recipe in short, and again without each of its parts; print what each part is worth in BLEU."""
    runs: list[dict[str, Any]] = []
    title = f"{recipe.stem} in {max_updates:,} updates, {test_set}, beam {beam_size}"
    table = Table("run", "BLEU, average of the last checkpoints", "BLEU, last checkpoint alone", title=title)
    try:
        shortened = shorten(load_recipe(recipe), max_updates)
        pairs = read_dev_set(data, test_set, shortened.languages)
        for name, ablated in ablations(shortened).items():
            run = out / f"{name.replace(' ', '-')}-{max_updates}"
            trainer = prepare_run(ablated, data, run, device=device, precision=precision, may_differ=())
            trainer.resume()
            trainer.train()
            checkpoints = {"average": run / "average", "last": step_directories(run)[-1]}
            tokenizer = ablated.schedule.bleu_tokenizer
            scores = {which: bleu(path, pairs, beam_size, tokenizer) for which, path in checkpoints.items()}
            runs.append({"name": name, **scores})
            table.add_row(name, *(f"{score:.1f} ({score - runs[0][which]:+.1f})" for which, score in scores.items()))
    except (ValueError, FileNotFoundError) as error:
        raise typer.BadParameter(str(error)) from error
    Console().print(table)
    print(json.dumps({"max_updates": max_updates, "beam": beam_size, "runs": runs}))


if __name__ == "__main__":
    app(prog_name="python -m model.tools.ablation")
