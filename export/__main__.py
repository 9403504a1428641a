"""`python -m export`: the command line of the export, and nothing else."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from export.heads import TokenPair
from export.importers.command import app as import_app
from export.onnx_export import ALL_PRECISIONS, PRECISIONS, ExportOptions, export_bundle
from export.report import show_bundle
from export.samples import read_samples
from export.source import FIRST_VERSION, ExportSource
from model.config import EOS_ID
from model.corpus import read_lines
from model.tokenizer import Tokenizer

NUM_PAIRS = 30_000  # of the parallel text: a statistical alignment is learnt from them in some ten seconds
NUM_VERIFIED = 64  # of them, beside the calibration file's
MAX_PAIR_TOKENS = 100  # of either side

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
console = Console(stderr=True)

EPILOG = """[bold]Examples[/bold]

The heads that align: [cyan]python -m export BUNDLE BUNDLE --align-with train.en.gz train.de.gz[/cyan]

Both precisions: [cyan]python -m export runs/en-de/average bundles/en-de --calibration train.en.gz[/cyan]

fp32 from a bundle's own weights: [cyan]python -m export model/pretrained/en-de bundles/fp32 --precision fp32[/cyan]

A model of another framework: [cyan]python -m export import --help[/cyan]

For a GPU too: [cyan]python -m export model/pretrained/en-de bundles/gpu --precision fp32 --precision fp16[/cyan]
"""


@app.command(epilog=EPILOG)
def main(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint's directory, or a bundle that kept its weights.")],
    bundle: Annotated[Path, typer.Argument(help="Where the bundle goes; a bundle there is replaced.")],
    precision: Annotated[
        list[str] | None, typer.Option(help="int8, fp32, or fp16 for a GPU; may be repeated. Default: int8 and fp32.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="Source sentences, one a line, plain or .gz; int8 needs them. Default: a bundle's int8 graphs keep "
            "their scales.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    keep_weights: Annotated[bool, typer.Option(help="Keep all parameters, in half precision, to export from.")] = True,
    align_with: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            help="Parallel text, source and target sentences one a line, plain or .gz: the attention heads that align "
            "best are chosen with it. Default: the bundle's heads, else those of the layer before the last.",
            metavar="SOURCE TARGET",
        ),
    ] = None,
    shortlist: Annotated[
        Path | None,
        typer.Option(
            help="Of `python -m model.tools.learn_shortlist`; default: the bundle's own.", exists=True, dir_okay=False
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the model; default: the checkpoint's.")] = None,
    version: Annotated[
        str | None, typer.Option(help=f"Version of the model; default: the bundle's, else {FIRST_VERSION}.")
    ] = None,
    reliable_source_tokens: Annotated[
        int | None,
        typer.Option(
            help="Longer sentences are cut. bench/quality/reliable_length.py finds it. Default: the bundle's, or none.",
            min=1,
        ),
    ] = None,
) -> None:
    """Turn a trained CHECKPOINT into a BUNDLE that the server loads.

    Every graph is compared with the PyTorch model before anything is written; a graph that differs by more than its
    precision's tolerance is refused, and BUNDLE stays as it was.
    """
    for given in precision or ():
        if given not in ALL_PRECISIONS:
            raise typer.BadParameter(f"{given!r} is none of {', '.join(ALL_PRECISIONS)}", param_hint="--precision")
    precisions = tuple(dict.fromkeys(precision)) if precision else PRECISIONS
    try:
        source = ExportSource.load(checkpoint)
        source = replace(
            source,
            name=name or source.name,
            version=version or source.version,
            reliable_source_tokens=reliable_source_tokens or source.reliable_source_tokens,
        )
        tokenizer = Tokenizer.load(source.tokenizer_path)
        samples = read_samples(calibration, tokenizer, source.config, source.golden_texts)
        if align_with:
            pairs = _pairs(*align_with, tokenizer)
            sources = [[*pair.source, EOS_ID] for pair in pairs[:: max(1, len(pairs) // NUM_VERIFIED)][:NUM_VERIFIED]]
            samples = replace(samples, pairs=pairs, verification=[*samples.verification, *sources])
        options = ExportOptions(
            precisions=precisions, keep_weights=keep_weights, shortlist=shortlist or source.shortlist_path
        )
        progress = partial(track, console=console, transient=True)
        show_bundle(export_bundle(source, bundle, options, samples, progress), console)
    except (ValueError, OSError) as error:
        console.print(f"[red]error:[/red] {error}", highlight=False)
        raise typer.Exit(1) from error


def _pairs(source: Path, target: Path, tokenizer: Tokenizer) -> list[TokenPair]:
    """Pairs from all over the files; ValueError if one has more lines than the other."""
    texts, translations = read_lines(source), read_lines(target)
    if len(texts) != len(translations):
        raise ValueError(f"{source} has {len(texts)} lines, {target} has {len(translations)}: they must be parallel")
    stride = max(1, len(texts) // NUM_PAIRS)
    lines = list(zip(texts, translations, strict=True))[::stride][:NUM_PAIRS]
    pairs = [TokenPair(tokenizer.encode(text)[:-1], tokenizer.encode(translation)[:-1]) for text, translation in lines]
    return [pair for pair in pairs if 0 < len(pair.source) < MAX_PAIR_TOKENS and 0 < len(pair.target) < MAX_PAIR_TOKENS]


if __name__ == "__main__":
    if sys.argv[1:2] == ["import"]:
        import_app(args=sys.argv[2:], prog_name="python -m export import")
    app(prog_name="python -m export")
