"""What each part of a recipe is worth: the same short run again without it.

    python -m model.tools.ablation model/recipes/multi30k.toml --data DATA --out RUNS
        --set multi30k-tok/test_2016_flickr.lc.norm.tok

Runs are matched: the same seed, batches and number of updates.  Checkpoint averaging needs no run of its own: the last
checkpoint of each run is scored beside the average of its last ones.  A killed ablation goes on where it was, and
refuses runs of another recipe.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from model.checkpoint import load_checkpoint, step_directories
from model.data import Pair, read_dev_set
from model.evaluate import score_translations, translate
from model.optimizer import FASTEST, PRECISION_HELP
from model.recipe import Recipe, load_recipe
from model.train import prepare_run

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

_VALIDATION_SENTENCES = 64  # of each set: one batch, for the curve; validation decides nothing here


@dataclass(frozen=True, slots=True, kw_only=True)
class AblatedRecipe:
    """A recipe without one of its parts."""

    name: str
    recipe: Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationScores:
    """BLEU of a variant's run."""

    name: str
    last: float  # of the last checkpoint
    average: float  # of the mean of the recipe's last checkpoints


def shorten(recipe: Recipe, max_updates: int) -> Recipe:
    """The recipe in fewer updates: warm-up, cool-down and checkpoint distance shrink alike, and nothing ends early."""
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


def variants(recipe: Recipe) -> list[AblatedRecipe]:
    """The recipe as it is, then without warm-up, label smoothing, dropout, and what it has beyond the paper.

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
    return [
        AblatedRecipe(name="whole recipe", recipe=recipe),
        *(
            AblatedRecipe(name=f"without {part}", recipe=replace(recipe, optimizer=rest))
            for part, rest in without.items()
        ),
    ]


def score_run(variant: AblatedRecipe, run: Path, pairs: Sequence[Pair], beam_size: int) -> AblationScores:
    """BLEU of a finished run on a test set."""

    def bleu(directory: Path) -> float:
        checkpoint = load_checkpoint(directory)
        texts = [pair.source for pair in pairs]
        translations = translate(checkpoint.model(), texts, checkpoint.tokenizer(), beam_size)
        references = [pair.target for pair in pairs]
        return score_translations(translations, references, variant.recipe.schedule.bleu_tokenizer).bleu

    return AblationScores(name=variant.name, last=bleu(step_directories(run)[-1]), average=bleu(run / "average"))


def draw_table(scores: list[AblationScores], title: str) -> Table:
    """A row per variant, each score with its distance from the whole recipe's."""
    table = Table("run", "BLEU, average of the last checkpoints", "BLEU, last checkpoint alone", title=title)
    whole = scores[0]
    for row in scores:
        table.add_row(
            row.name,
            f"{row.average:.1f} ({row.average - whole.average:+.1f})",
            f"{row.last:.1f} ({row.last - whole.last:+.1f})",
        )
    return table


@app.command()
def main(
    recipe: Annotated[Path, typer.Argument(help="Recipe file, for instance model/recipes/multi30k.toml.")],
    data: Annotated[Path, typer.Option(help="Directory of the corpora, as for model.train.")],
    out: Annotated[Path, typer.Option(help="Directory of the runs, one below it for each variant.")],
    test_set: Annotated[str, typer.Option("--set", help="Test set to score, named as for model.evaluate.")],
    max_updates: Annotated[int, typer.Option(min=10, help="Of each run; the recipe's schedule shrinks to it.")] = 2_000,
    beam_size: Annotated[int, typer.Option(min=1, help="1 is fast batched greedy search.")] = 1,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
    precision: Annotated[str, typer.Option(help=PRECISION_HELP)] = FASTEST,
) -> None:
    """Train a recipe in short, and again without each of its parts; print what each part is worth in BLEU."""
    try:
        shortened = shorten(load_recipe(recipe), max_updates)
        pairs = read_dev_set(data, test_set, shortened.languages)
        scores = []
        for variant in variants(shortened):
            run = out / f"{variant.name.replace(' ', '-')}-{max_updates}"
            trainer = prepare_run(variant.recipe, data, run, device=device, precision=precision, may_differ=())
            trainer.resume()
            trainer.train()
            scores.append(score_run(variant, run, pairs, beam_size))
    except (ValueError, FileNotFoundError) as error:
        raise typer.BadParameter(str(error)) from error
    title = f"{recipe.stem} in {max_updates:,} updates, {test_set}, beam {beam_size}"
    Console().print(draw_table(scores, title))
    print(json.dumps({"max_updates": max_updates, "beam": beam_size, "runs": [asdict(row) for row in scores]}))


if __name__ == "__main__":
    app(prog_name="python -m model.tools.ablation")
