"""A corpus of what a model says to the sentences of a recipe's corpora, for a smaller model to learn from.

Sequence-level distillation (Kim & Rush 2016, section 3.2), with greedy search.  Read the other way round, the pairs are
back-translations for a model of the other direction (Sennrich et al. 2016).
"""

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import track

from model.checkpoint import load_checkpoint
from model.corpus import Pair, read_corpus
from model.evaluate import translate_greedily
from model.optimizer import FASTEST, choose_device, choose_precision
from model.recipe import Languages, load_recipe
from model.tools.diversify import write_corpus

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
console = Console(stderr=True)

_SENTENCES = 32_768  # between two looks at the progress bar; sentences of similar length are translated together


@app.command()
def main(
    teacher: Annotated[Path, typer.Argument(help="Checkpoint directory, for instance RUN/average.")],
    recipe: Annotated[Path, typer.Option(help="Recipe whose corpora's source sentences are translated.")],
    data: Annotated[Path, typer.Option(help="Directory with train/NAME/NAME.LANG.gz.")],
    out: Annotated[Path, typer.Option(help="Directory of the new corpus, which takes its name.")],
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
) -> None:
    """Write a corpus of a teacher's translations.

    Example: python -m model.tools.distil TEACHER/average --recipe model/recipes/en-de-teacher.toml --data CLEAN
    --out CLEAN/train/en-said
    """
    try:
        where = choose_device(device)
        loaded, corpora = load_checkpoint(teacher), load_recipe(recipe)
        languages = Languages(source=loaded.meta.source_language, target=loaded.meta.target_language)
        pairs = [pair for corpus in corpora.corpora for pair in read_corpus(data, corpus, languages, corpora.seed)]
    except (ValueError, FileNotFoundError) as error:
        raise typer.BadParameter(str(error)) from error
    known, sentences = set(pairs), sorted({pair.source for pair in pairs}, key=len)
    model, tokenizer, precision = loaded.model().to(where), loaded.tokenizer(), choose_precision(FASTEST, where)
    said: list[Pair] = []
    with torch.autocast(where.type, precision, enabled=precision is not torch.float32):
        for start in track(range(0, len(sentences), _SENTENCES), "translating", console=console, transient=True):
            texts = sentences[start : start + _SENTENCES]
            said += map(Pair, texts, translate_greedily(model, texts, tokenizer))
    count = write_corpus(out, (pair for pair in said if pair.target and pair not in known), languages)
    console.log(f"{out}: {count:,} new pairs of {len(sentences):,} sentences")


if __name__ == "__main__":
    app(prog_name="python -m model.tools.distil")
