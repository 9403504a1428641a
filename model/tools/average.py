"""One model of several: the mean of their weights (model soups, Wortsman et al. 2022).

The mean of runs that began with the same weights, and differ in their data, seed or dropout, is often better than each
of them: score them all.  Models that began with different weights have no useful mean.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from model.checkpoint import Checkpoint, load_checkpoint, mean_weights, save_checkpoint

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
console = Console(stderr=True)


def average(checkpoints: Sequence[Checkpoint]) -> Checkpoint:
    """Return the mean of models of one shape, direction and tokenizer, with the first one's name and no scores.

    Raises:
        ValueError: fewer than two, or they differ in more than their weights.
    """
    if len(checkpoints) < 2:
        raise ValueError(f"{len(checkpoints)} model to average, at least 2 are needed")
    first, *others = checkpoints
    languages = first.meta.source_language, first.meta.target_language
    for other in others:
        if other.config != first.config:
            raise ValueError(f"{other.config} cannot be averaged with {first.config}")
        found = other.meta.source_language, other.meta.target_language
        if found != languages:
            way, first_way = ("from {} to {}".format(*pair) for pair in (found, languages))
            raise ValueError(f"a model {way} cannot be averaged with one {first_way}")
        if other.tokenizer_path.read_bytes() != first.tokenizer_path.read_bytes():
            raise ValueError(f"the tokenizers {other.tokenizer_path} and {first.tokenizer_path} differ")
    weights = mean_weights(checkpoint.weights for checkpoint in checkpoints)
    return replace(first, weights=weights, meta=replace(first.meta, scores={}))


@app.command()
def main(
    models: Annotated[list[Path], typer.Argument(help="Checkpoints, or bundles that kept their weights; two or more.")],
    out: Annotated[Path, typer.Option(help="Directory of the checkpoint that is made.")],
) -> None:
    """Average the weights of models that were trained from the same ones.

    Example: python -m model.tools.average RUN/average OTHER/average --out MEAN
    """
    if out.exists():
        raise typer.BadParameter(f"{out} exists already: choose another --out")
    try:
        save_checkpoint(out, average([load_checkpoint(directory) for directory in models]))
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    console.log(f"{out}: the mean of {len(models)} models")


if __name__ == "__main__":
    app(prog_name="python -m model.tools.average")
