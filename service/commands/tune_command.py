"""`dragoman tune`: its options."""

from pathlib import Path
from typing import Annotated

import typer

from service.commands.options import BundleDir, Precision, bundle_dir, examples
from service.commands.reporting import reported

EPILOG = examples(
    "dragoman tune",
    "dragoman tune --bundle ./my-model --texts sentences.en --seconds 180",
    "dragoman tune --prefer latency --output laptop.toml --force",
    "dragoman serve --config dragoman.toml",
)


def tune(
    bundle: BundleDir = None,
    precision: Precision = None,
    texts: Annotated[Path | None, typer.Option(metavar="FILE", help="Sentences to measure with, one a line.")] = None,
    beam_size: Annotated[int | None, typer.Option("--beam-size", "-b", min=1, help="The model's if not given.")] = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="Longest time it may take.")] = 60.0,
    prefer: Annotated[str, typer.Option(metavar="WHAT", help="balance, latency or throughput.")] = "balance",
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE")] = Path("dragoman.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")] = False,
    progress: Annotated[bool | None, typer.Option(help="Progress bar.  [default: on a terminal]")] = None,
) -> None:
    """Measure how many engines, threads and rows suit this machine, and write a configuration for `dragoman serve`.

    Takes the CPUs it may use for itself while it runs; other work beside it disturbs the figures.

    balance: the highest throughput of the settings that answer a single sentence at most 1.5 x later than the best.
    """
    with reported():
        from service.commands.tuning_run import TuneCommand, run
        from service.config import load_config

        flags = {"engine.bundle": bundle_dir(bundle), "engine.precision": precision}
        run(
            TuneCommand(
                config=load_config(None, flags),
                texts=texts,
                beam_size=beam_size,
                seconds=seconds,
                prefer=prefer,
                output=output,
                is_forced=force,
                shows_progress=progress,
            )
        )
